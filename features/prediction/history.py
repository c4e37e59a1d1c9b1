"""The history of a GPU before its window's end, and its distance from its peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.plan import Plan
from forewarn.features.records.hourly_sums import HourlyGrid, HourlySums, Work
from forewarn.features.records.peer_groups import Groups
from forewarn.features.records.spans import Spans
from forewarn.features.records.timeline import Timeline
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.features.xid_catalogue import DEGRADED
from forewarn.features.xid_severity import severity

__all__ = ["Channel", "InstanceHistory", "SpanSums", "span_name"]

FloatArray = npt.NDArray[np.float32]
Hourly = npt.NDArray[np.float64]
Columns = Iterator[tuple[str, FloatArray]]


def span_name(span: Nanoseconds) -> str:
    """Write a span as the names of columns have it.

    Examples
    --------
    >>> span_name(Nanoseconds(12 * HOUR)), span_name(Nanoseconds(48 * HOUR))
    ('12h', '2d')
    """
    hours = span / HOUR
    return f"{hours / 24:g}d" if hours >= 48 and hours % 24 == 0 else f"{hours:g}h"


def _as_is(values: FloatArray) -> FloatArray:
    return values


def _any(codes: FloatArray) -> FloatArray:
    return np.asarray(codes != 0, dtype=np.float32)


def _grave(codes: FloatArray) -> FloatArray:
    grave, events = np.zeros(len(codes), dtype=np.float32), np.flatnonzero(codes != 0)
    grave[events] = severity(codes[events]) >= DEGRADED
    return grave


@dataclass(frozen=True, slots=True)
class SpanSums:
    """What a channel adds up to in k spans of n instances, each of shape (k, n).

    `squares` is empty for a channel that counts.
    """

    total: Hourly
    count: Hourly
    squares: Hourly = field(default_factory=lambda: np.zeros((0, 0)))


class Channel(NamedTuple):
    """A channel: its name, the column that it is read from, what is counted; None for a level."""

    name: str
    column: str
    work: Work | None


@dataclass(frozen=True, slots=True)
class InstanceHistory:
    """The hourly history of a timeline before n instances, one channel after another.

    `span_sums`, if there is any, is filled in for whoever looks at the spans again: they take as
    much memory as three windows of each instance.
    """

    plan: Plan
    timeline: Timeline
    instances: Instances
    grid: HourlyGrid
    names: tuple[str, ...]
    spans: Spans
    groups: dict[str, tuple[Groups, Spans]]
    span_sums: dict[str, SpanSums] | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        timeline: Timeline,
        instances: Instances,
        span_sums: dict[str, SpanSums] | None = None,
    ) -> InstanceHistory:
        """Find the hours that every span of every instance adds up: the window's, then the rest."""
        grid = timeline.grid
        lengths = [plan.window, *(Nanoseconds(n * plan.window) for n in sorted(plan.history))]
        life = timeline.life_start(instances.row)
        spans = grid.spans(instances.gpu, instances.end, life, lengths)
        groups = {}
        for name in plan.peers:
            codes = timeline.records.codes(name, instances.row).astype(np.int64)
            groups[name] = (grid.groups(name), spans.on(codes))
        names = tuple(span_name(length) for length in lengths)
        return cls(plan, timeline, instances, grid, names, spans, groups, span_sums)

    def channels(self) -> list[Channel]:
        """Return every channel, in the order in which their columns come."""
        kinds = self.plan.kinds
        channels = [Channel(name, name, None) for name in kinds.float]
        channels += [Channel(name, name, _as_is) for name in (*kinds.counter, *kinds.binary)]
        channels += [Channel(name, name, _any) for name in kinds.code]
        return channels + [
            Channel("grave xid", name, _grave) for name in kinds.code if name == "xid"
        ]

    def of_channel(self, channel: Channel, sums: HourlySums) -> list[tuple[str, FloatArray]]:
        """Return name and values, shape (n,), of the columns of a channel."""
        return list((self._events if channel.work else self._level)(channel.name, sums))

    def of_residual(self, pair: tuple[str, str], hourly: Hourly) -> list[tuple[str, FloatArray]]:
        """Return the columns of what the readings of a pair do not explain of each other."""
        name, sums = "|".join(pair), HourlySums.of_means(hourly)
        recent = _ratio(self.spans.sums(sums.total), self.spans.sums(sums.count))[0]
        return [
            (f"mean:{name}:{self.names[0]}", recent.astype(np.float32)),
            *self._level(name, sums),
        ]

    def _level(self, name: str, sums: HourlySums) -> Columns:
        """Level, spread and trend of a channel that has a level."""
        totals, counts = self.spans.halves(sums.total), self.spans.halves(sums.count)
        added = totals.sum(axis=0), counts.sum(axis=0)
        mean, squares = _ratio(*added), self.spans.sums(sums.squares)
        if self.span_sums is not None:
            self.span_sums[name] = SpanSums(*added, squares)
        variance = _ratio(squares, added[1]) - mean**2
        spread = np.sqrt(np.maximum(variance, 0.0))
        earlier, later = _ratio(totals, counts)
        for k, span in self._history():
            yield f"mean:{name}:{span}", self._known(mean, k)
            yield f"spread:{name}:{span}", self._known(spread, k)
            yield f"trend:{name}:{span}", self._known(later - earlier, k)
        yield from self._peers(name, sums, added)

    def _events(self, name: str, sums: HourlySums) -> Columns:
        """Events an hour of a channel that counts, and hours since the last one."""
        added = self.spans.sums(sums.total), self.spans.sums(sums.count)
        if self.span_sums is not None:
            self.span_sums[name] = SpanSums(*added)
        an_hour = _ratio(*added) * (HOUR / self.timeline.records.interval)
        for k, span in self._history():
            yield f"rate:{name}:{span}", self._known(an_hour, k)
        if self.plan.history:
            yield f"since:{name}", self._since(sums.total > 0)
        yield from self._peers(name, sums, added)

    def _history(self) -> Iterator[tuple[int, str]]:
        """Return number and name of the spans beside the window."""
        return ((k, name) for k, name in enumerate(self.names) if k)

    def _known(self, values: Hourly, k: int) -> FloatArray:
        """Return the values of a span, missing where the history is shorter."""
        return np.where(self.spans.known[k], values[k], np.nan).astype(np.float32)

    def _since(self, happened: npt.NDArray[np.bool_]) -> FloatArray:
        """Return the hours since the last event, the longest span if there was none in it."""
        start, _, end = self.spans.edges[:, -1]
        last = self.grid.last_hour(happened)[self.spans.line, end]
        since = (end - np.maximum(last, start)) * (self.grid.bucket / HOUR)
        known = (last >= start) | self.spans.known[-1]
        return np.where(known, since, np.nan).astype(np.float32)

    def _peers(self, name: str, sums: HourlySums, added: tuple[Hourly, Hourly]) -> Columns:
        """Measure how far a channel's mean lies from that of the others of its group.

        `added` holds what the GPU's own readings add up to, and how many there are.
        """
        for column, (groups, spans) in self.groups.items():
            total, count = (
                spans.sums(self.grid.by_group(hourly, groups))
                for hourly in (sums.total, sums.count)
            )
            own = self._inside(groups, spans.line, sums, added)
            difference = _ratio(*added) - _ratio(total - own[0], count - own[1])
            difference[:, spans.line < 0] = np.nan
            yield f"peers:{column}:{name}:{self.names[0]}", difference[0].astype(np.float32)
            if self.plan.history:
                label = f"peers:{column}:{name}:{self.names[-1]}"
                yield label, self._known(difference, len(self.names) - 1)

    def _inside(
        self,
        groups: Groups,
        group: npt.NDArray[np.int64],
        sums: HourlySums,
        added: tuple[Hourly, Hourly],
    ) -> tuple[Hourly, Hourly]:
        """Return what each GPU itself adds to the sums of the group that it is in now."""
        moved = np.flatnonzero(groups.home[self.spans.line] != group)
        if not len(moved):
            return added
        total, count = added[0].copy(), added[1].copy()
        for i in moved:
            for k in range(len(self.names)):
                cells = np.s_[self.spans.line[i], slice(*self.spans.edges[::2, k, i])]
                within = groups.group[cells] == group[i]
                # Only if it matters for this span: a later move must not change the rounding.
                if (self.grid.row_count[cells][~within] > 0).any():
                    total[k, i] = sums.total[cells][within].sum()
                    count[k, i] = sums.count[cells][within].sum()
        return total, count


def _ratio(total: Hourly, count: Hourly) -> Hourly:
    """Return the mean of readings; NaN where there is none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0.5, total / count, np.nan)
