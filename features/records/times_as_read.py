"""Times of many rows in half the memory, as long as they are whole seconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["TimesAsRead"]

IntArray = npt.NDArray[np.int64]
_SECOND = 10**9


class TimesAsRead:
    """Times of n rows, filled in part by part.

    They are counted in seconds of 32 bits until a part has one that is none: then in nanoseconds.

    Parameters
    ----------
    n : int

    Examples
    --------
    >>> times = TimesAsRead(2)
    >>> times.put(slice(0, 1), np.array([7_000_000_000]))
    >>> times.counted_for(interval=600 * 10**9)
    (array([7, 0], dtype=int32), 1000000000)
    """

    def __init__(self, n: int) -> None:
        self._values: npt.NDArray[np.int32] | IntArray = np.zeros(n, dtype=np.int32)

    def put(self, rows: slice, time: IntArray) -> None:
        """Fill in some rows; `time` is in nanoseconds since 1970 UTC."""
        if self._values.dtype == np.int32 and _put_seconds(time, self._values[rows]):
            return
        self._count_nanoseconds()
        self._values[rows] = time

    def counted_for(self, interval: int) -> tuple[npt.NDArray[np.int32] | IntArray, int]:
        """Return the times, and the nanoseconds of their unit; an interval is a multiple of it."""
        if interval % _SECOND:
            self._count_nanoseconds()
        return self._values, _SECOND if self._values.dtype == np.int32 else 1

    def _count_nanoseconds(self) -> None:
        if self._values.dtype == np.int32:
            self._values = self._values.astype(np.int64) * _SECOND


@compiled
def _put_seconds(time: IntArray, room: npt.NDArray[np.int32] | IntArray) -> bool:
    """Put times into `room` in seconds; tell whether all are whole and fit."""
    for row in range(len(time)):
        second = time[row] // 1_000_000_000
        if second * 1_000_000_000 != time[row] or not 0 <= second < 2**31:
            return False
        room[row] = second
    return True
