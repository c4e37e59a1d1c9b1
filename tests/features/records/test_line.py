"""Records in runs say the same as records one by one, whatever they are asked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forewarn.features.records.cells import BlockCells, CellShape, RowCells
from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import States
from forewarn.features.records.keys_as_read import RunKeys
from forewarn.features.records.line import Line
from forewarn.features.records.placed_rows import PlacedRows
from forewarn.features.records.table import Records
from forewarn.features.records.timeline import lay_out

Array = npt.NDArray[Any]
N_GPUS = 4


class Rows(NamedTuple):
    """Records one by one."""

    gpu: Array
    time: Array
    order: Array
    failed: Array
    filled: Array

    @property
    def line(self) -> Line:
        return Line.of_rows(*self)

    def at(self, rows: Array) -> Rows:
        return Rows(*(column[rows] for column in self))


STRETCHES = st.lists(
    # GPU, records, step, failed, rows left out before it as read
    st.tuples(
        st.integers(0, N_GPUS - 1),
        st.integers(1, 90),
        st.sampled_from([10, 10, 10, 7, 13, 16, 40]),
        st.booleans(),
        st.integers(0, 2),
    ),
    max_size=8,
)


@st.composite
def records(draw: st.DrawFn) -> Rows:
    """Draw records that lie together as read or not, at even times or not, a few filled in."""
    columns: list[tuple[int, int, int, bool]] = []
    order, last = 0, dict.fromkeys(range(N_GPUS), 0)
    for number, length, step, failed, left_out in sorted(draw(STRETCHES), key=lambda s: s[0]):
        order += left_out
        for _ in range(length):
            last[number] += step
            columns.append((number, last[number], order, failed))
            order += 1
    table: Array = np.array(columns, dtype=np.int64).reshape(-1, 4)
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    n = len(table)
    rows: Array = table[:, 2]
    time = table[:, 1] * 10
    time = time + rng.integers(0, 9, n) if draw(st.booleans()) else time
    gpu, filled = table[:, 0].astype(np.int32), np.full(n, False)
    if draw(st.booleans()):  # those of a GPU come by time all the same
        rows = rng.permutation(n)
        rows = rows[np.lexsort((rows, gpu))]
    for row in rng.integers(0, max(n, 1), 3 if draw(st.booleans()) else 0):
        # A filled record stands for the one before and has one after it.
        inside = 0 < row < n - 1 and gpu[row - 1] == gpu[row] == gpu[row + 1]
        if inside and not filled[row - 1] and not filled[row + 1]:
            filled[row], rows[row] = True, rows[row - 1]
    return Rows(gpu, time, rows, table[:, 3] > 0, filled)


def same(line: Line, rows: Rows) -> None:
    """Check that a line holds records."""
    each = line.of_each
    keys = each(line.gpu), line.time_of_each(), line.order_of_each()
    for column, expected in zip((*keys, each(line.failed), each(line.filled)), rows, strict=True):
        assert column.tolist() == expected.tolist()


@given(records())
def test_a_line_holds_its_records(rows: Rows) -> None:
    line = rows.line
    same(line, rows)
    assert line.n == len(rows.gpu)
    assert line.last_time.tolist() == rows.time[line.start[1:] - 1].tolist()
    bounds = line.start[line.run_bounds(N_GPUS)]
    assert bounds.tolist() == np.searchsorted(rows.gpu, np.arange(N_GPUS + 1)).tolist()
    if line.n:
        assert line.extent == (rows.order.min(), rows.order.max() + 1)


def test_steady_gpus_take_a_run_each_and_others_keep_what_is_uneven() -> None:
    gpu, no = np.repeat(np.arange(3, dtype=np.int32), 100), np.full(300, False)
    steady, together = np.tile(np.arange(100) * 600, 3), np.arange(300)
    uneven = steady + np.random.default_rng(1).integers(0, 60, 300)
    scattered = np.argsort(np.argsort(steady, kind="stable"), kind="stable")
    for time, order, n_times, n_rows in (
        (steady, together, 0, 0),
        (uneven, together, 300, 0),
        (uneven, scattered, 300, 300),
    ):
        line = Line.of_rows(gpu, time, order, no, no)
        assert (len(line.gpu), len(line.times), len(line.rows)) == (3, n_times, n_rows)
    scattered = np.random.default_rng(1).permutation(300)
    line = Line.of_rows(gpu, steady, scattered, no, no)
    assert (len(line.gpu), len(line.times), len(line.rows)) == (3, 0, 300)


@given(records(), st.lists(st.integers(0, 10**6), max_size=20))
def test_records_can_be_looked_at_in_any_order(rows: Rows, numbers: list[int]) -> None:
    line = rows.line
    some = np.array(numbers, dtype=np.int64) % line.n if line.n else np.zeros(0, dtype=np.int64)
    for chosen in (some, some.reshape(1, -1)):
        assert line.gpu[line.run_at(chosen)].tolist() == rows.gpu[chosen].tolist()
        assert line.time_at(chosen).tolist() == rows.time[chosen].tolist()
        assert line.order_at(chosen).tolist() == rows.order[chosen].tolist()
        as_read, filled = line.read_at(chosen)
        assert as_read.tolist() == rows.order[chosen].tolist()
        assert filled.tolist() == rows.filled[chosen].tolist()


@given(records(), st.lists(st.integers(0, 400), max_size=20))
def test_cutting_changes_no_record_and_taking_leaves_the_rest_out(
    rows: Rows, numbers: list[int]
) -> None:
    line, chosen = rows.line, np.unique(np.array(numbers, dtype=np.int64))
    cut = line.cut(chosen)
    same(cut, rows)
    inside = chosen[chosen < line.n]
    assert set(inside.tolist()) <= set(cut.start.tolist())
    same(line.take(inside), rows.at(inside))
    same(cut.take(inside), rows.at(inside))


@given(records(), st.integers(0, 3000), st.integers(0, 5000))
def test_a_span_is_cut_out_as_its_rows_are_numbered(rows: Rows, start: int, length: int) -> None:
    whole = Records(100, ("A", "B", "C", "D"), rows.line)
    same(
        whole.line.between(start, start + length),
        rows.at(whole.rows_between(start, start + length)),
    )


@given(records(), st.lists(st.tuples(st.integers(0, N_GPUS - 1), st.integers(-5, 9000))))
def test_the_first_record_from_a_moment_on(rows: Rows, asked: list[tuple[int, int]]) -> None:
    gpu, moment = np.array(asked, dtype=np.int64).reshape(-1, 2).T
    bounds = np.searchsorted(rows.gpu, np.arange(N_GPUS + 1))
    expected = [
        bounds[g] + np.searchsorted(rows.time[bounds[g] : bounds[g + 1]], m) for g, m in asked
    ]
    assert rows.line.rows_from(gpu, moment, N_GPUS).tolist() == expected


@given(records())
def test_rows_as_read_are_found_again(rows: Rows) -> None:
    line = rows.line
    if len(line.rows):
        with pytest.raises(ValueError, match="scattered"):
            line.records_of(rows.order)
        return
    own = np.flatnonzero(~rows.filled)
    assert line.records_of(rows.order[own]).tolist() == own.tolist()
    absent = np.setdiff1d(np.arange(len(rows.gpu) + 20), rows.order)
    assert (line.records_of(absent) == -1).all()


@given(records(), st.lists(st.integers(0, 1), min_size=N_GPUS, max_size=N_GPUS))
def test_parts_are_joined_by_gpu(rows: Rows, part_of: list[int]) -> None:
    parts = [np.flatnonzero(np.array(part_of)[rows.gpu] == part) for part in (0, 1)]
    line, where = Line.joined([rows.line.take(part) for part in parts])
    same(line, rows)
    assert [numbers.tolist() for numbers in where] == [part.tolist() for part in parts]


@given(records())
def test_states_change_where_the_records_do(rows: Rows) -> None:
    gpu, time, failed = States.of_line(rows.line)
    first = np.append(True, np.diff(rows.gpu) != 0)[: len(rows.gpu)]
    changes = np.flatnonzero(first | np.append(True, np.diff(rows.failed))[: len(rows.gpu)])
    assert gpu.tolist() == rows.gpu[changes].tolist()
    assert time.tolist() == rows.time[changes].tolist()
    assert failed.tolist() == rows.failed[changes].tolist()


@given(records(), st.integers(1, 9), st.integers(1, 9), st.lists(st.integers(0, 5000), max_size=4))
def test_instances_end_where_they_are_due(
    rows: Rows, length: int, step: int, moments: list[int]
) -> None:
    failures = np.array([(m % N_GPUS, m, m + 300) for m in moments], dtype=np.int64).reshape(-1, 3)
    gpu, failed_at, repaired_at = failures[np.lexsort(failures.T[1::-1])].T
    known = Failures.of_spans(gpu.astype(np.int32), failed_at, repaired_at, failed_at)
    timeline = lay_out(Records(100, ("A", "B", "C", "D"), rows.line), known)
    position, alive = timeline.position, timeline.alive
    due = alive & (position >= length - 1) & ((position - length + 1) % step == 0)
    late = np.append(False, (due & rows.filled)[:-1]) & (position >= length)
    expected = np.flatnonzero((due & ~rows.filled) | late[: len(due)])
    assert timeline.ends(length, step).row.tolist() == expected.tolist()
    since = int(np.median(rows.time)) if len(rows.time) else 0
    late_ones = expected[rows.time[expected] >= since]
    row, owner, time = timeline.ends(length, step, since)
    assert row.tolist() == late_ones.tolist()
    assert owner.tolist() == rows.gpu[late_ones].tolist()
    assert time.tolist() == rows.time[late_ones].tolist()


@given(records(), st.integers(0, 30), st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_keys_as_read_are_those_of_the_line(rows: Rows, more: int, part: tuple[int, int]) -> None:
    n_rows = int(rows.order.max(initial=-1)) + 1 + more
    gpu = np.full(n_rows, -1)
    gpu[rows.order] = rows.gpu
    assume(not len(rows.line.rows))
    keys = RunKeys.of(rows.line, n_rows, N_GPUS, {1: np.array([2, 0, 1])}).moved(np.copy)
    order = keys.order_in(1)
    assert order is not None
    assert (order.tolist(), keys.order_in(0)) == ([2, 0, 1], None)
    some = slice(min(part), max(part))
    some = slice(min(some.start, n_rows), min(some.stop, n_rows))
    for asked in (slice(0, n_rows), some):
        assert keys.gpu_of(asked).tolist() == gpu[asked].tolist()
        assert keys.counted_of(asked).tolist() == (gpu[asked] >= 0).tolist()
    begin, owner, _ = keys.stretches
    assert np.repeat(owner, np.diff(np.append(begin, n_rows))).tolist() == gpu.tolist()


@given(records(), st.booleans())
def test_rows_lie_in_the_cell_of_their_hour(rows: Rows, gpu_after_gpu: bool) -> None:
    last = int(rows.time.max(initial=0))
    shape = CellShape(N_GPUS, last // 600 + 2, 600, 0, gpu_after_gpu)
    cells, first_row, row_count, _ = PlacedRows.of(rows.line, shape)
    assert isinstance(cells, RowCells if len(rows.line.rows) else BlockCells)
    counts = ~rows.filled & ~rows.failed
    steps = shape.steps
    cell = rows.gpu * steps[0] + rows.time // 600 * steps[1]
    assert cells.at(rows.order[counts]).tolist() == cell[counts].tolist()
    expected = np.zeros(shape[:2], dtype=int)
    np.add.at(expected, (rows.gpu[counts], rows.time[counts] // 600), 1)
    assert row_count.tolist() == expected.tolist()
    for row in np.flatnonzero(counts)[::-1]:  # the first one is what stays
        expected[rows.gpu[row], rows.time[row] // 600] = rows.order[row]
    assert first_row.tolist() == np.where(row_count > 0, expected, -1).tolist()
    others = np.setdiff1d(np.arange(cells.low, cells.high), rows.order[counts])
    assert (cells.at(others) == -1).all()
