from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.cell_sums import (
    CellSums,
    CellWindow,
    FewPlaces,
    add_blocks_up,
    add_up,
)
from forewarn.features.records.key_runs import changes_of

Floats = npt.NDArray[np.float64]

VALUES = st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e7, 16777213.0, 1e-3, np.nan])
LENGTHS = st.one_of(st.integers(1, 5), st.integers(30, 70))
RUNS = st.lists(st.tuples(VALUES, LENGTHS), min_size=1, max_size=12)
N_GPUS, N_HOURS = 2, 4
# Hours 1 and 2 alone are in memory.
WINDOW = CellWindow(N_GPUS, N_HOURS, True, first=1, width=2)
CELLS = st.lists(st.tuples(st.sampled_from([-1, 1, 2, 5, 6]), LENGTHS), min_size=1, max_size=12)
LEVELS = st.booleans()


def sums_of(window: CellWindow, *, levels: bool) -> CellSums:
    """Return sums of nothing yet."""
    n = window.n_gpus * window.width
    counts, lost = FewPlaces.of(0 if levels else n, np.float64), FewPlaces.of(n, np.int32)
    return CellSums(window, np.zeros((2, n if levels else 0)), counts, lost)


@dataclass(frozen=True)
class Plain:
    """The same, one row after another."""

    total: Floats
    squares: Floats
    lost: Floats

    @classmethod
    def of(cls, rows: npt.NDArray[np.float32], cell: npt.NDArray[np.int64]) -> Plain:
        plain = cls(*(np.zeros((N_GPUS, N_HOURS)) for _ in range(3)))
        for value, number in zip(rows.astype(np.float64), cell.tolist(), strict=True):
            if number < 0:
                continue
            hour = divmod(number, N_HOURS)
            if np.isnan(value):
                plain.lost[hour] += 1
            else:
                plain.total[hour] += value
                plain.squares[hour] += value * value
        return plain


def assert_same(sums: CellSums, plain: Plain) -> None:
    """Compare to the last bit what is in the window."""
    window = slice(sums.window.first, sums.window.first + sums.window.width)
    lost = np.zeros(N_GPUS * sums.window.width)
    places, n_lost = sums.lost.noted()
    lost[places] = n_lost
    assert lost.tolist() == plain.lost[:, window].ravel().tolist()
    if sums.levels.size:
        assert sums.levels[0].tobytes() == plain.total[:, window].tobytes()
        assert sums.levels[1].tobytes() == plain.squares[:, window].tobytes()
        return
    places, value = sums.counts.noted()
    counted = plain.total[:, window].ravel()
    assert places.tolist() == np.flatnonzero(counted).tolist()
    assert value.tobytes() == counted[places].tobytes()
    assert not sums.counts.value.any()


def rows_and_cells(
    runs: list[tuple[float, int]], cells: list[tuple[int, int]]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    cell = np.repeat([c[0] for c in cells], [c[1] for c in cells]).astype(np.int64)
    values = np.repeat([r[0] for r in runs], [r[1] for r in runs]).astype(np.float32)
    return np.resize(values, len(cell)), cell


@given(RUNS, CELLS, LEVELS)
def test_rows_and_blocks_add_up_to_the_bits_of_a_plain_loop(
    runs: list[tuple[float, int]], cells: list[tuple[int, int]], levels: bool
) -> None:
    rows, cell = rows_and_cells(runs, cells)
    plain = Plain.of(rows, cell)
    by_row, by_block = (sums_of(WINDOW, levels=levels) for _ in range(2))
    add_up(rows, cell, by_row)
    assert_same(by_row, plain)
    begin = np.flatnonzero(changes_of([cell]))
    add_blocks_up(rows, np.append(begin, len(cell)) + 100, cell[begin], by_block)
    assert_same(by_block, plain)


@given(RUNS, st.lists(st.integers(-1, 7), min_size=1, max_size=60), LEVELS)
def test_scattered_rows_add_up_to_the_bits_of_a_plain_loop(
    runs: list[tuple[float, int]], by_gpu: list[int], levels: bool
) -> None:
    rows, cell = rows_and_cells(runs, [(number, 1) for number in by_gpu])
    plain = Plain.of(rows, cell)
    gpu, hour = np.divmod(cell, N_HOURS)
    by_hour = np.where(cell < 0, -1, hour * N_GPUS + gpu)  # numbered hour after hour
    whole = CellWindow(N_GPUS, N_HOURS, False, first=0, width=N_HOURS)
    by_row = sums_of(whole, levels=levels)
    add_up(rows, by_hour, by_row)
    if levels:  # these lie hour after hour
        in_order = by_row.levels.reshape(2, N_HOURS, N_GPUS).transpose(0, 2, 1)
        by_row.levels[:] = np.ascontiguousarray(in_order).reshape(2, -1)
    assert_same(by_row, plain)


def test_more_notes_than_there_is_room_for_lose_nothing() -> None:
    sums = sums_of(CellWindow(1, 2, True, 0, 2), levels=False)
    up_and_down = np.array([1.0, -1.0] * 5 + [4.0], dtype=np.float32)  # 0 again and again
    add_up(up_and_down, np.zeros(11, dtype=np.int64), sums)
    places, value = sums.counts.noted()
    assert (places.tolist(), value.tolist()) == ([0], [4.0])
    assert not sums.counts.value.any()
    assert sums.counts.n_noted[0] == 0
