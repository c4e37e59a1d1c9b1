"""Arrays in a temporary file, mapped into memory on demand."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ScratchArrays"]

_ALIGNED = 64  # bytes
_Arrays = Sequence[npt.NDArray[Any]]


class ScratchArrays:
    """An unnamed file of arrays in the folder of temporary files (`TMPDIR`).

    The file disappears with its last reference, or with the process.
    """

    def __init__(self) -> None:
        self._file, self._lock = tempfile.TemporaryFile(), Lock()  # noqa: SIM115  # see below
        weakref.finalize(self, self._file.close)

    def keep(self, arrays: _Arrays) -> Callable[[], _Arrays]:
        """Write arrays; return a function that reads them. On a full disk they stay in memory."""
        n_bytes = sum(array.nbytes for array in arrays)
        if shutil.disk_usage(tempfile.gettempdir()).free < 2 * n_bytes:
            return lambda: arrays
        with self._lock:
            extents = [(self._put(array), array.dtype, array.shape) for array in arrays]
        return lambda: [self._mapped(*extent) for extent in extents]

    def _put(self, array: npt.NDArray[Any]) -> int:
        """Write an array; return its offset."""
        start = -(-self._file.seek(0, os.SEEK_END) // _ALIGNED) * _ALIGNED
        self._file.seek(start)
        array.tofile(self._file)
        return start

    def _mapped(self, start: int, kind: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return a memory-mapped array; changes to it are not written."""
        if not math.prod(shape):  # an empty file cannot be mapped
            return np.empty(shape, kind)
        with self._lock:  # mapping seeks to the end of the file
            return np.asarray(np.memmap(self._file, kind, "c", start, shape))
