from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from forewarn.pipelines.storage.spill_space import SpilledArray, SpillSpace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all is in memory")

MIB = 1 << 20


def on_disk(room: SpillSpace, shape: tuple[int, ...], kind: type) -> SpilledArray:
    held = room.zeros(shape, kind)
    assert isinstance(held, SpilledArray)
    return held


def resident(arrays: Sequence[npt.NDArray[Any]]) -> int:
    """Return the bytes of the pages of arrays that are in the memory of this process."""
    n_bytes = 0
    with Path("/proc/self/pagemap").open("rb") as file:
        for array in arrays:
            file.seek(8 * (array.__array_interface__["data"][0] // mmap.PAGESIZE))
            n_pages = -(-array.nbytes // mmap.PAGESIZE)
            entries = np.frombuffer(file.read(8 * n_pages), dtype=np.uint64)
            n_bytes += int((entries >> np.uint64(63)).sum()) * mmap.PAGESIZE
    return n_bytes


def test_values_stay_while_their_pages_leave_memory() -> None:
    room = SpillSpace()
    before, held = on_disk(room, (MIB + 1,), np.uint8), on_disk(room, (4, MIB // 8), np.float64)
    before.values[:] = 7
    assert not held.values.any()
    held.values[:] = np.arange(4.0)[:, None]
    assert resident([held.values]) >= 4 * MIB
    held.spill()
    assert resident([held.values]) == 0
    assert resident([before.values]) == MIB + mmap.PAGESIZE  # of one file, and not at rest
    held.values[2] += 1.0
    held.spill()
    assert held.values[:, ::1000].tolist() == [[n] * 132 for n in (0.0, 1.0, 3.0, 3.0)]


def test_nothing_lies_there_under_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    on_disk(SpillSpace(), (3, MIB), np.int32)
    assert not list(tmp_path.iterdir())


def test_what_is_small_is_in_memory() -> None:
    for shape in ((0, 5), (16_000,)):
        held = SpillSpace().zeros(shape, np.float32)
        assert held.values.shape == shape
        assert not isinstance(held, SpilledArray)


def test_arrays_that_were_moved_leave_memory_together_and_keep_their_values() -> None:
    space, numbers = SpillSpace(), np.arange(MIB, dtype=np.int64).reshape(2, -1)
    moved = [space.moved(numbers), space.moved(numbers[:, ::2] % 7 == 0)]
    sizes = [array.nbytes for array in moved]
    assert resident(moved) == sum(sizes)
    space.spill()
    assert resident(moved) == 0
    assert moved[0].tolist() == numbers.tolist()
    assert moved[1].tolist() == (numbers[:, ::2] % 7 == 0).tolist()
    few = np.arange(10)
    assert space.moved(few) is few


def test_many_arrays_need_few_files_and_one_that_is_larger_has_its_own() -> None:
    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before, room = n_open(), SpillSpace()
    held = [on_disk(room, (MIB,), np.uint8) for _ in range(64)]
    for number, array in enumerate(held):
        array.values.fill(number)
        array.spill()
    assert [array.values.max() for array in held] == [array.values.min() for array in held]
    assert held[63].values[0] == 63
    assert n_open() == before + 1
    large = on_disk(room, (17 * MIB,), np.float32)
    large.values[-1] = 1.0
    assert n_open() == before + 2
    del room, held, large, array
    assert n_open() == before


@pytest.mark.parametrize("disk", ["gone", "full"])
def test_where_there_is_no_room_it_is_in_memory(
    disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disk == "gone":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    else:  # for 64 MiB it takes, as much has to be left
        free = SimpleNamespace(f_bavail=127 * MIB // 4096, f_frsize=4096)
        monkeypatch.setattr(os, "fstatvfs", lambda _: free)
    space = SpillSpace()
    numbers = np.arange(MIB)
    assert space.moved(numbers) is numbers
    held = space.zeros((2, MIB), np.float64)
    held.values[1, 1] = 7.0
    held.spill()
    assert not isinstance(held, SpilledArray)
    assert (held.values[1, 1], held.values.sum()) == (7.0, 7.0)
