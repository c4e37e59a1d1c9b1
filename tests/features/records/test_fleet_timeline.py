from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import FeatureKinds, Records

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, Any]]]
Minutes = Callable[..., list[float]]
Fail = Callable[..., Failures]

COUNT = FeatureKinds(counter=("count",))


def _alive(timeline: Timeline) -> list[int]:
    return [int(alive) for alive in timeline.alive]


def test_an_unbroken_series_counts_its_records(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 20]) + rows("B", [0, 10, 20, 30]))
    timeline = build_timeline(records, Failures.empty())
    assert timeline.position.tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert timeline.alive.all()
    assert timeline.bounds.tolist() == [0, 3, 7]


def test_only_longer_gaps_break_a_series(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 30, 40, 70, 80]) + rows("B", [0, 10, 20]))
    timeline = build_timeline(records, Failures.empty())
    assert timeline.position.tolist() == [0, 1, 2, 3, 4, 0, 1, 0, 1, 2]


def test_small_jitter_does_not_break_series(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 14, 20, 26, 40]))
    assert build_timeline(records, Failures.empty()).position.tolist() == [0, 1, 2, 3, 4]


def test_failed_gpu_is_not_alive_until_repair(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", range(0, 70, 10)) + rows("B", [0, 10]))
    timeline = build_timeline(records, failures(records, ("A", 20, 40)))
    assert _alive(timeline) == [1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert timeline.position.tolist() == [0, 1, 0, 0, 0, 1, 2, 0, 1]


def test_failures_of_both_sources_break_series(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", range(0, 70, 10), failure=[0, 0, 0, 1, 1, 0, 0]))
    tickets = failures(records, ("A", 18, 41))
    timeline = build_timeline(records, Failures.from_records(records).joined(tickets))
    assert len(timeline.failures) == 1
    assert _alive(timeline) == [1, 1, 0, 0, 0, 1, 1]


def test_failure_between_records_breaks_series(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", range(0, 50, 10)))
    timeline = build_timeline(records, failures(records, ("A", 23, 27)))
    assert timeline.alive.all()
    assert timeline.position.tolist() == [0, 1, 2, 0, 1]


def test_a_failure_without_repair_lasts(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", range(0, 50, 10)))
    assert _alive(build_timeline(records, failures(records, ("A", 25)))) == [1, 1, 1, 0, 0]


def test_failure_before_the_records_counts(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(rows("A", range(0, 50, 10)))
    assert _alive(build_timeline(records, failures(records, ("A", -300, 15)))) == [0, 0, 1, 1, 1]


def test_life_starts_at_first_record_or_repair(
    assembled: Make, rows: Rows, failures: Fail, minutes: Minutes
) -> None:
    records = assembled(rows("A", range(0, 90, 10)) + rows("B", [20, 30]))
    timeline = build_timeline(records, failures(records, ("A", 20, 35), ("A", 50, 70)))
    life = minutes(timeline.life_start(np.arange(len(records))))
    assert [life[row] for row in (0, 1)] == [0, 0]
    assert life[4] == 35
    assert life[7:] == [70, 70, 20, 20]


def test_life_never_starts_before_the_records(
    assembled: Make, rows: Rows, failures: Fail, minutes: Minutes
) -> None:
    # With only the last days, the timeline must not start the life at an earlier repair.
    records = assembled(rows("A", [50, 60, 70]) + rows("B", range(0, 80, 10)))
    timeline = build_timeline(records, failures(records, ("A", -900, -800)))
    assert minutes(timeline.life_start(np.arange(3))) == [50, 50, 50]


def test_first_increase_after_repair_is_missing(
    assembled: Make, rows: Rows, failures: Fail
) -> None:
    records = assembled(
        rows("A", range(0, 60, 10), count=[1, 2, 4, 8, 16, 32]) + rows("B", [0, 10], count=[1, 3]),
        kinds=COUNT,
    )
    timeline = build_timeline(records, failures(records, ("A", 20, 40)))
    gained = timeline.records.numbers("count", np.arange(8)).tolist()
    assert math.isnan(gained[4])
    assert (gained[1], gained[5], gained[7]) == (1.0, 16.0, 2.0)
    assert records.numbers("count", np.arange(8))[4] == 8.0  # the records themselves are unchanged


def test_failure_affects_only_its_gpu(
    assembled: Make, rows: Rows, failures: Fail, at: Callable[[float], int]
) -> None:
    # A disappears; its ticket is after its last record and before the first record of B.
    listed = rows("A", [0, 10, 20], count=1) + rows("B", range(0, 60, 10), count=[0, 1, 3, 6, 9, 9])
    records = assembled(listed, kinds=COUNT).between(at(10), at(60))
    healthy = build_timeline(records, Failures.empty())
    timeline = build_timeline(records, failures(records, ("A", 40)))
    mine = np.arange(2, 7)
    assert timeline.records.numbers("count", mine).tolist() == [1.0, 2.0, 3.0, 3.0, 0.0]
    for name in ("alive", "position"):
        assert np.array_equal(getattr(timeline, name)[mine], getattr(healthy, name)[mine])
    assert np.array_equal(timeline.life_start(mine), healthy.life_start(mine))


def test_hours_count_only_valid_rows(assembled: Make, rows: Rows, failures: Fail) -> None:
    records = assembled(
        rows("A", [0, 10, 30, 40, 50], value=[1.0, 2.0, 4.0, 8.0, 16.0])
        + rows("B", [0, 10, 20], value=0.0),
        kinds=FeatureKinds(float=("value",)),
    )
    timeline = build_timeline(records, failures(records, ("A", 50)))
    sums = timeline.grid.sums(records.values("value"))
    assert sums.total[0, 0] == 15.0
    assert sums.count[0, 0] == 4


def test_no_records_give_empty_timeline(
    assembled: Make, rows: Rows, failures: Fail, at: Callable[[float], int]
) -> None:
    records = assembled(rows("A", [0, 10]))
    empty = records.between(at(500), at(600))
    timeline = build_timeline(empty, failures(records, ("A", 10)))
    assert len(timeline.alive) == len(timeline.position) == 0
    assert len(timeline.life_start(np.zeros(0, dtype=np.int64))) == 0
    assert timeline.grid.shape[0] == 1
