"""Arrays in a temporary file, read again when they are needed."""

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
    """Keeps arrays in a file without a name, in the folder of temporary files (`TMPDIR`).

    The file goes when nobody has it any more, or with the process.
    """

    def __init__(self) -> None:
        self._file, self._lock = tempfile.TemporaryFile(), Lock()  # noqa: SIM115  # see below
        weakref.finalize(self, self._file.close)

    def keep(self, arrays: _Arrays) -> Callable[[], _Arrays]:
        """Write arrays; return what reads them. They stay in memory where the disk has no room."""
        n_bytes = sum(array.nbytes for array in arrays)
        if shutil.disk_usage(tempfile.gettempdir()).free < 2 * n_bytes:
            return lambda: arrays
        with self._lock:
            extents = [(self._put(array), array.dtype, array.shape) for array in arrays]
        return lambda: [self._mapped(*extent) for extent in extents]

    def _put(self, array: npt.NDArray[Any]) -> int:
        """Write an array; return where it begins."""
        start = -(-self._file.seek(0, os.SEEK_END) // _ALIGNED) * _ALIGNED
        self._file.seek(start)
        array.tofile(self._file)
        return start

    def _mapped(self, start: int, kind: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return an array whose pages are read as they are looked at; changes are not written."""
        if not math.prod(shape):  # nothing can be mapped
            return np.empty(shape, kind)
        with self._lock:  # it looks for the end of the file
            return np.asarray(np.memmap(self._file, kind, "c", start, shape))
