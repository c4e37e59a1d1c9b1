"""Spans that are added up while hours pass, some after the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.spans import Spans, SpanSteps, rest_of_sum

__all__ = ["SpanRun"]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]
_LAST = 2**40  # after all hours


class SpanRun:
    """Adds up spans while hours of all lines pass, some after the others, to the bits of `Spans`.

    Parameters
    ----------
    spans : Spans
    """

    def __init__(self, spans: Spans) -> None:
        self._spans, steps = spans, spans.steps
        self._next = steps.begin[:-1].copy()
        self._sums = np.zeros((len(steps.line), 4))
        self._noted = np.empty((len(steps.hour), 4))

    def take(self, first: int, values: DoubleArray, squares: DoubleArray) -> None:
        """Take the hours from `first` on, shape (n_lines, n_hours); those left out hold 0."""
        arrays = self._next, self._sums, self._noted
        _run_through(self._spans.steps, first, values, squares, arrays)

    def halves(self) -> tuple[DoubleArray, DoubleArray]:
        """Return what the halves of every span add up to, and squares, each of shape (2, k, n)."""
        none: DoubleArray = np.zeros((int(self._spans.steps.line.max(initial=-1)) + 1, 0))
        self.take(_LAST, none, none)
        total, squares = np.empty((2, 2, *self._spans.known.shape))
        _between_steps(self._spans.steps.of_edge, self._noted, total, squares)
        return total, squares


@compiled
def _run_through(
    steps: SpanSteps,
    first: int,
    values: DoubleArray,
    squares: DoubleArray,
    arrays: tuple[IntArray, DoubleArray, DoubleArray],
) -> None:
    """Note at each step what the hours before it add up to, and what rounding leaves out of it."""
    following, sums, noted = arrays
    for number in range(len(steps.line)):
        step, end = following[number], steps.begin[number + 1]
        begins = step == steps.begin[number]
        if step == end or (begins and steps.hour[step] >= first + max(1, values.shape[1])):
            continue
        line = steps.line[number]
        total, rest = sums[number, 0], sums[number, 1]
        square, square_rest = sums[number, 2], sums[number, 3]
        hour, last = first, min(first + values.shape[1], steps.hour[end - 1])
        if begins:  # nothing before the first step matters
            hour = max(hour, steps.hour[step])
        while step < end:
            while step < end and steps.hour[step] <= hour:
                noted[step, 0], noted[step, 1] = total, rest
                noted[step, 2], noted[step, 3] = square, square_rest
                step += 1
            if hour >= last:
                break
            value, more = values[line, hour - first], squares[line, hour - first]
            rest += rest_of_sum(total, value)
            square_rest += rest_of_sum(square, more)
            total, square, hour = total + value, square + more, hour + 1
        following[number] = step
        sums[number, 0], sums[number, 1] = total, rest
        sums[number, 2], sums[number, 3] = square, square_rest


@compiled
def _between_steps(
    of_edge: CountArray, noted: DoubleArray, total: DoubleArray, squares: DoubleArray
) -> None:
    for half in range(2):
        for k in range(of_edge.shape[1]):
            for i in range(of_edge.shape[2]):
                start, end = noted[of_edge[half, k, i]], noted[of_edge[half + 1, k, i]]
                rest = (end[1] - start[1]) + rest_of_sum(end[0], -start[0])
                total[half, k, i] = (end[0] - start[0]) + rest
                rest = (end[3] - start[3]) + rest_of_sum(end[2], -start[2])
                squares[half, k, i] = (end[2] - start[2]) + rest
