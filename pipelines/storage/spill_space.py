"""Arrays that lie in a file without a name, so that their pages can leave memory."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from forewarn.features.records.spillable_array import SpillableArray

__all__ = ["SpillSpace", "SpilledArray"]

_Scalar = TypeVar("_Scalar", bound=np.generic)
_BYTES_OF_FILE = 1 << 26  # or as many as an array needs: a process can open few files
_SMALL = 1 << 16  # stays in memory


class SpilledArray(SpillableArray):
    """An array of zeros in a file.

    Parameters
    ----------
    extent : Extent
    shape, kind
        As of `SpillableArray`.
    """

    def __init__(self, extent: Extent, shape: tuple[int, ...], kind: npt.DTypeLike) -> None:
        self._extent = extent
        self.values = np.ndarray(shape, kind, buffer=extent.mapped, offset=extent.start)

    def spill(self) -> None:
        """Have its pages leave this process; the system writes them when it needs the room."""
        mapped, start, n_bytes = self._extent
        mapped.madvise(mmap.MADV_DONTNEED, start, n_bytes)


class Extent(NamedTuple):
    """Where an array lies: a file that is mapped, the first byte, which begins a page; bytes."""

    mapped: mmap.mmap
    start: int
    n_bytes: int


class SpillSpace:
    """Room for arrays in the folder of temporary files (`TMPDIR`), of which it leaves half.

    Its files go when nobody has it any more, nor any of its arrays; or with the process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: list[mmap.mmap] = []
        self._used = 0

    def zeros(self, shape: tuple[int, ...], kind: npt.DTypeLike) -> SpillableArray:
        """Return an array of zeros on disk; in memory if it is small, or there is no room."""
        n_bytes = math.prod(shape) * np.dtype(kind).itemsize
        if n_bytes < _SMALL:
            return SpillableArray(shape, kind)
        try:
            return SpilledArray(self._extent(n_bytes), shape, kind)
        except (OSError, AttributeError):  # another system than Linux lacks some of that
            return SpillableArray(shape, kind)

    def moved(self, array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        """Return an array with the same values, on disk if it is large enough and there is room."""
        copy = self.zeros(array.shape, array.dtype)
        if not isinstance(copy, SpilledArray):
            return array
        copy.values[...] = array
        return copy.values

    def spill(self) -> None:
        """Have the pages of all its arrays leave this process, until somebody looks at them."""
        for file in self._files:
            file.madvise(mmap.MADV_DONTNEED)

    def _extent(self, n_bytes: int) -> Extent:
        n_aligned = -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            if not self._files or self._used + n_aligned > len(self._files[-1]):
                self._files.append(_mapped(max(_BYTES_OF_FILE, n_aligned)))
                self._used = 0
            extent = Extent(self._files[-1], self._used, n_aligned)
            self._used += n_aligned
        return extent


def _mapped(n_bytes: int) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        disk = os.fstatvfs(file.fileno())
        if 2 * n_bytes > disk.f_bavail * disk.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # Now, since a disk that is full when a page is written ends the process.
        os.posix_fallocate(file.fileno(), 0, n_bytes)
        return mmap.mmap(file.fileno(), n_bytes)
