"""Whole numbers that mostly rise by equal steps, in little memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["EvenRuns"]

IntArray = npt.NDArray[np.int64]
_FEWEST_PER_RUN = 8  # values that a run has on average; else they are kept as they are


@dataclass(frozen=True, slots=True)
class EvenRuns:
    """n whole numbers as runs, in each of which they rise by equal steps.

    Attributes
    ----------
    start : ndarray of shape (n_runs + 1,)
        Where each run begins, and last n.
    first, step : ndarray of shape (n_runs,)
        Its first number, and how much each further one is greater.
    plain : ndarray of shape (n,) or (0,)
        All numbers, where they do not fall into few runs; there are no runs then.
    """

    start: IntArray
    first: IntArray
    step: IntArray
    plain: IntArray

    @classmethod
    def of(cls, values: IntArray) -> EvenRuns:
        """Pack numbers of any signed type, which they have again afterwards.

        Examples
        --------
        >>> runs = EvenRuns.of(np.arange(600, 6000, 600, dtype=np.int64))
        >>> runs.first, runs.step, runs.values()[-1]
        (array([600]), array([600]), np.int64(5400))
        """
        most = -(-len(values) // _FEWEST_PER_RUN)
        start, first, step = np.empty((3, most + 1), dtype=np.int64)
        n_runs = _find_runs(values, start, first, step)
        if n_runs < 0:
            none = np.zeros(0, dtype=np.int64)
            return cls(none, none, none, values)
        runs = start[: n_runs + 1].copy(), first[:n_runs].copy(), step[:n_runs].copy()
        return cls(*runs, values[:0].copy())

    def values(self) -> IntArray:
        """Return the numbers."""
        if not len(self.start):
            return self.plain
        values = np.empty(self.start[-1], dtype=self.plain.dtype)
        _lay_runs(self.start, self.first, self.step, values)
        return values


@compiled
def _find_runs(values: IntArray, start: IntArray, first: IntArray, step: IntArray) -> int:
    """Put the runs into three arrays and return how many; -1 if they have no place there."""
    n_runs = row = 0
    while row < len(values):
        if n_runs + 1 == len(start):
            return -1
        start[n_runs], first[n_runs], step[n_runs] = row, values[row], 0
        if row + 1 < len(values):
            step[n_runs] = np.int64(values[row + 1]) - values[row]
        row += 1
        while row < len(values) and np.int64(values[row]) - values[row - 1] == step[n_runs]:
            row += 1
        n_runs += 1
    start[n_runs] = row
    return n_runs


@compiled
def _lay_runs(start: IntArray, first: IntArray, step: IntArray, values: IntArray) -> None:
    """Put the numbers of each run where they belong."""
    for run in range(len(first)):
        for row in range(start[run], start[run + 1]):
            values[row] = first[run] + step[run] * (row - start[run])
