"""Spans of hours before instances, and what hourly sums add up to in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.few_hours import FewHours
from forewarn.features.records.ordering import first_from

__all__ = ["SpanSteps", "Spans", "rest_of_sum"]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Spans:
    """For n instances k spans of hours to add up: complete, and of the GPU's life.

    Attributes
    ----------
    line : ndarray of shape (n,)
        Line of hourly sums that each instance looks at.
    visit : ndarray of shape (n,)
        The instances by line.
    edges : ndarray of shape (3, k, n)
        Hours at which each span starts, is half over, and ends.
    known : ndarray of shape (k, n)
        False where the history is shorter than the span.
    """

    line: IntArray
    visit: IntArray
    edges: IntArray
    known: npt.NDArray[np.bool_]

    def on(self, line: IntArray) -> Spans:
        """Return the same hours of other lines."""
        return replace(self, line=line, visit=np.argsort(line, kind="stable"))

    def halves(self, hourly: DoubleArray | CountArray | FewHours) -> DoubleArray:
        """Add up the earlier and the later half of every span, shape (2, k, n)."""
        gained = np.empty((2, *self.known.shape))
        if isinstance(hourly, FewHours):
            few = hourly.cell, hourly.value, hourly.n_hours
            _add_few_halves(few, self.line, self.visit, self.edges, gained)
        elif hourly.dtype == np.int32:
            counts = cast(CountArray, hourly)
            _count_halves(counts, self.line, self.visit, self.edges, gained)
        else:
            _add_halves(hourly, self.line, self.visit, self.edges, gained)
        return gained

    def sums(self, hourly: DoubleArray | CountArray | FewHours) -> DoubleArray:
        """Add up every span, shape (k, n)."""
        earlier, later = self.halves(hourly)
        return np.asarray(earlier + later)

    @cached_property
    def steps(self) -> SpanSteps:
        """The hours at which any span of a line begins, is half over or ends."""
        n = self.edges.size
        gpu, n_steps = np.empty((2, len(self.line)), dtype=np.int64)
        hour, of_edge = np.empty(n, dtype=np.int64), np.empty(self.edges.shape, dtype=np.int32)
        marks = np.zeros(int(self.edges.max(initial=0)) + 1, dtype=np.int64)
        room = gpu, n_steps, hour, of_edge
        n_lines, n = _find_steps(self.line, self.visit, self.edges, marks, room)
        begin = np.append(0, np.cumsum(n_steps[:n_lines]))
        return SpanSteps(gpu[:n_lines].copy(), begin, hour[:n].copy(), of_edge)

    def last(self, hourly: FewHours) -> IntArray:
        """Return the last hour before each instance with more than 0, shape (n,); -1 if none."""
        more = hourly.value > 0
        cell, start = hourly.cell[more], self.line * hourly.n_hours
        before = np.searchsorted(cell, start + self.edges[2, -1]) - 1
        latest = np.append(cell, -1)[before]
        return np.where(latest >= start, latest - start, -1)


class SpanSteps(NamedTuple):
    """Hours of lines at which something is noted.

    Attributes
    ----------
    line : ndarray of shape (m,)
    begin : ndarray of shape (m + 1,)
        The first step of each line.
    hour : ndarray of shape (n_steps,)
        Rising for each line.
    of_edge : ndarray of shape (3, k, n)
        The step of each edge of the spans.
    """

    line: IntArray
    begin: IntArray
    hour: IntArray
    of_edge: CountArray


@compiled
def _find_steps(
    line: IntArray,
    visit: IntArray,
    edges: IntArray,
    marks: IntArray,
    room: tuple[IntArray, IntArray, IntArray, CountArray],
) -> tuple[int, int]:
    """Put lines, how many steps each has, their hours and the step of each edge into arrays."""
    own, n_steps, hours, of_edge = room
    n_lines = n = first = 0
    for number in range(len(visit)):
        i = visit[number]
        for k in range(edges.shape[1]):
            for edge in range(3):
                marks[edges[edge, k, i]] = 1
        if number + 1 < len(visit) and line[visit[number + 1]] == line[i]:
            continue
        begin = n
        for hour in range(len(marks)):
            if marks[hour]:
                marks[hour], hours[n] = n, hour
                n += 1
        for j in visit[first : number + 1]:
            for k in range(edges.shape[1]):
                for edge in range(3):
                    of_edge[edge, k, j] = marks[edges[edge, k, j]]
        for step in range(begin, n):
            marks[hours[step]] = 0
        own[n_lines], n_steps[n_lines] = line[i], n - begin
        n_lines, first = n_lines + 1, number + 1
    return n_lines, n


@compiled
def rest_of_sum(a: float, b: float) -> float:
    """Return what the rounding of a + b leaves out."""
    added = a + b
    second = added - a
    return (a - (added - second)) + (b - second)


@compiled
def _hours_of_line(line: IntArray, visit: IntArray, edges: IntArray) -> tuple[int, int]:
    """Return the first hour that the spans of a line begin at, and the last that they end at.

    `visit` begins with the instances of that line.
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
    hourly: DoubleArray | CountArray,
    line: IntArray,
    visit: IntArray,
    edges: IntArray,
    gained: DoubleArray,
) -> None:
    """Run up each line once; each has its own sums, so that no rounding carries over to another.

    What rounding leaves out is run up beside: a span has the same sum wherever the line begins.
    """
    so_far, left_out = np.zeros(hourly.shape[1] + 1), np.zeros(hourly.shape[1] + 1)
    for number in range(len(visit)):
        i = visit[number]
        if number == 0 or line[i] != line[visit[number - 1]]:
            own, total, rest = hourly[line[i]], 0.0, 0.0
            first, last = _hours_of_line(line, visit[number:], edges)
            so_far[first], left_out[first] = 0.0, 0.0
            for hour in range(first, last):
                value = np.float64(own[hour])
                rest += rest_of_sum(total, value)
                total += value
                so_far[hour + 1], left_out[hour + 1] = total, rest
        for k in range(edges.shape[1]):
            for half in range(2):
                start, end = edges[half, k, i], edges[half + 1, k, i]
                rest = left_out[end] - left_out[start]
                rest += rest_of_sum(so_far[end], -so_far[start])
                gained[half, k, i] = (so_far[end] - so_far[start]) + rest


@compiled
def _count_halves(
    hourly: CountArray,
    line: IntArray,
    visit: IntArray,
    edges: IntArray,
    gained: DoubleArray,
) -> None:
    """Do the same with whole numbers, which are added up without rounding."""
    so_far = np.zeros(hourly.shape[1] + 1, dtype=np.int64)
    for number in range(len(visit)):
        i = visit[number]
        if number == 0 or line[i] != line[visit[number - 1]]:
            own, total = hourly[line[i]], 0
            first, last = _hours_of_line(line, visit[number:], edges)
            so_far[first] = 0
            for hour in range(first, last):
                total += own[hour]
                so_far[hour + 1] = total
        for k in range(edges.shape[1]):
            for half in range(2):
                gained[half, k, i] = so_far[edges[half + 1, k, i]] - so_far[edges[half, k, i]]


@compiled
def _add_few_halves(
    few: tuple[IntArray, DoubleArray | CountArray, int],
    line: IntArray,
    visit: IntArray,
    edges: IntArray,
    gained: DoubleArray,
) -> None:
    """Do the same, to the same bits, with hours of which nearly all hold 0."""
    cell, value, n_hours = few
    so_far, left_out = np.zeros(n_hours + 1), np.zeros(n_hours + 1)
    low = n = 0
    for number in range(len(visit)):
        i = visit[number]
        start = line[i] * n_hours
        if number == 0 or line[i] != line[visit[number - 1]]:
            first, last = _hours_of_line(line, visit[number:], edges)
            low = first_from(cell, 0, len(cell), start + first)
            total, rest, n = 0.0, 0.0, 0
            while low + n < len(cell) and cell[low + n] < start + last:
                rest += rest_of_sum(total, np.float64(value[low + n]))
                total += value[low + n]
                n += 1
                so_far[n], left_out[n] = total, rest
        if n == 0:
            gained[:, :, i] = 0.0
            continue
        for k in range(edges.shape[1]):
            for half in range(2):
                begin = first_from(cell, low, low + n, start + edges[half, k, i]) - low
                end = first_from(cell, low, low + n, start + edges[half + 1, k, i]) - low
                rest = left_out[end] - left_out[begin]
                rest += rest_of_sum(so_far[end], -so_far[begin])
                gained[half, k, i] = (so_far[end] - so_far[begin]) + rest
