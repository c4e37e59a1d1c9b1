"""History of a GPU before the end of an instance: levels, spreads, trends and event rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.span_sums import SpanSums
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.hourly_sums import HourlyGrid, HourlySums, Transform
from forewarn.features.records.lookback_windows import LookbackWindows
from forewarn.features.records.peer_groups import PeerGroups
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.features.xid_catalogue import DEGRADED
from forewarn.features.xid_severity import GRADED_CODES, severity

__all__ = [
    "Channel",
    "ChannelHistory",
    "InstanceHistory",
    "mean_or_nan",
    "span_name",
]


def span_name(span: Nanoseconds) -> str:
    """Format a span for column names.

    Examples
    --------
    >>> span_name(Nanoseconds(12 * HOUR)), span_name(Nanoseconds(48 * HOUR))
    ('12h', '2d')
    """
    hours = span / HOUR
    return f"{hours / 24:g}d" if hours >= 48 and hours % 24 == 0 else f"{hours:g}h"


def _identity(values: Float32Array) -> Float32Array:
    return values


def _is_event(codes: Float32Array) -> Float32Array:
    return np.asarray(codes != 0, dtype=np.float32)


def _is_severe(codes: Float32Array) -> Float32Array:
    grave, events = np.zeros(len(codes), dtype=np.float32), np.flatnonzero(codes != 0)
    grave[events] = severity(codes[events]) >= DEGRADED
    return grave


def _is_severe_error(severities: Float32Array) -> Float32Array:
    return np.asarray(severities >= DEGRADED, dtype=np.float32)


class Channel(NamedTuple):
    """A channel: name, source column, and the function that counts events (None for a level)."""

    name: str
    column: str
    work: Transform | None


class ChannelHistory(NamedTuple):
    """History of one channel for some instances.

    Attributes
    ----------
    columns : list of (str, ndarray of shape (n,))
    hours : HourlySums
        Hourly sums of the GPUs.
    span_sums : SpanSums
        Sums of the instances.
    """

    columns: list[tuple[str, Float32Array]]
    hours: HourlySums
    span_sums: SpanSums


@dataclass(frozen=True, slots=True)
class InstanceHistory:
    """Hourly history of a timeline before n instances.

    Attributes
    ----------
    plan : FeaturePlan
    grid : HourlyGrid
    names : tuple of str
        Names of the spans: the window, then the others.
    spans : Spans
    groups : dict of (Groups, ndarray of shape (n,))
        Groups of each peer column, and the group number of each instance; -1 is none.
    n_rows : ndarray of shape (2, k, n)
        Rows of the earlier and the later half of each span.
    """

    plan: FeaturePlan
    grid: HourlyGrid
    names: tuple[str, ...]
    spans: LookbackWindows
    groups: dict[str, tuple[PeerGroups, Int64Array]]
    n_rows: Float64Array

    @classmethod
    def from_timeline(
        cls, plan: FeaturePlan, timeline: Timeline, instances: Instances
    ) -> InstanceHistory:
        """Find the hours of every span of every instance: the window, then the other spans."""
        grid = timeline.grid
        lengths = [plan.window, *(Nanoseconds(n * plan.window) for n in sorted(plan.history))]
        life = timeline.life_start(instances.row)
        spans = grid.spans(instances.gpu, instances.end, life, lengths)
        groups = {}
        for name in plan.peers:
            codes = timeline.records.codes(name, instances.row).astype(np.int64)
            groups[name] = (grid.groups(name), codes)
        names = tuple(span_name(length) for length in lengths)
        return cls(plan, grid, names, spans, groups, spans.halves(grid.row_count))

    def without_rows(self) -> InstanceHistory:
        """Return the history without per-record data, for residuals."""
        return replace(self, grid=self.grid.without_rows(self.plan.kinds.categorical[:1]))

    def channels(self) -> list[Channel]:
        """Return all channels in column order."""
        kinds = self.plan.kinds
        channels = [Channel(name, name, None) for name in kinds.float]
        channels += [Channel(name, name, _identity) for name in (*kinds.counter, *kinds.binary)]
        channels += [Channel(name, name, _is_event) for name in kinds.code]
        return channels + [
            Channel(f"grave {name}", name, _is_severe if name == "xid" else _is_severe_error)
            for name in kinds.code
            if name in GRADED_CODES
        ]

    def channel_history(self, channel: Channel, hours: HourlySums) -> ChannelHistory:
        """Return the history of a channel from its hourly sums."""
        if hours.squares is None:
            return self._of_counts(channel.name, hours)
        return self._of_level(channel.name, hours, hours.squares)

    def residual_history(self, name: str, hours: HourlySums) -> ChannelHistory:
        """Return the history of a residual, including its mean over the window."""
        part = self.channel_history(Channel(name, name, None), hours)
        recent = mean_or_nan(part.span_sums.total, part.span_sums.count)[0]
        first = (f"mean:{name}:{self.names[0]}", recent.astype(np.float32))
        return part._replace(columns=[first, *part.columns])

    def _of_level(self, name: str, hours: HourlySums, squares: Float64Array) -> ChannelHistory:
        """Return level, spread and trend of a channel that has a level."""
        totals, counts = self.spans.halves(hours.total), self._n_read(hours)
        squared, added = self.spans.sums(squares), (totals.sum(axis=0), counts.sum(axis=0))
        mean = mean_or_nan(*added)
        variance = mean_or_nan(squared, added[1]) - mean**2
        spread = np.sqrt(np.maximum(variance, 0.0))
        earlier, later = mean_or_nan(totals, counts)
        columns = []
        for k, span in self._history():
            columns += [
                (f"mean:{name}:{span}", self._known(mean, k)),
                (f"spread:{name}:{span}", self._known(spread, k)),
                (f"trend:{name}:{span}", self._known(later - earlier, k)),
            ]
        return ChannelHistory(columns, hours, SpanSums(*added, squared))

    def _n_read(self, hours: HourlySums) -> Float64Array:
        """Return the number of readings in the halves of each span, shape (2, k, n)."""
        every = hours.count is self.grid.row_count
        return self.n_rows if every else self.spans.halves(hours.count)

    def _of_counts(self, name: str, hours: HourlySums) -> ChannelHistory:
        """Return events per hour of a counting channel, and hours since the last event."""
        added = self.spans.sums(hours.total), self._n_read(hours).sum(axis=0)
        an_hour = mean_or_nan(*added) * (HOUR / self.plan.interval)
        columns = [(f"rate:{name}:{span}", self._known(an_hour, k)) for k, span in self._history()]
        if self.plan.history:
            columns.append((f"since:{name}", self._since(hours.total)))
        return ChannelHistory(columns, hours, SpanSums(*added))

    def _history(self) -> Iterator[tuple[int, str]]:
        """Return number and name of the spans other than the window."""
        return ((k, name) for k, name in enumerate(self.names) if k)

    def _known(self, values: Float64Array, k: int) -> Float32Array:
        """Return the values of a span, missing where the history is shorter."""
        return np.where(self.spans.known[k], values[k], np.nan).astype(np.float32)

    def _since(self, counted: Float64Array) -> Float32Array:
        """Return the hours since the last event, or the longest span if it holds no event."""
        start, _, end = self.spans.edges[:, -1]
        last = self.spans.last(counted)
        since = (end - np.maximum(last, start)) * (self.grid.bucket / HOUR)
        known = (last >= start) | self.spans.known[-1]
        return np.where(known, since, np.nan).astype(np.float32)

    def moved_gpu_parts(
        self, column: str, hours: HourlySums
    ) -> Iterator[tuple[int, int, float, float]]:
        """Yield the part of a group's sums that comes from a GPU that was also in other groups.

        Yields
        ------
        span, instance : int
            Where that part differs from the sums of all readings of the GPU.
        total, count : float
        """
        groups, group = self.groups[column]
        for i in np.flatnonzero(groups.home[self.spans.line] != group).tolist():
            gpu = self.spans.line[i]
            total, count = hours.total[gpu], hours.count[gpu]
            for k in range(len(self.names)):
                some = slice(*self.spans.edges[::2, k, i].tolist())
                within = groups.within(gpu, some, group[i])
                # Only where it changes this span: a later move must not change the rounding.
                if within is not None:
                    yield k, i, total[some][within].sum(), count[some][within].sum()


def mean_or_nan(total: Float64Array, count: Float64Array) -> Float64Array:
    """Return the mean of readings; NaN if there are none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0.5, total / count, np.nan)
