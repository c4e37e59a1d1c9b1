from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.cell_sums import CellSums
from forewarn.features.records.cells import CellShape, cell_range
from forewarn.features.records.sum_room import SumRoom

N_GPUS, N_HOURS = 3, 5
HOURS = st.lists(st.integers(0, N_HOURS - 1), max_size=4)


def room(*, gpu_after_gpu: bool = False) -> SumRoom:
    return SumRoom(CellShape(N_GPUS, N_HOURS, 1, 0, gpu_after_gpu))


def add_to(hours: list[int], value: float, sums: CellSums) -> None:
    """Add a value, and 10 to squares, to some hours of all GPUs."""
    for hour in hours:
        cells = hour * N_GPUS + np.arange(N_GPUS) - sums.window.first_cell
        sums.levels[:, cells] += [[value], [10.0]]


@given(st.lists(HOURS, max_size=4))
def test_parts_in_any_order_of_hours_add_up(parts: list[list[int]]) -> None:
    used, expected = room(), np.zeros((2, N_GPUS, N_HOURS))
    for begun in range(2):  # what another channel left behind is gone
        used.begin((0, N_HOURS))
        expected[:] = 0.0
        for part in parts:
            first, last = min(part, default=0), max(part, default=-1) + 1
            used.add_by_hour((first, last), partial(add_to, part, 1.0 + begun))
            for hour in part:
                expected[:, :, hour] += [[1.0 + begun], [10.0]]
        assert used.levels().tolist() == expected.tolist()


def test_what_lies_gpu_after_gpu_is_added_where_it_is() -> None:
    used = room(gpu_after_gpu=True)
    used.begin((1, 3))

    def add(sums: CellSums) -> None:
        sums.levels[0, [1, 2]] += 7.0 + sums.window.first

    used.add(add)
    used.add(add)
    assert used.levels()[0].tolist() == [[0, 16], [16, 0], [0, 0]]


def test_counts_of_some_hours_are_forgotten_before_the_next_ones() -> None:
    used = room(gpu_after_gpu=True)

    def add(sums: CellSums) -> None:
        sums.counts.value[3], sums.counts.places[0], sums.counts.n_noted[0] = 2.0, 3, 1

    for hours, cell in (((0, 2), 6), ((2, 5), 7)):  # the fourth of so many hours of each GPU
        used.begin(hours)
        used.count(add)
        counted = used.counts()
        assert (counted.cell.tolist(), counted.value.tolist()) == ([cell], [2.0])
    assert used.counts().cell.tolist() == []


def test_the_range_of_cells_leaves_those_out_that_are_none() -> None:
    assert cell_range(np.array([-1, 7, 4, -1], dtype=np.int32)) == (4, 8)
    assert cell_range(np.array([-1], dtype=np.int32)) == (0, 0)
