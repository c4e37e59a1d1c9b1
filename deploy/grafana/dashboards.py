"""Dashboards of Grafana, from a short definition of each panel.

`python -m deploy.grafana.dashboards` writes them to the folder of this file. A gauge may have
several series, of the API and of the loop, so each query takes the newest or the largest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as values
from grafana_foundation_sdk.models import dashboard as models

__all__ = ["DASHBOARDS", "Board", "Panel", "dashboard_json"]

_SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT: Final = {"stat": 4, "lines": 8, "stacked": 8, "bars": 8}
_CELL: Final = {"stat": 4, "lines": 12, "stacked": 12, "bars": 12}

Form = Literal["stat", "lines", "stacked", "bars"]


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: what it shows, and its queries by their legend.

    Attributes
    ----------
    title, description : str
    queries : dict of str to str
        Query of each legend; braces name labels.
    unit : str
        Of Grafana: `s`, `percentunit`, `short`.
    form : str
        `stat` shows the last value, the others the course: `lines`, `stacked` areas, `bars`.
    red : float or None
        Value from which it is red.
    names : dict of int to str
        Words for values.
    """

    title: str
    description: str
    queries: dict[str, str]
    unit: str = "short"
    form: Form = "lines"
    red: float | None = None
    names: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: its file, title, time range and panels."""

    name: str
    title: str
    description: str
    since: str
    panels: tuple[Panel, ...]


_ON_CALL: Final = Board(
    "on_call",
    "forewarn: on call",
    "Is forewarn alive, what did it do, and what waits for a person?",
    "now-24h",
    (
        Panel(
            "Last round",
            "Time since the response loop ended a round.",
            {"loop": 'min(forewarn_respond_beat_age_seconds{beat="loop"})'},
            unit="s",
            form="stat",
            red=900,
        ),
        Panel(
            "Last list",
            "Time since the loop read a new at-risk list.",
            {"list": 'min(forewarn_respond_beat_age_seconds{beat="list"})'},
            unit="s",
            form="stat",
            red=93600,
        ),
        Panel(
            "Kill switch",
            "Whether the kill switch permits actions.",
            {"switch": "min(forewarn_respond_acting)"},
            form="stat",
            names=((0, "stopped", "red"), (1, "acting", "green")),
        ),
        Panel(
            "Pools by mode",
            "Number of pools in each mode.",
            {"{{mode}}": "sum by (mode) (max by (mode, pool) (forewarn_respond_pool_mode)) > 0"},
            form="stat",
        ),
        Panel(
            "Certain damage in service",
            "Machines with certain damage that take jobs.",
            {"machines": "sum(max by (blocked_by) (forewarn_respond_fatal_machines_in_service))"},
            form="stat",
            red=1,
        ),
        Panel(
            "Longest wait",
            "Longest time that a step waits for a person; no value if none waits.",
            {"wait": "max(forewarn_respond_person_wait_seconds)"},
            unit="s",
            form="stat",
            red=14400,
        ),
        Panel(
            "Waiting for a person",
            "Age of the oldest approval or repair, by step.",
            {"{{pool}}: {{step}}": "max by (pool, step) (forewarn_respond_person_wait_seconds)"},
            unit="s",
            red=14400,
        ),
        Panel(
            "Certain damage in service, by what blocks the step",
            "hold: a limit or another action; propose: an approval; observe: the mode or an "
            "interlock; act: nothing.",
            {"{{blocked_by}}": "max by (blocked_by) (forewarn_respond_fatal_machines_in_service)"},
            form="stacked",
        ),
        Panel(
            "Isolations per hour",
            "Machines that forewarn asked the scheduler to take out, by who decided.",
            {"{{by}}": "sum by (by) (increase(forewarn_respond_isolations_total[1h]))"},
            form="bars",
        ),
        Panel(
            "Open incidents by what blocks them",
            "As of the last round: a limit by its name, or another reason. "
            "`handled`: an action already does this.",
            {"{{blocked_by}}": "max by (blocked_by) (forewarn_respond_blocked_incidents) > 0"},
            form="stacked",
        ),
        Panel(
            "Limits used",
            "At 100 % the next drain is blocked. `predictions` is their half of `fleet_rate`.",
            {"{{pool}}: {{limit}}": "max by (pool, limit) (forewarn_respond_limit_used_ratio)"},
            unit="percentunit",
            red=1,
        ),
        Panel(
            "Decisions per hour",
            "New decisions by ruling.",
            {"{{ruling}}": "max by (ruling) (increase(forewarn_respond_decisions_total[1h]))"},
            form="bars",
        ),
    ),
)

_CAPACITY: Final = Board(
    "capacity_and_repair",
    "forewarn: capacity and repair",
    "How many machines are out, for whom they wait, and what they cost.",
    "now-30d",
    (
        Panel(
            "Machines out, by owner",
            "GPU machines out of service: taken out by forewarn or by others.",
            {
                "{{pool}}: {{owner}}": "max by (pool, owner) (forewarn_respond_machines_out)",
            },
            form="stacked",
        ),
        Panel(
            "Share of machines out",
            "Of the GPU machines of a pool, for any reason. An alert fires above 5 %.",
            {
                "{{pool}}": 'max by (pool) (forewarn_respond_machines{state="out"}) '
                '/ max by (pool) (forewarn_respond_machines{state="all"})'
            },
            unit="percentunit",
            red=0.05,
        ),
        Panel(
            "Machines of forewarn, by stage",
            "Step and state: `holding` waits for jobs, `drained` is empty.",
            {
                "{{step}}, {{state}}": "max by (step, state) "
                '(forewarn_respond_open_actions{step!="avoid"}) > 0'
            },
            form="stacked",
        ),
        Panel(
            "Age of stages",
            "How long the oldest machine has been in its stage.",
            {
                "{{step}}, {{state}}": "max by (step, state) "
                '(forewarn_respond_oldest_action_seconds{step!="avoid"}) > 0'
            },
            unit="s",
        ),
        Panel(
            "Finding to isolation",
            "Of the isolations of seven days, and of the first decisions. Estimated within the "
            "buckets of a histogram; empty where there was none.",
            {
                "isolation, median": "histogram_quantile(0.5, sum by (le) "
                "(increase(forewarn_respond_isolation_delay_seconds_bucket[7d])))",
                "isolation, 90 %": "histogram_quantile(0.9, sum by (le) "
                "(increase(forewarn_respond_isolation_delay_seconds_bucket[7d])))",
                "decision, 90 %": "histogram_quantile(0.9, sum by (le) "
                "(increase(forewarn_respond_decision_delay_seconds_bucket[7d])))",
            },
            unit="s",
        ),
        Panel(
            "Lost GPU-hours of the last day, by cause",
            "`external`: forewarn did not take the machine out.",
            {
                "{{cause}}": "24 * sum by (cause) "
                "(max by (cause, pool) (avg_over_time(forewarn_respond_gpus_out[1d])))"
            },
            form="stacked",
        ),
    ),
)

_TRUST: Final = Board(
    "trust",
    "forewarn: trust",
    "Do the lists keep what their probabilities say, and is their input complete?",
    "now-30d",
    (
        Panel(
            "Holdout precision",
            "Share of the holdout with a known outcome that failed. No value without a holdout "
            "(`control`) or before its first outcome.",
            {
                "precision": 'max(forewarn_respond_outcomes{fate="holdout",outcome="confirmed"}) / '
                '(sum(max by (outcome) (forewarn_respond_outcomes{fate="holdout",'
                'outcome=~"confirmed|not_confirmed"})) > 0)'
            },
            unit="percentunit",
            form="stat",
        ),
        Panel(
            "Holdout, n",
            "Incidents of the holdout with a known outcome.",
            {
                "n": 'sum(max by (outcome) (forewarn_respond_outcomes{fate="holdout",'
                'outcome=~"confirmed|not_confirmed"}))'
            },
            form="stat",
        ),
        Panel(
            "False drains",
            "Isolated machines on which no failure was confirmed, and all with a known outcome.",
            {
                "false": 'max(forewarn_respond_outcomes{fate="isolated",outcome="not_confirmed"})',
                "known": 'sum(max by (outcome) (forewarn_respond_outcomes{fate="isolated",'
                'outcome=~"confirmed|not_confirmed"}))',
            },
            form="stat",
        ),
        Panel(
            "Age of newest record",
            "Of a scored GPU.",
            {"record": "time() - max(forewarn_list_record_time_seconds)"},
            unit="s",
            form="stat",
            red=93600,
        ),
        Panel(
            "Age of list",
            "Time since the newest list.",
            {"list": "time() - max(forewarn_list_time_seconds)"},
            unit="s",
            form="stat",
            red=93600,
        ),
        Panel(
            "Age of model",
            "Time since the data of the list's model end. No value for rules.",
            {"model": "time() - max(forewarn_list_model_time_seconds)"},
            unit="s",
            form="stat",
        ),
        Panel(
            "Failures among the flagged of 30 days",
            "Expected by the probabilities, and observed with its 90 % interval.",
            {
                "expected": "max(forewarn_review_failures_expected)",
                "observed": "max(forewarn_review_failures_observed)",
                "lower": "max(forewarn_review_failures_observed_lower_expected_ratio) "
                "* max(forewarn_review_failures_expected)",
                "upper": "max(forewarn_review_failures_observed_upper_expected_ratio) "
                "* max(forewarn_review_failures_expected)",
            },
        ),
        Panel(
            "Calibration of all scored GPUs",
            "Slope and intercept on the log odds; 1 and 0 are right.",
            {
                "slope": "max(forewarn_review_calibration_slope)",
                "intercept": "max(forewarn_review_calibration_intercept)",
            },
        ),
        Panel(
            "GPUs without a probability",
            "blind: their records stopped; failed_without_end: no repair is known; unscored: all "
            "others left out.",
            {
                "{{state}}": "max by (state) "
                '(forewarn_fleet_gpus{state=~"blind|failed_without_end|unscored"})'
            },
            form="stacked",
        ),
        Panel(
            "Overrides per day",
            "Actions that a person undid or replaced, by what they rested on.",
            {
                "{{cause}}": "max by (cause) (increase(forewarn_respond_overrides_total[1d]))",
            },
            form="bars",
        ),
        Panel(
            "Precision and recall of flags, 30 days",
            "Share of flags that a failure followed, and of failures that a flag preceded.",
            {
                "precision": "max(forewarn_review_precision_ratio)",
                "recall": "max(forewarn_review_recall_ratio)",
            },
            unit="percentunit",
        ),
        Panel(
            "Flagged GPUs and expected failures of the newest list",
            "The expected failures are those of all scored GPUs within the horizon.",
            {
                "flagged": "max(forewarn_list_flagged_gpus)",
                "expected failures": "max(forewarn_list_expected_failures)",
            },
        ),
    ),
)

DASHBOARDS: Final = (_ON_CALL, _CAPACITY, _TRUST)
"""All dashboards."""


def dashboard_json(board: Board) -> str:
    """Return a dashboard in the form that Grafana imports."""
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    built = (
        dashboard.Dashboard(board.title)
        .uid(f"forewarn-{board.name.replace('_', '-')}")
        .description(board.description)
        .tags(["forewarn"])
        .timezone("browser")
        .refresh("1m")
        .time(board.since, "now")
        .with_variable(source)
    )
    for number, panel in enumerate(board.panels, 1):
        built = built.with_panel(_panel(panel).id(number))
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _panel(panel: Panel) -> stat.Panel | timeseries.Panel:
    built = _stat(panel) if panel.form == "stat" else _course(panel)
    built = built.title(panel.title).description(panel.description).datasource(_SOURCE)
    built = built.unit(panel.unit).min(0) if panel.unit != "short" else built.unit(panel.unit)
    built = built.height(_HEIGHT[panel.form]).span(_CELL[panel.form])
    for number, (legend, query) in enumerate(panel.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend).datasource(_SOURCE)
        target = target.ref_id(chr(ord("A") + number))
        built = built.with_target(target.instant() if panel.form == "stat" else target.range())
    return built


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=None, color="green")]
    if panel.red is not None:
        steps.append(models.Threshold(value=panel.red, color="red"))
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _stat(panel: Panel) -> stat.Panel:
    words = {
        str(value): models.ValueMappingResult(text=text, color=color)
        for value, text, color in panel.names
    }
    mappings: list[models.ValueMapping] = [models.ValueMap(options=words)] if words else []
    reduce = common.ReduceDataOptions().calcs(["lastNotNull"])
    mode = values.BigValueTextMode
    return (
        stat.Panel()
        .reduce_options(reduce)
        .graph_mode(values.BigValueGraphMode.NONE)
        .text_mode(mode.AUTO if len(panel.queries) == 1 else mode.VALUE_AND_NAME)
        .thresholds(_thresholds(panel))
        .mappings(mappings)
    )


def _course(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(values.LegendDisplayMode.LIST)
    legend = legend.placement(values.LegendPlacement.BOTTOM).show_legend(True)
    bars, lines = values.GraphDrawStyle.BARS, values.GraphDrawStyle.LINE
    built = timeseries.Panel().legend(legend).thresholds(_thresholds(panel))
    built = built.draw_style(bars if panel.form == "bars" else lines)
    if panel.red is not None:
        line = values.GraphTresholdsStyleMode.LINE
        built = built.thresholds_style(common.GraphThresholdsStyleConfig().mode(line))
    if panel.form == "lines":
        return built.fill_opacity(0)
    stacking = common.StackingConfig().mode(values.StackingMode.NORMAL)
    return built.fill_opacity(40).stacking(stacking)


def main() -> None:
    """Write all dashboards."""
    for board in DASHBOARDS:
        Path(__file__).with_name(f"{board.name}.json").write_text(dashboard_json(board))


if __name__ == "__main__":
    main()
