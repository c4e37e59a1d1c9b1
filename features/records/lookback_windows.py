"""Lookback windows before instances, and sums of hourly values over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int32Array, Int64Array
from forewarn.features.compiled import compiled

__all__ = ["LookbackWindows"]


@dataclass(frozen=True)
class LookbackWindows:
    """k lookback windows of complete hours for each of n instances, since the last repair.

    Attributes
    ----------
    line : ndarray of shape (n,)
        Row of the hourly sums of each instance.
    visit : ndarray of shape (n,)
        The instances sorted by that row.
    edges : ndarray of shape (3, k, n)
        First hour, middle and end of each window.
    known : ndarray of shape (k, n)
        False where the history is shorter than the window.
    """

    line: Int64Array
    visit: Int64Array
    edges: Int64Array
    known: BoolArray

    def halves(self, hourly: Float64Array | Int32Array) -> Float64Array:
        """Sum the earlier and the later half of each window, shape (2, k, n)."""
        gained = np.empty((2, *self.known.shape))
        _add_halves(hourly, self.line, self.visit, self.edges, gained)
        return gained

    def sums(self, hourly: Float64Array | Int32Array) -> Float64Array:
        """Sum each window, shape (k, n)."""
        earlier, later = self.halves(hourly)
        return np.asarray(earlier + later)

    def last(self, hourly: Float64Array) -> Int64Array:
        """Return the last hour above 0 in the longest window, shape (n,); -1 if there is none."""
        hours = np.empty(len(self.line), dtype=np.int64)
        _find_last(hourly, self.line, self.edges[0, -1], self.edges[2, -1], hours)
        return hours


@compiled
def _find_last(
    hourly: Float64Array, line: Int64Array, start: Int64Array, end: Int64Array, hours: Int64Array
) -> None:
    for i in range(len(line)):
        hour = end[i] - 1
        while hour >= start[i] and hourly[line[i], hour] <= 0:
            hour -= 1
        hours[i] = hour if hour >= start[i] else -1


@compiled
def _rounding_error(a: float, b: float) -> float:
    """Return the rounding error of a + b (TwoSum)."""
    added = a + b
    second = added - a
    return (a - (added - second)) + (b - second)


@compiled
def _hour_range_of_row(line: Int64Array, visit: Int64Array, edges: Int64Array) -> tuple[int, int]:
    """Return the first and the last hour of all windows of one row of hourly sums.

    `visit` starts with the instances of that row.
    """
    first, last = edges[0, 0, visit[0]], edges[2, 0, visit[0]]
    for i in visit:
        if line[i] != line[visit[0]]:
            break
        for k in range(edges.shape[1]):
            first, last = min(first, edges[0, k, i]), max(last, edges[2, k, i])
    return first, last


@compiled
def _add_halves(
    hourly: Float64Array | Int32Array,
    line: Int64Array,
    visit: Int64Array,
    edges: Int64Array,
    gained: Float64Array,
) -> None:
    """Compute prefix sums once per row and window sums as their differences.

    Rounding errors are accumulated separately (compensated summation), so that the sum of a window
    does not depend on where the row starts.
    """
    so_far, left_out = np.zeros(hourly.shape[1] + 1), np.zeros(hourly.shape[1] + 1)
    for number in range(len(visit)):
        i = visit[number]
        if number == 0 or line[i] != line[visit[number - 1]]:
            own, total, rest = hourly[line[i]], 0.0, 0.0
            first, last = _hour_range_of_row(line, visit[number:], edges)
            so_far[first], left_out[first] = 0.0, 0.0
            for hour in range(first, last):
                value = np.float64(own[hour])
                rest += _rounding_error(total, value)
                total += value
                so_far[hour + 1], left_out[hour + 1] = total, rest
        for k in range(edges.shape[1]):
            for half in range(2):
                start, end = edges[half, k, i], edges[half + 1, k, i]
                rest = left_out[end] - left_out[start]
                rest += _rounding_error(so_far[end], -so_far[start])
                gained[half, k, i] = (so_far[end] - so_far[start]) + rest
