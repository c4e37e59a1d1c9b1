from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.prediction.hourly_residuals import hourly_means
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_slices import assign_slices
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.hourly_sums import HourlyGrid, HourlySums, Transform, bucket_length
from forewarn.features.records.lookback_windows import LookbackWindows
from forewarn.features.records.record_table import HOUR, FeatureKinds, Records
from forewarn.features.time_units import MINUTE, Nanoseconds

Make = Callable[..., Records]
Row = dict[str, Any]
Rows = Callable[..., list[Row]]
Minutes = Callable[..., list[float]]
Fail = Callable[..., Failures]

KINDS = FeatureKinds(float=("value",), counter=("count",), code=("xid",))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [(1, 60), (10, 60), (7, 63), (45, 90), (60, 60), (90, 90), (1440, 1440)],
)
def test_bucket_covers_an_hour_with_whole_intervals(interval: int, expected: int) -> None:
    assert bucket_length(interval * MINUTE) == expected * MINUTE


@pytest.fixture(scope="module")
def grid(assembled: Make, rows: Rows) -> HourlyGrid:
    # A: two records in hour 0, none in hour 1, one in hour 2. B: one in hour 2.
    records = assembled(
        rows("A", [0, 50, 125], value=[1.0, 2.0, None], xid=[0, 13, 79], slot=[1, 2, 3])
        + rows("B", [130], value=7.0, xid=0, slot=2)
        + rows("Z", range(-60, 180, 10), value=0.0, xid=0, slot=None),
        kinds=FeatureKinds(float=("value",), code=("xid",)),
        texts=("slot",),
    )
    return HourlyGrid.from_records(records, (records.gpu < 2) & ~records.filled)


def sums_of(grid: HourlyGrid, name: str, work: Transform | None = None) -> HourlySums:
    """Return the sums of a column of the grid's records."""
    return grid.sums(grid.records.values(name), work)


def test_rows_belong_to_hour_of_their_end(grid: HourlyGrid) -> None:
    sums = sums_of(grid, "value")
    assert sums.total[:, :3].tolist() == [[3.0, 0.0, 0.0], [0.0, 0.0, 7.0], [0.0] * 3]
    assert sums.count[:, :3].tolist() == [[2, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert sums.squares is not None
    assert sums.squares[:2, :3].tolist() == [[5.0, 0, 0], [0, 0, 49.0]]


def test_means_of_empty_hours_are_missing(grid: HourlyGrid) -> None:
    means = hourly_means(sums_of(grid, "value"))
    assert means[0, 0] == 1.5
    assert math.isnan(means[0, 1])
    assert math.isnan(means[0, 2])


def test_transformed_values_are_summed(grid: HourlyGrid) -> None:
    counts = sums_of(grid, "xid", lambda codes: np.asarray(codes != 0, dtype=np.float32))
    assert counts.total[:2, :3].tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert counts.count is grid.row_count


def test_channels_are_summed_independently(day: HourlyGrid) -> None:
    expected = sums_of(day, "value")
    lost = sums_of(day, "value", lambda values: np.full_like(values, np.nan))
    assert not lost.total.any()
    assert not lost.count.any()
    assert sums_of(day, "value", np.zeros_like).count is day.row_count
    again = sums_of(day, "value")
    for name in ("total", "squares", "count"):
        assert getattr(again, name).tobytes() == getattr(expected, name).tobytes()


def test_cell_has_text_of_first_row(grid: HourlyGrid) -> None:
    assert grid.records.texts["slot"].texts == ("1", "2", "3")
    groups = grid.groups("slot")
    assert groups.home.tolist() == [-1, 1, -1]
    # A is in slot 1 in hour 0 and then in another slot; hour 1 has no row.
    assert groups.line.tolist() == [0, -1, -1]
    assert groups.group[:, :3].tolist() == [[0, -2, 2]]
    hours = grid.shape[1]
    assert groups.at(np.array([0, 2, hours + 2])).tolist() == [0, 2, 1]


def test_group_cells_are_summed_by_hour(grid: HourlyGrid) -> None:
    hourly = np.array([[1.0, 0.0, 4.0, 0.0], [0.0, 0.0, 32.0, 0.0], [0.0] * 4])
    # Slot 1 is A in hour 0; slot 2 is B in hour 2, slot 3 is A in hour 2.
    groups = grid.groups("slot")
    added = np.zeros((groups.number, 4))
    groups.add(hourly, added)
    assert added.tolist() == [[1.0, 0, 0, 0], [0, 0, 32.0, 0], [0, 0, 4.0, 0]]


def test_group_sums_are_independent_of_slices(assembled: Make, rows: Rows) -> None:
    serials = [f"GPU-{number}" for number in range(1, 6)]
    files = [rows(serial, [0, 10], slot="1") for serial in serials]
    records = assembled([row for file in files for row in file], texts=["slot"])
    groups = build_timeline(records, Failures.empty()).grid.groups("slot")
    by_slice = np.argsort(assign_slices(serials), kind="stable")
    assert by_slice[-1] != 4
    hourly, added = np.zeros((5, groups.group.shape[1])), np.zeros((1, groups.group.shape[1]))
    hourly[by_slice, 0] = [1e16, 0.0, -1e16, 0.0, 1.0]  # another order loses the 1
    groups.add(hourly, added)
    assert added[0, 0] == 1.0
    assert np.cumsum(hourly[:, 0])[-1] == 0.0


def test_last_event_hour_before_each_instance() -> None:
    counted = np.array([[1.0, 0.0, 2.0, 0.0], [0.0] * 4])
    line, ends = np.array([0, 1, 0, 0, 0]), np.array([3, 4, 0, 2, 4])
    edges = np.stack([np.zeros((1, 5), dtype=np.int64)] * 2 + [ends[None]])
    spans = LookbackWindows(
        line, np.argsort(line, kind="stable"), edges, np.ones((1, 5), dtype=bool)
    )
    assert spans.last(counted).tolist() == [2, -1, -1, 0, 2]


def test_means_have_one_reading_per_hour() -> None:
    sums = HourlySums.from_means(np.array([[2.0, np.nan, -3.0]]))
    assert sums.total.tolist() == [[2.0, 0.0, -3.0]]
    assert sums.squares is not None
    assert sums.squares.tolist() == [[4.0, 0.0, 9.0]]
    assert sums.count.tolist() == [[1, 0, 1]]


@pytest.fixture(scope="module")
def day(assembled: Make, rows: Rows) -> HourlyGrid:
    listed = rows("A", range(0, 24 * 60, 10), value=[float(i) for i in range(144)])
    records = assembled(listed, kinds=FeatureKinds(float=("value",)))
    return HourlyGrid.from_records(records, ~records.filled)


@pytest.mark.parametrize(
    ("end", "born", "hours", "expected"),
    [
        (600, 0, 4, (6, 10, True)),  # at the full hour: the hours 6 to 9 are complete
        (650, 0, 4, (6, 10, True)),
        (599, 0, 4, (5, 9, True)),
        (600, 0, 10, (0, 10, True)),
        (600, 0, 11, (0, 10, False)),  # the history is shorter
        (600, 1, 10, (1, 10, False)),  # hour 0 is incomplete
        (600, 360, 4, (6, 10, True)),
        (600, 361, 4, (7, 10, False)),
        (600, 590, 4, (10, 10, False)),
    ],
)
def test_windows_sum_complete_hours_since_repair(
    end: float,
    born: float,
    hours: int,
    expected: tuple[int, int, bool],
    day: HourlyGrid,
    at: Callable[[float], int],
) -> None:
    moment, life = np.array([at(end)]), np.array([at(born)])
    spans = day.spans(np.zeros(1, dtype=np.int32), moment, life, [Nanoseconds(hours * HOUR)])
    start, _, stop = spans.edges[:, 0, 0].tolist()
    assert (start, stop, bool(spans.known[0, 0])) == expected


def test_windows_are_summed_in_halves(day: HourlyGrid, at: Callable[[float], int]) -> None:
    ends = np.array([at(300), at(720)])
    spans = day.spans(
        np.zeros(2, dtype=np.int32), ends, np.full(2, at(0)), [Nanoseconds(3 * HOUR), HOUR]
    )
    hourly = np.arange(float(day.row_count.size)).reshape(day.shape)
    assert spans.sums(hourly).tolist() == [[2.0 + 3 + 4, 9.0 + 10 + 11], [4.0, 11.0]]
    earlier, later = spans.halves(hourly)
    assert earlier.tolist() == [[2.0, 9.0], [0.0, 0.0]]
    assert later.tolist() == [[3.0 + 4, 10.0 + 11], [4.0, 11.0]]


def test_integers_are_summed_like_floats(day: HourlyGrid, at: Callable[[float], int]) -> None:
    ends = np.array([at(720), at(300)])
    spans = day.spans(
        np.zeros(2, dtype=np.int32), ends, np.full(2, at(0)), [Nanoseconds(5 * HOUR), HOUR]
    )
    counts = np.arange(day.row_count.size, dtype=np.int32).reshape(day.shape)
    assert spans.halves(counts).tolist() == spans.halves(counts.astype(np.float64)).tolist()


def test_short_window_is_one_hour(day: HourlyGrid, at: Callable[[float], int]) -> None:
    spans = day.spans(np.zeros(1, dtype=np.int32), np.array([at(305)]), np.array([at(0)]), [MINUTE])
    assert spans.edges[:, 0, 0].tolist() == [4, 4, 5]


def test_life_before_first_row_hides_no_rows(assembled: Make, rows: Rows) -> None:
    listed = rows("A", range(0, 60, 10), count=[0, 1, 3, 6, 10, 15])
    records = assembled(listed, kinds=FeatureKinds(counter=("count",)))
    restarted = replace(records, counter_restarts=np.array([0, 1]))
    counts = sums_of(HourlyGrid.from_records(restarted, np.arange(6) >= 2), "count", np.positive)
    assert (counts.total.sum(), counts.count.sum()) == (2 + 3 + 4 + 5, 4)


def test_uncounted_rows_give_empty_grid(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10], value=1.0), kinds=FeatureKinds(float=("value",)))
    grid = HourlyGrid.from_records(records, np.zeros(2, dtype=bool))
    sums = sums_of(grid, "value")
    assert sums.total.sum() == sums.count.sum() == 0


# --- brute force -------------------------------------------------------------------------------


def _fleet(source: random.Random, rows: Rows) -> list[Row]:
    """Return shuffled rows of three GPUs with gaps, duplicates, nulls and failed records."""
    listed: list[Row] = []
    for serial in "ABC":
        for i in range(source.randrange(40)):
            if source.random() < 0.1:
                continue
            for _ in range(source.choice([1, 1, 1, 2])):
                listed += rows(
                    serial,
                    [10 * i],
                    value=source.choice([None, float(source.randrange(-50, 50))]),
                    count=source.choice([None, *range(5)]),
                    xid=source.choice([None, 0, 0, 13, 79]),
                    failure=int(source.random() < 0.1),
                )
    source.shuffle(listed)
    return listed + rows("Z", range(0, 400, 10), value=1.0, count=1, xid=0, failure=0)


def _brute_cell(records: Records, mine: list[int], name: str) -> tuple[float, float]:
    """Return sum and number of the readings of some rows, added in sequence."""
    readings = [float(records.numbers(name, np.array([row]))[0]) for row in mine]
    there = [value for value in readings if not math.isnan(value)]
    return sum(there), len(there)


def _compare_with_brute_force(
    timeline: Timeline, counted: list[int], name: str, sums: HourlySums
) -> None:
    records = timeline.records
    for gpu in range(len(records.serials)):
        for hour in range(timeline.grid.shape[1]):
            number = timeline.grid.first + hour
            cell = [
                r for r in counted if records.gpu[r] == gpu and records.time[r] // HOUR == number
            ]
            total, count = _brute_cell(records, cell, name)
            assert (sums.total[gpu, hour], sums.count[gpu, hour]) == (total, count)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 400), st.integers(0, 400))
def test_sums_match_reference_loop(
    assembled: Make,
    rows: Rows,
    at: Callable[[float], int],
    seed: int,
    first: int,
    failed: int,
) -> None:
    records = assembled(_fleet(random.Random(seed), rows), kinds=KINDS)
    records = records.between(at(min(first, 350)), at(10_000))
    gone = Failures.from_records(records).joined(
        Failures.from_spans(
            np.zeros(1, dtype=np.int32),
            np.array([at(failed)]),
            np.array([at(failed + 60)]),
            np.array([at(failed)]),
        )
    )
    timeline = build_timeline(records, gone)
    counted = [r for r in range(len(records)) if timeline.alive[r] and not records.filled[r]]
    grid = timeline.grid
    _compare_with_brute_force(timeline, counted, "value", sums_of(grid, "value"))
    for name in ("count", "xid"):
        _compare_with_brute_force(timeline, counted, name, sums_of(grid, name, np.positive))


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1e5, width=32), min_size=12, max_size=12), st.permutations(range(12)))
def test_sums_are_independent_of_row_order(
    assembled: Make, rows: Rows, values: list[float], order: list[int]
) -> None:
    kinds = FeatureKinds(float=("value",))
    listed = rows("A", range(0, 120, 10), value=values)
    sums = []
    for found in (listed, [listed[i] for i in order]):
        timeline = build_timeline(assembled(found, kinds=kinds), Failures.empty())
        added = sums_of(timeline.grid, "value")
        assert added.squares is not None
        sums.append((added.total.tobytes(), added.squares.tobytes()))
    assert sums[0] == sums[1]


@given(st.lists(st.floats(1, 1e3, width=32), min_size=30, max_size=60), st.integers(0, 20))
def test_window_sum_is_independent_of_row_start(values: list[float], left: int) -> None:
    def of(hours: list[float], start: int) -> list[float]:
        edges = np.array([[[start]], [[start + 4]], [[start + 9]]])
        line = np.zeros(1, dtype=np.int64)
        spans = LookbackWindows(line, line, edges, np.ones((1, 1), dtype=bool))
        squares = np.array([hours], dtype=np.float64) ** 2 / 3
        return [*spans.halves(squares).ravel().tolist(), *spans.sums(squares).ravel().tolist()]

    assert of(values, 20) == of(values[left:], 20 - left)
