"""HTML page of the backtest report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import (
    CalibrationMetrics,
    ProbabilityGroup,
)
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.features.time_units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from forewarn.pipelines.backtest.backtest_plots import daily_list_figure, reliability_figure
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.backtest_sentences import (
    calibration_text,
    excluded_text,
    fleet_summary,
    protocol_verdicts,
    strategy_text,
    verdicts,
)
from forewarn.pipelines.backtest.benefit_section import benefit_section
from forewarn.pipelines.backtest.blend_section import (
    blend_text,
    intersection_text,
    member_rows,
)
from forewarn.pipelines.backtest.calibration_section import calibration_monitor_section
from forewarn.pipelines.backtest.report_results import (
    STRATEGY_ORDER,
    Estimate,
    Figures,
    Result,
    best_result,
    rank_results,
    read_estimate,
    read_results,
)
from forewarn.pipelines.backtest.report_windows import days_since_training, over_time, test_windows
from forewarn.pipelines.rendering.svg_figures import inline_svg
from forewarn.pipelines.rendering.templates import (
    amount,
    per_hundred,
    plural,
    render_page,
    visible,
)
from forewarn.pipelines.runtime.progress import JobCosts

__all__ = ["render_report"]

_RANDOM_PRECISION = 1.0 / 9.0  # one positive to eight negatives: the paper's test set


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table of methods."""

    label: str
    figure: Estimate
    average_precision: Estimate
    figures: PaperMetrics | FleetMetrics


@dataclass(frozen=True, slots=True)
class Table:
    """A table of methods: models and baselines, with the upper end of their common scale."""

    models: tuple[Row, ...]
    baselines: tuple[Row, ...]
    top: float

    def __bool__(self) -> bool:
        """Return whether there are rows."""
        return bool(self.models or self.baselines)


def render_report(report: BacktestReport) -> str:
    """Render the report of a backtest as a self-contained page.

    Parameters
    ----------
    report : BacktestReport
        Missing parts are left out or shown as a dash.

    Returns
    -------
    str
        An HTML document. The same report gives the same bytes.
    """
    fleet = read_results(report.fleet, "list_precision", report.differences.get("list_precision"))
    protocol = read_results(
        report.methods, "precision_at_k", report.differences.get("precision_at_k")
    )
    lead = report.configured
    context = {
        "summary": fleet_summary(report, fleet, lead),
        "tiles": _tiles(report, rank_results(protocol, lead)),
        "left_out": excluded_text(report.left_out),
        "lead": lead,
        "share": report.share,
        "horizon": report.horizon_hours,
        "fleet": _table(rank_results(fleet, lead)),
        "fleet_verdicts": verdicts(fleet, lead),
        "daily": _daily_picture(best_result(rank_results(fleet, lead), "ensemble", "model")),
        "worth": benefit_section(report.worth.get(lead), report.k),
        "monitor": calibration_monitor_section(report.promise.get(lead)),
        "k": report.k,
        "chance": _RANDOM_PRECISION,
        "prevalence": report.prevalence,
        "protocol": _table(rank_results(protocol, lead)),
        "protocol_verdicts": [
            *protocol_verdicts(protocol, lead),
            *intersection_text(report.intersection.get(lead)),
        ],
        "blend": blend_text(report.blend.get(lead)),
        "members": member_rows(report.blend.get(lead)),
        "strategies": _strategies(fleet, protocol),
        "over_time": over_time(protocol, lead, chance=_RANDOM_PRECISION),
        "by_day": days_since_training(protocol, lead),
        "calibration": _calibration(report.calibration, lead),
        "notes": [visible(note, limit=500) for note in report.notes],
        "stages": _stages(report.costs),
    }
    return render_page("backtest/backtest_page.html", context)


def _tiles(
    report: BacktestReport, results: Sequence[Result[PaperMetrics]]
) -> list[tuple[str, str]]:
    """Return the amount of data behind the backtest."""
    starts = {start for result in results for start in test_windows(result.figures)}
    tiles = [
        (amount(report.gpus, 0), "GPUs"),
        (amount(report.records, 0), "records"),
        (amount(report.instances, 0), "instances, with or without a known label"),
        (amount(report.positives, 0), "of them positive"),
        (amount(len(starts), 0), "test window" if len(starts) == 1 else "test windows"),
    ]
    if report.prevalence:
        tiles.append((f"1 in {1.0 / report.prevalence:,.0f}", "instances is positive"))
    return tiles


def _table(results: Sequence[Result[Figures]]) -> Table:
    """Divide the results into models and baselines, each in the given order."""
    ends = [
        end for result in results for end in (result.estimate.value, result.estimate.high) if end
    ]
    models: list[Row] = []
    baselines: list[Row] = []
    for result in results:
        row = Row(
            label=result.method.label,
            figure=result.estimate,
            average_precision=read_estimate(result.figures, "average_precision"),
            figures=result.figures,
        )
        (baselines if result.method.kind == "baseline" else models).append(row)
    return Table(tuple(models), tuple(baselines), max(ends, default=0.0))


def _daily_picture(result: Result[FleetMetrics] | None) -> Markup:
    """Plot the daily lists of a method if the report contains them."""
    if result is None or not result.figures.days:
        return Markup()
    days = result.figures.days
    with_hit = sum(1 for day in days if day.hits)
    return inline_svg(
        daily_list_figure(days),
        title=f"The daily list of {result.method.label}",
        description=f"Bar chart of {plural(len(days), 'day')}; on {with_hit} of them at least one "
        "listed GPU failed within the horizon.",
    )


def _strategies(
    fleet: Sequence[Result[FleetMetrics]], protocol: Sequence[Result[PaperMetrics]]
) -> dict[str, Any]:
    """Compare the strategies if there are several."""
    methods = [result.method for result in _by_strategy(protocol)]
    methods += [result.method for result in _by_strategy(fleet)]
    present = [
        strategy
        for strategy in reversed(STRATEGY_ORDER)
        if any(m.strategy == strategy for m in methods)
    ]
    if len(present) < 2:
        return {}
    labels = {m.name: m.label for m in methods if m.kind != "baseline"}
    rows = [
        (label, [_figures(fleet, name, present), _figures(protocol, name, present)])
        for name, label in labels.items()
    ]
    words = [strategy_text(fleet), strategy_text(protocol)]
    return {"names": present, "rows": rows, "words": words}


def _by_strategy(results: Sequence[Result[Figures]]) -> list[Result[Figures]]:
    """Return the results strategy by strategy, best first within each."""
    return [result for strategy in STRATEGY_ORDER for result in rank_results(results, strategy)]


def _figures(
    results: Sequence[Result[Figures]], name: str, strategies: Sequence[str]
) -> list[Estimate]:
    """Return a method's metric under each strategy."""
    estimates = {
        result.method.strategy: result.estimate for result in results if result.method.name == name
    }
    return [estimates.get(strategy, Estimate(None)) for strategy in strategies]


def _calibration(by_strategy: Mapping[str, CalibrationMetrics], lead: str) -> dict[str, Any]:
    """Plot the reliability of the leading strategy, and list the slopes of the others."""
    if lead not in by_strategy:
        return {}
    leading = by_strategy[lead]
    others = [
        f"{name}: {amount(figures.slope, 2)}"
        for name, figures in by_strategy.items()
        if name != lead
    ]
    svg = _reliability_picture(leading.bins) if leading.bins else Markup()
    return {"words": calibration_text(leading), "others": ", ".join(others), "svg": svg}


def _reliability_picture(bins: Sequence[ProbabilityGroup]) -> Markup:
    """Plot the reliability diagram with a text alternative."""
    phrases = [
        f"{per_hundred(group.predicted)} % predicted, {per_hundred(group.observed)} % observed"
        for group in bins
    ]
    return inline_svg(
        reliability_figure(bins),
        title="Reliability of the probabilities",
        description=f"Predicted against observed share of failures: {'; '.join(phrases)}.",
    )


def _stages(costs: JobCosts) -> list[tuple[str, str, str]]:
    """Return the costs of each stage, and of the whole backtest last."""
    whole = ("total", costs.seconds, costs.peak_rss_bytes)
    stages = [(stage.name, stage.seconds, stage.peak_rss_bytes) for stage in costs.stages]
    return [
        (name, _duration(seconds), f"{peak / 2**30:.2f} GiB")
        for name, seconds, peak in (*stages, whole)
    ]


def _duration(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    if seconds < 120.0:
        return f"{amount(seconds, 1)} s"
    return (
        f"{seconds / SECONDS_PER_MINUTE:.1f} min"
        if seconds < 2 * SECONDS_PER_HOUR
        else f"{seconds / SECONDS_PER_HOUR:.1f} h"
    )
