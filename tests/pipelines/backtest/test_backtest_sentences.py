from __future__ import annotations

from typing import Any

import pytest

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics, LeadTime
from forewarn.evaluation.prediction.metrics.calibration_metrics import (
    CalibrationMetrics,
    ProbabilityGroup,
)
from forewarn.evaluation.prediction.metrics.paired_differences import (
    Differences,
    PairedDifference,
)
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.backtest_sentences import (
    calibration_text,
    fleet_summary,
    protocol_verdicts,
    strategy_text,
    verdicts,
)
from forewarn.pipelines.backtest.report_results import Result, read_results


def results(
    figures: dict[str, tuple[float, float, float]], **more: Any
) -> list[Result[FleetMetrics]]:
    section = {
        key: FleetMetrics(list_precision=value, list_precision_interval=(low, high), **more)
        for key, (value, low, high) in figures.items()
    }
    return read_results(section, "list_precision", independent_differences(figures))


def independent_differences(figures: dict[str, tuple[float, float, float]]) -> Differences:
    """Return differences of methods whose errors are independent."""
    return {
        first: {
            second: PairedDifference(a[0] - b[0], (a[1] - b[2], a[2] - b[1]))
            for second, b in figures.items()
            if second != first
        }
        for first, a in figures.items()
    }


CLOSE = {
    "parallel_variable": (0.40, 0.30, 0.50),
    "cascade_variable": (0.10, 0.05, 0.15),
    "gbdt_variable": (0.35, 0.25, 0.45),
    "window_gbdt_variable": (0.30, 0.20, 0.40),
}
CLEAR = CLOSE | {"parallel_variable": (0.8, 0.7, 0.9), "window_gbdt_variable": (0.1, 0.05, 0.15)}


def test_overlapping_intervals_are_not_distinguishable() -> None:
    text = " ".join(verdicts(results(CLOSE), "variable"))
    assert "Best: Parallel, 40 of 100 (interval 30 to 50)." in text
    assert "Compared with it, Parallel is not distinguishable: these data do not show" in text
    assert "Parallel is not distinguishable; Cascade is worse." in text


def test_paired_difference_decides_despite_overlap() -> None:
    section = {
        key: FleetMetrics(list_precision=value, list_precision_interval=(value - 0.1, value + 0.1))
        for key, value in {"gbdt_variable": 0.4, "rules_variable": 0.3}.items()
    }
    paired = {"gbdt_variable": {"rules_variable": PairedDifference(0.1, (0.05, 0.15))}}
    text = " ".join(verdicts(read_results(section, "list_precision", paired), "variable"))
    assert "Compared with it, GBDT is better." in text


def test_disjoint_intervals_are_different() -> None:
    text = " ".join(verdicts(results(CLEAR), "variable"))
    assert "Compared with it, Parallel is better." in text
    assert "Against the best single model (GBDT), Parallel is better; Cascade is worse." in text


def test_model_worse_than_baseline_is_reported() -> None:
    worse = {"gbdt_variable": (0.1, 0.05, 0.15), "rules_variable": (0.5, 0.4, 0.6)}
    text = " ".join(verdicts(results(worse), "variable"))
    assert "GBDT is worse: these data do not show a benefit of the models." in text


def test_no_comparison_without_intervals() -> None:
    section = {"parallel_fixed": FleetMetrics(0.9), "gbdt_fixed": FleetMetrics(0.1)}
    found = read_results(section, "list_precision")
    assert "Parallel is not comparable." in verdicts(found, "fixed")[-1]


def test_other_strategies_are_excluded() -> None:
    mixed = CLOSE | {"mlp_fixed": (0.99, 0.98, 1.0)}
    assert "MLP" not in " ".join(verdicts(results(mixed), "variable"))


def test_shorter_list_is_mentioned() -> None:
    section = {
        "parallel_variable": PaperMetrics(precision_at_k=0.9, flagged=40),
        "cascade_variable": PaperMetrics(precision_at_k=0.8, flagged=100),
        "gbdt_variable": PaperMetrics(precision_at_k=0.7, flagged=100),
    }
    lines = protocol_verdicts(read_results(section, "precision_at_k"), "variable")
    assert "Parallel (40) flags fewer instances than a single model (100)" in lines[-1]


def test_summary_contains_caught_failures_and_lead() -> None:
    found = results(
        {"gbdt_fixed": (0.25, 0.2, 0.3), "random_fixed": (0.004, 0.0, 0.01)},
        failures=10,
        failures_caught=4,
        lead_time_hours=LeadTime(p50=6.04),
    )
    assert fleet_summary(BacktestReport("fixed", horizon_hours=12), found, "fixed") == [
        "Of 100 GPUs on the daily list, 25 failed within 12 h (interval 20 to 30).",
        "4 of 10 failures were listed beforehand; the median lead time was 6.0 h.",
        "A random list would have 0.4 of 100 on average.",
        "These are the results of GBDT, trained once.",
    ]


def test_random_precision_defaults_to_prevalence() -> None:
    lines = fleet_summary(BacktestReport("variable", prevalence=0.0027), results(CLEAR), "variable")
    assert "A random list would have 0.3 of 100 on average." in lines
    assert lines[-1].endswith("the best of 3 methods; choosing it afterwards is optimistic.")


def test_strategies_are_compared_method_by_method() -> None:
    found = results(
        {
            "gbdt_fixed": (0.2, 0.1, 0.3),
            "gbdt_sliding": (0.5, 0.4, 0.6),
            "gbdt_variable": (0.55, 0.45, 0.65),
            "cnn_fixed": (0.2, 0.1, 0.3),
            "cnn_sliding": (0.25, 0.15, 0.35),
            "random_fixed": (0.9, 0.8, 1.0),
        }
    )
    assert strategy_text(found) == [
        "Retraining (sliding against fixed): GBDT is better; 1D-CNN is not distinguishable.",
        "Choosing the span each time (variable against sliding): GBDT is not distinguishable.",
    ]


@pytest.mark.parametrize(
    ("slope", "interval", "words"),
    [
        (0.5, None, "too few machines failed to give an interval"),
        (1.0, None, "too few machines failed to give an interval"),
        (1.0, (0.4, 1.9), "the interval is too wide to tell whether the spread is right"),
        (1.0, (0.6, 2.1), "the interval is too wide to tell whether the spread is right"),
        (0.5, (0.4, 0.7), "Slope 0.50 (0.40 to 0.70; 1 is perfect, 0.8 to 1.25 is good): the prob"),
        (0.7, (0.4, 0.9), "the interval is too wide to tell whether they are overconfident"),
        (1.0, (0.5, 1.9), "high and low probabilities differ by the right amount."),
        (1.6, (1.3, 1.9), "the probabilities are underconfident; high ones are too low"),
        (1.6, (1.1, 2.4), "the interval is too wide to tell whether they are underconfident"),
        (None, None, "No slope"),
    ],
)
def test_calibration_text_follows_slope(
    slope: float | None, interval: tuple[float, float] | None, words: str
) -> None:
    assert words in calibration_text(CalibrationMetrics(slope, interval))


@pytest.mark.parametrize(
    ("ratio", "interval", "words"),
    [
        (1.5, (1.2, 1.8), "20 of 1,000 instances were expected to fail and 30 did, 1.50 times as"),
        (1.5, (1.2, 1.8), "1.50 times as many (1.20 to 1.80): the probabilities are too low."),
        (1.1, (1.02, 1.2), "the probabilities are slightly too low."),
        (0.5, (0.4, 0.7), "the probabilities are too high."),
        (1.0, (0.9, 1.2), "their level is right. Slope 1.00"),
        (1.0, (0.6, 1.7), "a right level is possible."),
        (1.5, None, "1.50 times as many; too few machines failed to give an interval."),
    ],
)
def test_calibration_text_follows_level(
    ratio: float, interval: tuple[float, float] | None, words: str
) -> None:
    bins = [ProbabilityGroup(0.01, 0.03, 500, 15), ProbabilityGroup(0.03, 0.03, 500, 15)]
    metrics = CalibrationMetrics(1.0, (0.9, 1.1), 0.0, bins, ratio, interval)
    assert words in calibration_text(metrics)
