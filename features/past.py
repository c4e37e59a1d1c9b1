"""The past of a GPU beside its window, and how it differs from its peers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from forewarn.features.hourly import Groups, HourlyGrid, HourlySums, Spans, Work
from forewarn.features.hourly import running as run_up
from forewarn.features.instances import Instances
from forewarn.features.timeline import Timeline
from forewarn.features.xid import DEGRADED, severity

if TYPE_CHECKING:
    from forewarn.features.measures import Measures

__all__ = ["Past", "span_name"]

FloatArray = npt.NDArray[np.float32]
Columns = Iterator[tuple[str, FloatArray]]


def span_name(length: int) -> str:
    """Return a span in words.

    Examples
    --------
    >>> span_name(12 * 3600 * 10**9), span_name(48 * 3600 * 10**9)
    ('12h', '2d')
    """
    hours = length / 3.6e12
    return f"{hours / 24:g}d" if hours >= 48 and hours % 24 == 0 else f"{hours:g}h"


def _as_is(values: FloatArray) -> FloatArray:
    return values


def _any(codes: FloatArray) -> FloatArray:
    return np.asarray(codes != 0, dtype=np.float32)


def _grave(codes: FloatArray) -> FloatArray:
    return np.asarray(severity(codes) >= DEGRADED, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Past:
    """The hourly past of a timeline, looked at from n instances, one channel after another."""

    measures: Measures
    timeline: Timeline
    instances: Instances
    grid: HourlyGrid
    recent: Spans
    spans: dict[str, Spans]
    groups: dict[str, Groups]

    @classmethod
    def of(cls, measures: Measures, timeline: Timeline, instances: Instances) -> Past:
        """Find the hours that every span of every instance adds up."""
        plan, grid = measures.plan, timeline.grid
        life = timeline.life_start[instances.row]

        def spans(length: int) -> Spans:
            return grid.spans(instances.gpu, instances.end, life, length)

        lengths = [times * plan.window for times in sorted(plan.history)]
        named = {span_name(length): spans(length) for length in lengths}
        groups = {name: grid.groups(name) for name in plan.peers}
        return cls(measures, timeline, instances, grid, spans(plan.window), named, groups)

    def columns(self) -> Columns:
        """Yield name and values, shape (n,), of every column."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for columns in pool.map(self._channel, self._channels()):
                yield from columns
        yield from self._residuals()

    def _channel(self, channel: tuple[str, str, Work | None]) -> list[tuple[str, FloatArray]]:
        """Return the columns of one channel; numpy lets go of the interpreter while it adds."""
        name, _, work = channel
        sums = self.grid.sums(*channel)
        return list(self._events(name, sums) if work else self._level(name, sums))

    def _channels(self) -> list[tuple[str, str, Work | None]]:
        """Return name, column and what is counted of it, of every channel; None for a level."""
        kinds = self.measures.plan.kinds
        channels: list[tuple[str, str, Work | None]] = [(name, name, None) for name in kinds.float]
        channels += [(name, name, _as_is) for name in (*kinds.counter, *kinds.binary)]
        channels += [(name, name, _any) for name in kinds.code]
        return channels + [("grave xid", name, _grave) for name in kinds.code if name == "xid"]

    def _level(self, name: str, sums: HourlySums) -> Columns:
        """Level, spread and trend of a channel that has a level."""
        running = _Running.of(sums)
        squares = run_up(sums.squares)
        for span, hours in self.spans.items():
            mean = running.mean(hours)
            variance = _ratio(hours.sums(squares), hours.sums(running.count)) - mean**2
            yield f"mean:{name}:{span}", _known(mean, hours)
            yield f"spread:{name}:{span}", _known(np.sqrt(np.maximum(variance, 0.0)), hours)
            earlier, later = hours.halves()
            rise = running.mean(later) - running.mean(earlier)
            yield f"trend:{name}:{span}", _known(rise, hours)
        yield from self._peers(name, sums, running)

    def _events(self, name: str, sums: HourlySums) -> Columns:
        """Events an hour of a channel that counts, and hours since the last one."""
        running = _Running.of(sums)
        records_an_hour = 3.6e12 / self.timeline.records.interval
        for span, hours in self.spans.items():
            yield f"rate:{name}:{span}", _known(running.mean(hours) * records_an_hour, hours)
        if self.spans:
            yield f"since:{name}", self._since(sums.total > 0)
        yield from self._peers(name, sums, running)

    def _since(self, happened: npt.NDArray[np.bool_]) -> FloatArray:
        """Return the hours since the last event, the longest span if there was none in it."""
        hours = list(self.spans.values())[-1]
        last = self.grid.last_hour(happened)[hours.line, hours.end]
        since = (hours.end - np.maximum(last, hours.start)) * (self.grid.bucket / 3.6e12)
        return np.where((last >= hours.start) | hours.known, since, np.nan).astype(np.float32)

    def _peers(self, name: str, sums: HourlySums, running: _Running) -> Columns:
        """How far a channel's mean lies from that of the others of its group."""
        longest = dict(list(self.spans.items())[-1:])
        for column in self.measures.plan.peers:
            others = self._group_sums(column, sums)
            mine = self.timeline.records.codes(column, self.instances.row).astype(np.int64)
            for span, hours in ({self._window: self.recent} | longest).items():
                inside = self._inside(column, sums, running, hours, mine)
                difference = _difference(running.mean(hours), inside, others, hours, mine)
                known = hours.known | (span == self._window)
                label = f"peers:{column}:{name}:{span}"
                yield label, np.where(known, difference, np.nan).astype(np.float32)

    def _inside(
        self,
        column: str,
        sums: HourlySums,
        running: _Running,
        hours: Spans,
        mine: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return what each GPU itself adds to the sums of the group that it is in now."""
        total, count = hours.sums(running.total), hours.sums(running.count)
        groups = self.groups[column]
        group = groups.group
        for i in np.flatnonzero(groups.home[hours.line] != mine):
            cells = np.s_[hours.line[i], hours.start[i] : hours.end[i]]
            here = group[cells] == mine[i]
            # Only if it matters for this span: a later move must not even change the rounding.
            if (self.grid.row_count[cells][~here] > 0).any():
                total[i], count[i] = sums.total[cells][here].sum(), sums.count[cells][here].sum()
        return total, count

    def _group_sums(self, column: str, sums: HourlySums) -> _Running:
        groups = self.groups[column]
        return _Running(
            run_up(self.grid.by_group(sums.total, groups)),
            run_up(self.grid.by_group(sums.count, groups)),
        )

    @property
    def _window(self) -> str:
        return span_name(self.measures.plan.window)

    def _residuals(self) -> Columns:
        """Yield what the readings do not explain of each other, as channels of their own."""
        for pair, left in self.measures.left_over(self.timeline):
            name, sums = "|".join(pair), HourlySums.of_means(left)
            recent = _Running.of(sums).mean(self.recent)
            yield f"mean:{name}:{self._window}", recent.astype(np.float32)
            yield from self._level(name, sums)


@dataclass(frozen=True, slots=True)
class _Running:
    """Running sums of a channel, per GPU or per group."""

    total: npt.NDArray[np.float64]
    count: npt.NDArray[np.float64]

    @classmethod
    def of(cls, sums: HourlySums) -> _Running:
        return cls(run_up(sums.total), run_up(sums.count))

    def mean(self, hours: Spans) -> npt.NDArray[np.float64]:
        return _ratio(hours.sums(self.total), hours.sums(self.count))


def _difference(
    own: npt.NDArray[np.float64],
    inside: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    group: _Running,
    hours: Spans,
    mine: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Own mean minus the mean of the others; missing for a group of one."""
    line = replace(hours, line=np.maximum(mine, 0))
    others = _ratio(line.sums(group.total) - inside[0], line.sums(group.count) - inside[1])
    difference = own - others
    return np.where(mine >= 0, difference, np.nan)


def _ratio(
    total: npt.NDArray[np.float64], count: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0.5, total / count, np.nan)


def _known(values: npt.NDArray[np.float64], hours: Spans) -> FloatArray:
    return np.where(hours.known, values, np.nan).astype(np.float32)
