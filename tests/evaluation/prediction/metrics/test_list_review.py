from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.evaluation.prediction.metrics.list_review import (
    ReviewedLists,
    match_failures,
    review_metrics,
)
from forewarn.features.records.out_of_service import OutOfServiceSpan
from forewarn.features.time_units import Nanoseconds

START = pd.Timestamp("2025-03-01", tz="UTC")
HORIZON = pd.Timedelta("24h")
Listed = tuple[str, float, bool]
Failed = tuple[str, float]


def at(hour: float) -> pd.Timestamp:
    return START + pd.Timedelta(hour * 3600, unit="s")


def lists_of(rows: Sequence[Listed], **columns: Any) -> pd.DataFrame:
    """Return rows of lists: serial, end of the window in hours, whether flagged."""
    ends = pd.DatetimeIndex([at(end) for _, end, _ in rows], tz="UTC").as_unit("ns")
    frame = pd.DataFrame(
        {
            "gpu_serial": pd.Series([serial for serial, _, _ in rows], dtype=object),
            "window_end": ends,
            "valid_until": ends + HORIZON,
            "flagged": np.array([flagged for _, _, flagged in rows], dtype=bool),
        }
    )
    return frame.assign(**columns)


def failures_of(rows: Sequence[Failed]) -> pd.DataFrame:
    moments = pd.DatetimeIndex([at(hour) for _, hour in rows], tz="UTC").as_unit("ns")
    serials = pd.Series([serial for serial, _ in rows], dtype=object)
    return pd.DataFrame({"gpu_serial": serials, "failed_at": moments})


def judged(
    rows: Sequence[Listed], failed: Sequence[Failed], until: float = 1_000, **more: Any
) -> ReviewedLists:
    return match_failures(lists_of(rows, **more), failures_of(failed), at(until))


LISTED = [("A", 0, True), ("B", 0, True), ("C", 0, False), ("A", 24, True), ("C", 24, True)]
FAILED = [("A", 30), ("C", 10), ("D", 20)]


def test_hits_misses_and_false_alarms_by_hand() -> None:
    found = judged(LISTED, FAILED)
    # A fails 30 hours after the row at 0 (beyond the horizon) and 6 hours after the row at 24. C
    # failed before its second list.
    assert found.rows["hit"].tolist() == [False, False, True, True, False]
    hours = found.rows["hours_to_failure"]
    assert hours[found.rows["hit"]].tolist() == [10.0, 6.0]
    assert found.failures["gpu_serial"].tolist() == ["C", "D", "A"]
    assert found.failures["caught"].tolist() == [False, False, True]
    figures = review_metrics(found)
    assert (figures["flagged"], figures["hits"], figures["false_alarms"]) == (4, 1, 3)
    assert (figures["failures"], figures["caught"], figures["missed"]) == (3, 1, 2)
    assert figures["precision"] == 0.25
    assert figures["recall"] == pytest.approx(1 / 3)
    assert figures["random_precision"] == pytest.approx(2 / 5)
    assert figures["lead_time_hours"] == {"p10": 6.0, "p50": 6.0}


def test_horizon_excludes_start_and_includes_end() -> None:
    found = judged([("A", 0, True), ("B", 0, True), ("C", 0, True)], [("A", 0), ("B", 24)])
    assert found.rows["hit"].tolist() == [False, True, False]
    late = judged([("A", 0, True), ("B", 0, True)], [("A", 24.001)])
    assert not late.rows["hit"].any()


def test_rows_with_unfinished_horizon_are_excluded() -> None:
    found = judged(LISTED, FAILED, until=24)
    assert found.rows["window_end"].unique().tolist() == [at(0)]
    assert found.not_over == 2
    # A fails at 30, after the horizons that have ended.
    assert found.failures["gpu_serial"].tolist() == ["C", "D"]
    assert review_metrics(found)["rows_not_over_yet"] == 2


def test_failures_of_unfinished_rows_are_not_missed() -> None:
    # The row of A at 10 has no known outcome before 34, so at 30 the prediction of A is not
    # evaluated.
    rows = [("A", 0, False), ("A", 10, True), ("B", 2, False)]
    open_yet = review_metrics(judged(rows, [("A", 20)], until=30))
    assert (open_yet["failures"], open_yet["missed"]) == (0, 0)
    over = review_metrics(judged(rows, [("A", 20)], until=34))
    assert (over["failures"], over["caught"], over["missed"]) == (1, 1, 0)


def test_no_finished_rows() -> None:
    figures = review_metrics(judged(LISTED, FAILED, until=23))
    assert (figures["rows"], figures["flagged"], figures["failures"]) == (0, 0, 0)
    assert figures["rows_not_over_yet"] == 5
    for name in ("precision", "precision_interval", "random_precision", "recall", "expected_hits"):
        assert figures[name] is None


def test_no_failures() -> None:
    figures = review_metrics(judged(LISTED, []))
    assert (figures["hits"], figures["failures"], figures["recall"]) == (0, 0, None)
    assert figures["precision"] == 0.0
    assert figures["lead_time_hours"] == {"p10": None, "p50": None}


def test_duplicate_failures_count_once() -> None:
    figures = review_metrics(judged([("A", 0, True)], [("A", 5), ("A", 5)]))
    assert (figures["failures"], figures["caught"]) == (1, 1)


def test_failure_flagged_twice_is_caught_once() -> None:
    figures = review_metrics(judged([("A", 0, True), ("A", 12, True)], [("A", 20)]))
    assert (figures["hits"], figures["caught"], figures["missed"]) == (2, 1, 0)
    assert figures["lead_time_hours"]["p50"] == pytest.approx(14.0)


def test_row_matches_next_failure_only() -> None:
    found = judged([("A", 0, True)], [("A", 5), ("A", 20)])
    assert found.rows["hours_to_failure"].tolist() == [5.0]
    assert found.failures["caught"].tolist() == [True, False]


@pytest.mark.parametrize("second", [0.0, 0.25, 0.5, 0.999])
def test_subsecond_failure_times_match(second: float) -> None:
    for i in range(12):
        failed = 5 + (i * 617 + second) / 3600
        found = judged([("A", 0.1, True)], [("A", failed)])
        assert found.rows["hit"].all()
        assert found.failures["caught"].all()


def test_expected_hits_sum_flagged_probabilities() -> None:
    probability = [0.5, 0.25, 0.9, 0.125, 0.125]
    figures = review_metrics(judged(LISTED, FAILED, probability=probability))
    assert figures["expected_hits"] == pytest.approx(1.0)
    missing = review_metrics(judged(LISTED, FAILED, probability=[None] * 5))
    assert missing["expected_hits"] is None


def test_interval_resamples_machines() -> None:
    rows = [(f"S{i}", 0.0, True) for i in range(8)]
    failed = [(f"S{i}", 5.0) for i in range(4)]
    alone = review_metrics(judged(rows, failed))["precision_interval"]
    one = review_metrics(judged(rows, failed, machine_id="m"))["precision_interval"]
    two = review_metrics(judged(rows, failed, machine_id=[*"mmmm", *"nnnn"]))
    assert one == (0.5, 0.5)
    assert two["precision_interval"] == (0.0, 1.0)
    assert alone is not None
    assert 0.0 < alone[0] < 0.5 < alone[1] < 1.0
    again = review_metrics(judged(rows, failed), seed=0)["precision_interval"]
    assert again == alone


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 90), st.booleans()), max_size=15),
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 99)), max_size=6, unique=True),
    st.integers(0, 120),
)
def test_matches_brute_force(
    rows: list[tuple[str, int, bool]], failed: list[tuple[str, int]], until: int
) -> None:
    found = judged(rows, failed, until=until)
    over = [(serial, end, flagged) for serial, end, flagged in rows if end + 24 <= until]
    ahead = [
        min((f for name, f in failed if name == serial and end < f <= end + 24), default=None)
        for serial, end, _ in over
    ]
    assert found.not_over == len(rows) - len(over)
    assert found.rows["hit"].tolist() == [one is not None for one in ahead]
    foreseen = {
        (serial, f) for (serial, _, flagged), f in zip(over, ahead, strict=True) if flagged and f
    }
    if over:
        first, last = min(end for _, end, _ in over), max(end for _, end, _ in over) + 24
        still = [(serial, end) for serial, end, _ in rows if end + 24 > until]
        covered = sorted(
            (f, name)
            for name, f in failed
            if first < f <= last and not any(name == s and end < f for s, end in still)
        )
        assert found.failures["gpu_serial"].tolist() == [name for _, name in covered]
        assert found.failures["caught"].tolist() == [(name, f) in foreseen for f, name in covered]
    else:
        assert len(found.failures) == 0


def test_out_of_service_gpus_are_excluded() -> None:
    def absent(machine: str, serial: str | None, start: float, end: float) -> OutOfServiceSpan:
        moments = (Nanoseconds(at(hour).value) for hour in (start, end))
        return OutOfServiceSpan(machine, serial, *moments)

    absences = [
        absent("m-A", None, 23, 24),  # A at 0 (to 24); an end at 24 does not overlap A at 24
        absent("m-C", None, 5, 40),  # C at 0 failed nevertheless; C at 24 did not
        absent("m-B", "Z", 0, 100),  # a neighbour of B
    ]
    machines = {"machine_id": [f"m-{serial}" for serial, _, _ in LISTED]}
    lists, failures = lists_of(LISTED, **machines), failures_of(FAILED)
    found = match_failures(lists, failures, at(1_000), absences)
    assert list(zip(found.rows["gpu_serial"], found.rows["hit"], strict=True)) == [
        ("B", False),
        ("C", True),
        ("A", True),
    ]
    assert found.unknown == 2
    assert review_metrics(found)["rows_unknown"] == 2
    assert review_metrics(found)["false_alarms"] == 1


@pytest.mark.parametrize("machines", [[None, None], ["m1", None], [None, "m1"]])
def test_gpus_without_machine_are_resampled_individually(machines: list[str | None]) -> None:
    rows: list[Listed] = [("A", 0.0, True), ("B", 0.0, True)]
    without = review_metrics(judged(rows, [("A", 5.0)], machine_id=["a", "b"]))
    machine = pd.Series(machines, dtype="str")
    figures = review_metrics(judged(rows, [("A", 5.0)], machine_id=machine))
    assert figures["precision_interval"] == without["precision_interval"] == (0.0, 1.0)
