"""The values of a column of numbers in a stretch of rows as read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

__all__ = ["Stretch"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The values of rows as read from `low` on, shape (n,), float32."""

    low: int
    values: FloatArray

    @property
    def high(self) -> int:
        """One more than the last row."""
        return self.low + len(self.values)

    def between(self, low: int, high: int) -> Stretch:
        """Return the rows [low, high)."""
        return Stretch(low, self.values[low - self.low : high - self.low])

    def mapped(self, work: Callable[[FloatArray], FloatArray]) -> Stretch:
        """Return what `work` makes of each value by itself."""
        return replace(self, values=work(self.values))

    def at(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return the values of rows as read, of any shape."""
        values: FloatArray = self.values[rows - self.low if self.low else rows]
        return values

    def rows_not_zero(self) -> IntArray:
        """Return the rows as read whose value is not 0."""
        return np.flatnonzero(self.values != 0) + self.low

    def without(self, rows: IntArray) -> Stretch:
        """Return the same with NaN at some rows as read; a copy if it may not be written to."""
        values = self.values if self.values.flags.writeable else self.values.copy()
        values[rows - self.low] = np.nan
        return replace(self, values=values)
