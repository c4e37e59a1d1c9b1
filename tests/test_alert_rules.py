"""The alert rules: promtool fires each of them, keeps it silent, and resolves it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from forewarn.pipelines.metrics.declarations import SOURCES

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy" / "prometheus" / "forewarn.rules.yml"
LOOP = 'forewarn_respond_beat_age_seconds{beat="loop"}'
LOOP_TIME = 'forewarn_respond_beat_time_seconds{beat="loop"}'
ISOLATIONS = 'forewarn_respond_isolations_total{by="forewarn",pool="a"}'
ALL = 'forewarn_respond_machines{pool="a",state="all"}'
OUT = 'forewarn_respond_machines{pool="a",state="out"}'
GPUS = 'forewarn_fleet_gpus{state="all"}'
BLIND = 'forewarn_fleet_gpus{state="blind"}'
UNENDED = 'forewarn_fleet_gpus{state="failed_without_end"}'
UPPER = "forewarn_review_failures_observed_upper_expected_ratio"
LOWER = "forewarn_review_failures_observed_lower_expected_ratio"
OFFSET = 'forewarn_respond_clock_offset_seconds{reference="scheduler"}'
MARKS = "forewarn_respond_marks_without_action"
UNMARKED = "forewarn_respond_actions_without_mark"
FATAL = 'forewarn_respond_fatal_machines_in_service{blocked_by="hold"}'
WAIT = 'forewarn_respond_person_wait_seconds{pool="a",step="replace"}'
MESSAGE = 'forewarn_message_oldest_unsent_seconds{receiver="webhook"}'
LIST = "forewarn_list_time_seconds"


@dataclass(frozen=True)
class Case:
    """Series of an alert, and the hours at which it fires and does not.

    `summary` and `labels` are those at the first hour of `fires`.
    """

    alert: str
    series: dict[str, str]  # in promtool's notation, one sample a minute
    fires: tuple[float, ...] = ()
    silent: tuple[float, ...] = ()
    summary: str = ""
    labels: tuple[tuple[str, str], ...] = ()


def steps(*values: tuple[float, float]) -> str:
    """Return the notation of values, each held for so many hours."""
    return " ".join(f"{value:g}x{round(hours * 60) - 1}" for value, hours in values)


CASES = (
    Case(
        "ForewarnResponderSilent",
        {LOOP: steps((30, 1), (1000, 1), (30, 1)), LOOP_TIME: f"0+60x59 {3600:g}x59 7200+60x60"},
        fires=(1.5, 1.9),
        silent=(0.9, 1.05, 2.2),
        summary="The response loop has ended no round lately. Machines stay as they are.",
        labels=(("beat", "loop"),),
    ),
    Case("ForewarnResponderSilent", {LOOP: "_x60 30x60"}, fires=(0.5,), silent=(0.05, 1.5)),
    Case(  # the file of a loop that died
        "ForewarnResponderSilent", {LOOP: "0x180", LOOP_TIME: "3600x180"}, (1.5,), (0.9, 1.2)
    ),
    Case(
        "ForewarnActsOnBadClock",
        {OFFSET: steps((-299, 1), (-600, 1), (2, 1))},
        fires=(1.1, 1.9),
        silent=(0.9, 2.1),
        summary="The responder's clock and that of the scheduler are 10m 0s apart, so forewarn "
        "takes no step.",
        labels=(("reference", "scheduler"),),
    ),
    Case("ForewarnActsOnBadClock", {OFFSET: steps((301, 1))}, fires=(0.5,)),
    Case(
        "ForewarnForeignOrLostMarks",
        {MARKS: steps((0, 1), (2, 1), (0, 1)), UNMARKED: "0x180"},
        fires=(1.2, 1.9),
        silent=(0.9, 1.1, 2.1),
        summary="Marks in the scheduler and actions in the ledger differ for 2 machines.",
    ),
    Case("ForewarnForeignOrLostMarks", {MARKS: "0x60", UNMARKED: "1x60"}, fires=(0.5,)),
    Case(
        "ForewarnIsolationStorm",
        {ISOLATIONS: f"0x59 0+1x30 {30:g}x200", ALL: "2500x300"},
        fires=(1.5, 2.0),
        silent=(0.9, 1.2, 3.0),
        summary="forewarn isolated about 30 machines within an hour, above 1 % of all.",
    ),
    Case("ForewarnIsolationStorm", {ISOLATIONS: "0x9 3x60", ALL: "40x60"}, silent=(0.5,)),
    Case("ForewarnIsolationStorm", {ISOLATIONS: "0x9 20x60", ALL: "2500x60"}, silent=(0.5,)),
    Case("ForewarnIsolationStorm", {ISOLATIONS: "0x9 6x60", ALL: "40x60"}, fires=(0.3,)),
    Case(
        "ForewarnActedFatalFaultInService",
        {FATAL: steps((0, 1), (1, 2), (0, 1))},
        fires=(1.6, 2.9),
        silent=(0.9, 1.4, 3.1),
        summary="1 machines with certain damage still get jobs; the ruling is hold.",
        labels=(("blocked_by", "hold"),),
    ),
    Case(
        "ForewarnStepNeedsPerson",
        {WAIT: "0+60x300 _x60"},
        fires=(4.5, 4.9),
        silent=(3.9, 5.5),
        summary="The step replace in pool a has waited for a person for 4h 30m 0s.",
        labels=(("pool", "a"), ("step", "replace")),
    ),
    Case(
        "ForewarnCapacityHeld",
        {OUT: steps((50, 1), (150, 3), (100, 1)), ALL: "2500x300"},
        fires=(2.5, 3.9),
        silent=(0.9, 1.9, 4.1),
        summary="Pool a has 6% of its machines out of service.",
        labels=(("pool", "a"),),
    ),
    Case("ForewarnCapacityHeld", {OUT: "9x300", ALL: "19x300"}, silent=(4.0,)),
    Case(
        "ForewarnTelemetryLost",
        {BLIND: steps((100, 1), (500, 2), (10, 1)), GPUS: "20000x240"},
        fires=(1.6, 2.9),
        silent=(0.9, 1.4, 3.1),
        summary="There are no recent records of 2.5% of the GPUs.",
    ),
    Case("ForewarnTelemetryLost", {BLIND: "7x240", GPUS: "40x240"}, silent=(3.0,)),
    Case(
        "ForewarnListLate",
        {LIST: f"0x1619 {97200:g}x600"},
        fires=(26.5, 26.9),
        silent=(25.9, 26.1, 27.5),
        summary="The newest at-risk list is too old, or there is none. No prediction leads to a "
        "step.",
    ),
    Case("ForewarnListLate", {GPUS: "1x60"}, fires=(0.5,), silent=(0.1,)),
    Case(
        "ForewarnFailuresWithoutEnd",
        {UNENDED: steps((90, 10), (110, 30), (20, 2)), GPUS: "20000x2600"},
        fires=(34.5, 39.9),
        silent=(9.9, 33.0, 40.5),
        summary="The failures of 110 GPUs have no known end, so no list contains these GPUs.",
        labels=(("state", "failed_without_end"),),
    ),
    Case("ForewarnFailuresWithoutEnd", {UNENDED: "5x2600", GPUS: "100x2600"}, silent=(40.0,)),
    Case(
        "ForewarnListNoBetterThanPromised",
        {UPPER: steps((0.6, 10), (0.4, 60), (0.9, 5)), LOWER: "0.1x4500"},
        fires=(58.5, 69.9),
        silent=(9.9, 57.0, 70.5),
        summary="Over 30 days the observed failures differ from the expected ones by a factor of "
        "two or more, with 90 % confidence.",
    ),
    Case("ForewarnListNoBetterThanPromised", {UPPER: "9x3600", LOWER: "2.1x3600"}, fires=(50.0,)),
    Case(
        "ForewarnMessagesStuck",
        {MESSAGE: "0x59 0+60x60 0x60"},
        fires=(1.6, 1.9),
        silent=(0.9, 1.3, 2.1),
        summary="The webhook has accepted no message for 36m 0s.",
        labels=(("receiver", "webhook"),),
    ),
)


@pytest.fixture(scope="module")
def promtool(require_program: Callable[[str, str], Path]) -> Callable[..., str]:
    program = str(require_program("promtool", "prometheus"))

    def run(*arguments: str) -> str:
        command = [program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def as_test(case: Case) -> dict[str, Any]:
    """Return a case in the form of `promtool test rules`."""
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    points = [(hour, 1) for hour in case.fires] + [(hour, 0) for hour in case.silent]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in case.series.items()],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": f"{round(hour * 60)}m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
            for hour, count in points
        ],
        "alert_rule_test": [_expected_alert(case)] if case.summary else [],
    }


def _expected_alert(case: Case) -> dict[str, Any]:
    rule = rules()[case.alert]
    annotations = {"summary": case.summary, "runbook_url": rule["annotations"]["runbook_url"]}
    alert = {"exp_labels": rule["labels"] | dict(case.labels), "exp_annotations": annotations}
    when = f"{round(case.fires[0] * 60)}m"
    return {"eval_time": when, "alertname": case.alert, "exp_alerts": [alert]}


def test_rules_are_valid(promtool: Callable[..., str]) -> None:
    assert "12 rules found" in promtool("check", "rules", str(RULES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_alert_fires_only_as_long_as_due(
    case: Case, promtool: Callable[..., str], tmp_path: Path
) -> None:
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [as_test(case)]}
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(path))


def test_each_alert_is_seen_resolving() -> None:
    resolved = {
        case.alert for case in CASES if case.fires and max(case.silent, default=0) > case.fires[0]
    }
    quiet_before = {case.alert for case in CASES if case.fires and case.silent[:1] < case.fires[:1]}
    assert resolved == quiet_before == set(rules())


def test_each_alert_has_severity_and_runbook() -> None:
    page = (ROOT / "docs" / "how-to" / "answer_an_alert.md").read_text()
    titles = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert titles == list(rules())
    for name, rule in rules().items():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert "for" in rule
        url = rule["annotations"]["runbook_url"]
        assert url == f"docs/how-to/answer_an_alert.md#{name.lower()}"
        severity, _, text = page.partition(f"## {name}\n\n")[2].partition(". ")
        assert (severity.lower(), bool(text)) == (rule["labels"]["severity"], True)


def test_rules_use_declared_metrics_and_labels() -> None:
    declared = {metric.sample: metric for metrics in SOURCES.values() for metric in metrics}
    for rule in rules().values():
        for name, selector in re.findall(r"(forewarn_\w+)(?:\{(.*?)\})?", rule["expr"]):
            labels = declared[name].labels
            for label, value in re.findall(r'(\w+)="(\w+)"', selector):
                assert value in labels[label]
