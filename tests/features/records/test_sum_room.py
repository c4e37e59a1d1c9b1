from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.cells import LostReadings, cell_range
from forewarn.features.records.sum_room import SumRoom

N_GPUS, N_HOURS = 3, 5
HOURS = st.lists(st.integers(0, N_HOURS - 1), max_size=4)
Sums = npt.NDArray[np.float64]


def room(*, gpu_after_gpu: bool = False) -> SumRoom:
    counts = np.full((N_GPUS, N_HOURS), 2, dtype=np.int32)
    return SumRoom(counts, gpu_after_gpu=gpu_after_gpu)


def add_to(hours: list[int], value: float, added: Sums, lost: LostReadings) -> None:
    """Add a value, and 10 to squares, to some hours of all GPUs."""
    for hour in hours:
        cells = hour * N_GPUS + np.arange(N_GPUS) - lost.first_cell
        added[:, cells] += [[value], [10.0]][: len(added)]


@given(st.lists(HOURS, max_size=4), st.sampled_from([1, 2]))
def test_parts_in_any_order_of_hours_add_up(parts: list[list[int]], n_sums: int) -> None:
    used, expected = room(), np.zeros((n_sums, N_GPUS, N_HOURS))
    for begun in range(2):  # what another channel left behind is gone
        used.begun(n_sums)
        expected[:] = 0.0
        for part in parts:
            first, last = min(part, default=0), max(part, default=-1) + 1

            used.add_by_hour((first, last), partial(add_to, part, 1.0 + begun))
            for hour in part:
                expected[:, :, hour] += [[1.0 + begun], [10.0]][:n_sums]
        assert used.whole().tolist() == expected.tolist()


def test_what_lies_gpu_after_gpu_is_added_where_it_is() -> None:
    used = room(gpu_after_gpu=True).begun(1)

    def add(added: Sums, lost: LostReadings) -> None:
        added[0, [1, N_HOURS]] += 7.0 + lost.first_cell

    used.add(add)
    used.add(add)
    assert used.whole()[0].tolist() == [[0, 14, 0, 0, 0], [14, 0, 0, 0, 0], [0] * 5]


def test_the_range_of_cells_leaves_those_out_that_are_none() -> None:
    assert cell_range(np.array([-1, 7, 4, -1], dtype=np.int32)) == (4, 8)
    assert cell_range(np.array([-1], dtype=np.int32)) == (0, 0)
