from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.evaluation.prediction.metrics.backtest_metrics import (
    DayMetrics,
    LeadTime,
    StrategyMetrics,
    strategy_metrics,
)
from forewarn.evaluation.prediction.metrics.calibration_metrics import calibration_metrics
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.evaluation.prediction.metrics.ranking_metrics import average_precision
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.features.time_units import DAY, HOUR
from forewarn.models.prediction.ensembles import Committee

START = pd.Timestamp("2025-03-01", tz="UTC")
NEVER = float("inf")

COMMITTEE = Committee(parallel=("a", "b"), cascade=(("a", 0.5), ("b", 0.25)))
Row = tuple[int, str, float, float, float, float]


def protocol(**other: Any) -> EvaluationProtocol:
    values: dict[str, Any] = {
        "committee": COMMITTEE,
        "k": 0.25,
        "threshold": 0.7,
        "share": 0.25,
        "step": 2 * HOUR,
        "horizon": DAY,
        "seed": 0,
    }
    return EvaluationProtocol(**(values | other))


def table_of(rows: list[Row], **other: Any) -> ScoreTable:
    """Return a table; a row is day of window, serial, end and failure in hours, two scores."""
    windows, serials, ends, failed, a, b = zip(*rows, strict=True)
    hours = np.array(failed) - np.array(ends)
    hours = np.where((hours > 0) & (hours <= 24), hours, NEVER)
    frame = pd.DataFrame(
        {
            "test_window": START + pd.to_timedelta(np.array(windows), unit="D"),
            "gpu_serial": np.array(serials, dtype=object),
            "machine_id": np.array([serial[0] for serial in serials], dtype=object),
            "window_end": START + pd.to_timedelta(np.array(ends), unit="h"),
            "label": np.isfinite(hours).astype("int8"),
            "sampled": True,
            "train_length_days": 9.0,
            "hours_to_failure": hours,
            "score_a": np.array(a, dtype=float),
            "score_b": np.array(b, dtype=float),
            "probability": np.linspace(0.01, 0.2, len(rows)),
        }
    )
    changed = {name: other.pop(name) for name in list(other) if name in frame.columns}
    return ScoreTable(frame.assign(**changed), protocol(**other))


# Four GPUs on two machines. m2 fails at hour 30 and has instances at 21 and 23.
ONE_WINDOW: list[Row] = [
    (0, "m1", 21, NEVER, 0.9, 0.1),
    (0, "m1", 23, NEVER, 0.2, 0.2),
    (0, "m2", 21, 30, 0.8, 0.9),
    (0, "m2", 23, 30, 0.7, 0.8),
    (0, "n1", 21, NEVER, 0.6, 0.7),
    (0, "n1", 23, NEVER, 0.1, 0.1),
    (0, "n2", 21, NEVER, 0.5, 0.3),
    (0, "n2", 23, NEVER, 0.3, 0.2),
]
# No GPU fails in the second window; n2 fails at hour 80 in the third.
MORE_WINDOWS: list[Row] = [
    *ONE_WINDOW,
    (1, "m1", 47, NEVER, 0.9, 0.9),
    (1, "n2", 47, NEVER, 0.1, 0.1),
    (2, "m1", 71, NEVER, 0.9, 0.1),
    (2, "n1", 71, NEVER, 0.2, 0.2),
    (2, "n2", 71, 80, 0.1, 0.9),
]


def method(report: StrategyMetrics, name: str) -> PaperMetrics:
    return report.methods[name]


def test_metrics_of_one_window_by_hand() -> None:
    # Two of eight are flagged: by a the first m1 and the first m2, by b both instances of m2.
    report = strategy_metrics(table_of(ONE_WINDOW))
    a, b = method(report, "a"), method(report, "b")
    assert (a.precision_at_k, a.recall_at_k, a.flagged) == (0.5, 0.5, 2)
    assert (b.precision_at_k, b.recall_at_k, b.flagged) == (1.0, 1.0, 2)
    # At threshold 0.7, a is wrong only about m1 at 21, and b only about n1 at 21.
    assert a.accuracy == pytest.approx(7 / 8)
    assert b.accuracy == pytest.approx(7 / 8)
    assert a.average_precision == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert b.average_precision == pytest.approx(1.0)


def test_ensemble_metrics_by_hand() -> None:
    report = strategy_metrics(table_of(ONE_WINDOW))
    parallel, cascade = method(report, "parallel"), method(report, "cascade")
    # Both members flag only m2 at 21.
    assert (parallel.precision_at_k, parallel.recall_at_k) == (1.0, 0.5)
    assert parallel.flagged == 1
    # a keeps m1, m2, m2 and n1; of these, b selects both instances of m2.
    assert (cascade.precision_at_k, cascade.recall_at_k) == (1.0, 1.0)
    for figures in (parallel, cascade):
        assert figures.accuracy is None
        assert figures.average_precision is None
        assert figures.average_precision_interval is None


def test_windows_without_positives_do_not_count() -> None:
    report = strategy_metrics(table_of(MORE_WINDOWS))
    a = method(report, "a")
    assert [window.start for window in a.windows] == [
        "2025-03-01T00:00:00Z", "2025-03-03T00:00:00Z",
    ]  # fmt: skip
    assert [window.precision_at_k for window in a.windows] == [0.5, 0.0]
    assert [window.positives for window in a.windows] == [2, 1]
    assert a.precision_at_k == pytest.approx(0.25)
    assert a.precision_variance == pytest.approx(0.0625)
    assert a.windows_without_flags == 0


def test_windows_without_flags_are_excluded_and_counted() -> None:
    # In the third window a and b flag one instance each, and not the same one.
    report = strategy_metrics(table_of(MORE_WINDOWS))
    parallel = method(report, "parallel")
    assert [window.precision_at_k for window in parallel.windows] == [1.0, None]
    assert parallel.precision_at_k == 1.0
    assert parallel.windows_without_flags == 1
    assert parallel.recall_at_k == pytest.approx(0.25)


def test_paper_uses_sampled_rows_fleet_all_rows() -> None:
    sampled = np.array([row[1] != "m1" for row in ONE_WINDOW])
    table = table_of(ONE_WINDOW, sampled=sampled)
    report = strategy_metrics(table)
    a = method(report, "a")
    # k of six rows is 2 again (1.5 is rounded up); m1 at 21 is not among them.
    assert (a.precision_at_k, a.flagged) == (1.0, 2)
    assert a.average_precision == pytest.approx(1.0)
    assert report.fleet["a"].average_precision == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_ties_are_broken_by_serial_then_end() -> None:
    rows: list[Row] = [
        (0, "x2", 21, 30, 0.5, 0.5),
        (0, "x1", 23, NEVER, 0.5, 0.5),
        (0, "x1", 21, NEVER, 0.5, 0.5),
        (0, "x3", 21, NEVER, 0.5, 0.5),
    ]
    table = table_of(rows)
    flags = table.flags("a", np.arange(4))
    assert flags.tolist() == [False, False, True, False]
    assert table.ranks("a", np.arange(4)).tolist() == [3, 2, 1, 4]


def test_daily_list_contains_share_of_fleet() -> None:
    report = strategy_metrics(table_of(MORE_WINDOWS))
    fleet = report.fleet["b"]
    assert fleet.days == [
        DayMetrics("2025-03-02", listed=1, hits=1),
        DayMetrics("2025-03-03", listed=1, hits=0),
        DayMetrics("2025-03-04", listed=1, hits=1),
    ]
    assert fleet.list_precision == pytest.approx(2 / 3)
    assert (fleet.failures, fleet.failures_caught) == (2, 2)
    # On the lists at 24 and 72; failures at 30 and 80.
    assert fleet.lead_time_hours.p50 == pytest.approx(7.0)
    assert fleet.lead_time_hours.p10 == pytest.approx(6.2)
    assert (fleet.alerts, fleet.alerts_per_failure_caught) == (3, 1.5)


def test_alert_is_not_repeated_before_expiry() -> None:
    rows: list[Row] = [
        (0, "m1", 23, NEVER, 0.9, 0.9),
        (0, "n1", 23, NEVER, 0.1, 0.1),
        (0, "m1", 47, 60, 0.9, 0.9),
        (0, "n1", 47, NEVER, 0.1, 0.1),
    ]
    for horizon, alerts in ((24, 2), (25, 1)):
        table = table_of(rows, horizon=horizon * HOUR)
        fleet = strategy_metrics(table).fleet["a"]
        assert fleet.alerts == alerts


def test_fleet_without_hits_has_no_lead_time() -> None:
    rows = [(window, gpu, end, failed, -a, -b) for window, gpu, end, failed, a, b in MORE_WINDOWS]
    report = strategy_metrics(table_of(rows))
    fleet = report.fleet["b"]
    assert (fleet.failures_caught, fleet.failures_caught_share) == (0, 0.0)
    assert fleet.lead_time_hours == LeadTime(None, None)
    assert fleet.alerts_per_failure_caught is None


def test_failure_time_is_exact_below_one_second() -> None:
    # Hours to failure are floats, so converting them back to a time is off by up to half a second.
    jitter = pd.to_timedelta(np.arange(12) * 37 + 3, unit="ms")
    end = START + pd.to_timedelta(np.arange(0, 24, 2), unit="h") + jitter
    moment = START + pd.Timedelta("25h 12min 33.5s")
    hours = (moment - end) / pd.Timedelta("1h")
    rows: list[Row] = [(0, "m1", 0, NEVER, 0.5, 0.5) for _ in end]
    within = np.where(hours <= 24, hours, NEVER)
    label = np.isfinite(within).astype("int8")
    table = table_of(rows, window_end=end, hours_to_failure=within, label=label)
    assert strategy_metrics(table).fleet["a"].failures == 1


def test_precision_by_day_counts_from_retraining() -> None:
    rows: list[Row] = [
        (0, "m1", 5, 20, 0.9, 0.1),
        (0, "m2", 5, NEVER, 0.1, 0.9),
        (0, "m1", 30, NEVER, 0.9, 0.1),
        (0, "m2", 30, NEVER, 0.1, 0.9),
        (0, "m1", 53, NEVER, 0.9, 0.1),
        (0, "m2", 53, 60, 0.1, 0.9),
        (3, "m1", 75, 80, 0.9, 0.1),
        (3, "m2", 75, NEVER, 0.1, 0.9),
    ]
    report = strategy_metrics(table_of(rows))
    assert method(report, "a").precision_by_day == [1.0, None, 0.0]
    assert method(report, "b").precision_by_day == [0.0, None, 1.0]


def test_calibration_compares_probabilities_with_all_rows() -> None:
    report = strategy_metrics(table_of(MORE_WINDOWS))
    bins = report.calibration.bins
    assert sum(one.count for one in bins) == len(MORE_WINDOWS)
    assert sum(one.positives for one in bins) == 3
    assert report.calibration.slope is not None


def test_calibration_with_one_class_has_no_slope() -> None:
    rows = [row for row in MORE_WINDOWS if row[0] == 1]
    report = strategy_metrics(table_of(rows))
    assert report.calibration.slope is None
    assert method(report, "a").precision_at_k is None
    assert method(report, "a").windows == []
    assert report.fleet["a"].average_precision is None
    assert report.fleet["a"].failures_caught_share is None


def test_equal_probabilities_have_no_slope() -> None:
    report = strategy_metrics(table_of(ONE_WINDOW, probability=0.01))
    assert report.calibration.slope is None
    assert report.calibration.bins[0].count == len(ONE_WINDOW)


def test_unknown_machines_are_resampled_by_gpu() -> None:
    table = table_of(ONE_WINDOW)
    assert table.draws.shape[1] == 2
    without = ScoreTable(table.frame.drop(columns="machine_id"), table.protocol)
    assert without.draws.shape[1] == 4


def test_progress_reports_every_method() -> None:
    heard: list[str] = []
    table = table_of(ONE_WINDOW)
    strategy_metrics(table, progress=heard.append)
    assert heard == ["a", "b", "parallel", "cascade"] == list(table.methods)


@st.composite
def tables(draw: st.DrawFn) -> ScoreTable:
    n = draw(st.integers(1, 40))
    source = np.random.default_rng(draw(st.integers(0, 2**32)))
    window = source.integers(0, 3, n)
    ends = 24 * window + source.choice([5, 21, 22, 23], n)
    failed = np.where(source.random(n) < 0.3, ends + source.integers(1, 30, n), NEVER)
    serials = source.choice(["m1", "m2", "n1", "n2", "n3"], n)
    scores = source.choice([0.1, 0.2, 0.4, 0.6, 0.9], (2, n))
    columns = (window, serials, ends, failed, *scores)
    rows = [
        (int(w), str(s), float(e), float(f), float(a), float(b))
        for w, s, e, f, a, b in zip(*columns, strict=True)
    ]
    return table_of(list(dict(zip([row[:3] for row in rows], rows, strict=True)).values()))


@settings(max_examples=40)
@given(tables())
def test_metrics_are_reproducible_from_table(table: ScoreTable) -> None:
    frame, report = table.frame, strategy_metrics(table)
    precisions, averages = [], []
    for _start, window in frame.groupby("test_window"):
        if not window["label"].any():
            continue
        keys = ["score_a", "gpu_serial", "window_end"]
        best_first = window.sort_values(keys, ascending=[False, True, True])
        k = max(1, round(0.25 * len(window)))
        precisions.append(best_first["label"][:k].mean())
        labels, scores = window["label"].to_numpy(np.int8), window["score_a"].to_numpy(float)
        averages.append(average_precision(labels, scores))
    found = report.methods["a"]
    if precisions:
        assert found.precision_at_k == pytest.approx(np.mean(precisions))
        assert found.average_precision == pytest.approx(np.mean(np.array(averages, float)))
    else:
        assert found.precision_at_k is None


@settings(max_examples=25)
@given(tables(), st.integers(0, 2**32 - 1))
def test_row_order_does_not_matter(table: ScoreTable, seed: int) -> None:
    shuffled = table.frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    others = ScoreTable(shuffled, table.protocol)
    one, two = asdict(strategy_metrics(table)), asdict(strategy_metrics(others))
    for method_name in table.methods:
        for part in ("methods", "fleet"):
            for name, value in one[part][method_name].items():
                if not name.endswith("interval"):
                    assert two[part][method_name][name] == approximately(value), name


def approximately(value: Any) -> Any:
    """Return a nested matcher that equals `value` up to rounding of floats."""
    if isinstance(value, dict):
        return {key: approximately(part) for key, part in value.items()}
    if isinstance(value, list):
        return [approximately(part) for part in value]
    return pytest.approx(value) if isinstance(value, float) else value


def test_unfitted_probabilities_are_excluded_from_calibration() -> None:
    days = pd.date_range("2025-03-01", periods=2, tz="UTC")
    frame = pd.DataFrame(
        {
            "label": np.array([1, 0, 1, 0], np.int8),
            "probability": [0.1, 0.9, 0.8, 0.2],
            "calibrated": [False, False, True, True],
            "test_window": days.repeat(2),
        }
    )
    table = ScoreTable(frame.assign(gpu_serial=list("abab")), protocol())
    found = calibration_metrics(table.judged, table.draws)
    assert sum(one.count for one in found.bins) == 2
    assert found.slope is not None
    assert found.slope > 0


def test_lists_with_unfinished_horizon_are_excluded() -> None:
    # The list of hour 24 is evaluated. No tests follow after hour 40, so the list of hour 48 is
    # excluded, and so is the failure of m1 at 60, which only that list could have predicted.
    rows: list[Row] = [
        *ONE_WINDOW,
        (1, "m1", 39, 60, 0.9, 0.9),
        (1, "n1", 39, NEVER, 0.1, 0.1),
    ]
    whole = table_of(rows, step=20 * HOUR)
    cut = replace(whole, unseen_from=int((START + pd.Timedelta("40h")).value))
    figures = [strategy_metrics(table).fleet["a"] for table in (whole, cut)]
    assert [[one.date for one in found.days] for found in figures] == [
        ["2025-03-02", "2025-03-03"], ["2025-03-02"],
    ]  # fmt: skip
    assert [found.failures for found in figures] == [2, 1]
    assert [found.failures_caught for found in figures] == [2, 1]
    assert [found.alerts for found in figures] == [2, 1]
    assert [found.lead_time_hours.p50 for found in figures] == [9.0, 6.0]


def test_failures_after_last_list_are_excluded() -> None:
    # m2 fails at 70 and is on the list of 24. The list of 48 is excluded, and so is this failure:
    # including it would bias the warning times upwards and the recall downwards.
    rows: list[Row] = [(0, "m2", 23, 70, 0.9, 0.9), (0, "n1", 23, NEVER, 0.1, 0.1)]
    hours, labels = [47.0, NEVER], np.array([1, 0], "int8")
    table = table_of(rows, hours_to_failure=hours, label=labels, horizon=48 * HOUR)
    whole = strategy_metrics(table).fleet["a"]
    assert (whole.failures, whole.failures_caught) == (1, 1)
    cut = replace(table, unseen_from=int((START + pd.Timedelta("30h")).value))
    found = strategy_metrics(cut).fleet["a"]
    assert (found.failures, found.failures_caught) == (0, 0)
    assert found.list_precision == 1.0
