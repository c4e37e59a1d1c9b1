"""Observations: what the records of a day show for each channel, and how unusual it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from forewarn.features.array_types import Float64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instance_history import span_name
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.prediction.span_sums import SpanSums
from forewarn.features.records.fleet_timeline import Fleet, Timeline
from forewarn.features.records.hourly_sums import Transform
from forewarn.features.records.lookback_windows import LookbackWindows
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.features.xid_severity import GRADED_CODES, severity_of_codes
from forewarn.pipelines.at_risk.channel_names import NO_SPAN
from forewarn.pipelines.at_risk.code_events import CodeEvents
from forewarn.pipelines.at_risk.peer_comparison import (
    PeerComparison,
    deviation,
    group_medians,
    known_median,
    tail_share,
)

__all__ = ["ChannelEvidence", "Observations"]

Kind = Literal[
    "count", "duration", "level", "change", "swing", "silent", "code", "failures", "category",
    "date",
]  # fmt: skip
_MIN_RELATIVE_DIFFERENCE = 0.01  # relative to the level
_MIN_DEVIATION = 4.0  # robust standard deviations from which a level is unusual
_MIN_SWING_DEVIATION = 6.0  # higher, because spreads have a skewed distribution
_SWING_WEIGHT = 0.7  # levels are easier to understand and preferred
_MAX_RARE_SHARE = 0.02  # maximum share of the fleet with at least this value
_MAX_RARE_FAILURES_SHARE, _MAX_RARE_CATEGORY_SHARE = 0.1, 0.1
_SHORT_SPAN_SHARE = 0.8  # share of the events from which the shorter span is reported
_CODE_SEVERITY_WEIGHT = 1000.0  # a more severe code outweighs any number of less severe ones


@dataclass(frozen=True, slots=True)
class Observations:
    """Observations of one kind for a channel of n GPUs.

    Attributes
    ----------
    kind : str
        Meaning of the values.
    column : str
        Column of the records; `y|x` is y given x.
    values : ndarray of shape (n,)
    strength : ndarray of shape (n,)
        How unusual each value is; 0 is ordinary and no reason.
    span : Nanoseconds
        Span of the measurement; 0 if there is none.
    now : ndarray of shape (n,), optional
        Level after a change, or hours since the last event of a code.
    detail : str
        The code, or the text of a category.
    """

    kind: Kind
    column: str
    values: Float64Array
    strength: Float64Array
    span: Nanoseconds = NO_SPAN
    now: Float64Array | None = None
    detail: str = ""


@dataclass(frozen=True)
class ChannelEvidence:
    """Records behind a day's list: n instances, their history and their peers.

    Numeric columns are read from `source` or, if that is None, from the timeline.
    """

    timeline: Timeline
    instances: Instances
    values: InstanceValues
    plan: FeaturePlan
    peers: PeerComparison
    span_sums: Mapping[str, SpanSums] = field(default_factory=dict)
    events: Mapping[str, CodeEvents] = field(default_factory=dict)
    source: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        """Source of numeric columns."""
        return self.source or self.timeline

    @cached_property
    def lengths(self) -> tuple[Nanoseconds, ...]:
        """Observed spans: the window, then the history spans, the longest last."""
        window = self.plan.window
        return (window, *(Nanoseconds(n * window) for n in sorted(self.plan.history)))

    @cached_property
    def spans(self) -> LookbackWindows:
        """Hours of each span before each instance."""
        life = self.timeline.life_start(self.instances.row)
        return self.timeline.grid.spans(
            self.instances.gpu, self.instances.end, life, list(self.lengths)
        )

    @cached_property
    def codes(self) -> Mapping[str, CodeEvents]:
        """Events of each code column within the longest span."""
        return self.events or CodeEvents.find_by_column(self.timeline, self.instances, self.plan)

    def observations(self, channel: str) -> list[Observations]:
        """Return the observations of a channel; empty for an unknown channel."""
        kinds = self.plan.kinds
        if channel in kinds.counter:
            return list(self._counts(channel, "count", 1.0))
        if channel in kinds.binary:
            return list(self._counts(channel, "duration", float(self.plan.interval)))
        if channel in kinds.float:
            return [*self._levels(channel), *self._missing_readings(channel)]
        if channel in kinds.code:
            return list(self._codes(channel))
        if channel in kinds.categorical:
            return list(self._categories(channel))
        if channel in kinds.date:
            return list(self._dates(channel))
        return list(
            self._failures(channel) if channel[:9] == "failures:" else self._explained(channel)
        )

    def _sums(self, name: str, work: Transform | None) -> SpanSums:
        """Return the sums of a channel in each span; read the channel if necessary."""
        if name in self.span_sums:
            return self.span_sums[name]
        spans, grid = self.spans, self.timeline.grid
        sums = grid.sums(self.timeline.records.values(name), work)
        squares = () if sums.squares is None else (spans.sums(sums.squares),)
        return SpanSums(spans.sums(sums.total), spans.sums(sums.count), *squares)

    def _counts(self, name: str, kind: Kind, unit: float) -> Iterator[Observations]:
        sums = self._sums(name, lambda values: values).total
        if kind == "count":
            sums = np.maximum(sums, self._counted_in_window(name))
        for k in reversed(range(len(self.lengths))):
            counted = sums[k] * unit
            strength = np.where(self.peers.is_group_maximum(counted), self._rare(counted), 0.0)
            if k:  # if most events are recent, report the shorter span
                strength = np.where(
                    sums[k - 1] >= _SHORT_SPAN_SHARE * sums[k], 0.5 * strength, strength
                )
            yield Observations(kind, name, counted, strength, self.lengths[k])

    def _counted_in_window(self, name: str) -> Float64Array:
        """Return the rise of a counter within the window, up to the last record.

        The sums of spans are those of whole hours, so they lack what was counted since.
        """
        column = self.values.sequence[..., self.values.sequence_names.index(name)]
        return np.asarray(np.nansum(column, axis=1, dtype=np.float64))

    def _rare(self, counted: Float64Array) -> Float64Array:
        """Return the strength of counts; positive for counts that few comparable GPUs reach."""
        return self.peers.against(_count_strength, counted)

    def _levels(self, name: str) -> Iterator[Observations]:
        sums = self._sums(name, None)
        total, count, squares = sums.total, sums.count, sums.squares
        with np.errstate(invalid="ignore", divide="ignore"):
            # A GPU with a shorter history has no level for this span.
            mean = np.where(self.spans.known, total / count, np.nan)
            swing = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
            before = np.where(
                self.spans.known[-1], (total[-1] - total) / (count[-1] - count), np.nan
            )
        for k, span in enumerate(self.lengths):
            yield Observations("level", name, mean[k], self._off(mean[k], level=mean[k]), span)
            more = swing[k] > group_medians(swing[k], self.peers.near.code)
            strength = np.where(
                more, self._off(swing[k], _MIN_SWING_DEVIATION, mean[k]) * _SWING_WEIGHT, 0.0
            )
            yield Observations("swing", name, swing[k], strength, span)
            if k + 1 < len(self.lengths):
                change = mean[k] - before[k]
                group_change = np.abs(group_medians(change, self.peers.near.code))
                alone = np.abs(change) > 2.0 * np.nan_to_num(group_change)
                strength = np.where(alone, self._off(change, level=mean[k]), 0.0)
                yield Observations("change", name, change, strength, span, mean[k])

    def _off(
        self, values: Float64Array, far: float = _MIN_DEVIATION, level: Float64Array | None = None
    ) -> Float64Array:
        """Return the strength of levels far from those of their machine and rare in the fleet.

        Differences below one percent of `level` are ignored.
        """
        relative = self.peers.minus_group_median(values)
        relative = np.where(np.isfinite(relative), relative, values)
        off = np.abs(self.peers.against(deviation, relative))
        rare = self.peers.against(tail_share, np.abs(relative)) <= _MAX_RARE_SHARE
        rare &= self.peers.is_group_maximum(values) | self.peers.is_group_maximum(-values)
        if level is not None:
            rare &= np.abs(relative) > _MIN_RELATIVE_DIFFERENCE * np.abs(level)
        return np.where(rare & (off >= far), np.clip(off, 0.0, 100.0), 0.0)

    def _missing_readings(self, name: str) -> Iterator[Observations]:
        """Yield sensors without readings in the window, if nearly all other GPUs have some."""
        window = self.values.sequence[..., self.values.sequence_names.index(name)]
        silent: Float64Array = np.asarray(np.isnan(window).all(axis=1), dtype=np.float64)
        rare = (silent > 0) & (float(silent.mean()) <= _MAX_RARE_SHARE)
        yield Observations(
            "silent", name, silent, np.where(rare, _MIN_DEVIATION, 0.0), self.lengths[0]
        )

    def _codes(self, name: str) -> Iterator[Observations]:
        events = self.codes[name]
        for code in events.distinct:
            counted = events.counted(code)
            graded = severity_of_codes(name, np.array([code], np.float32))
            gravity = float(graded[0]) if name in GRADED_CODES else 1.0
            strength = self._rare(counted)
            strength = np.where(strength > 0, strength + _CODE_SEVERITY_WEIGHT * gravity, 0.0)
            last = events.hours_since(code)
            yield Observations("code", name, counted, strength, self.lengths[-1], last, f"{code:g}")

    def _failures(self, channel: str) -> Iterator[Observations]:
        if channel in self.values.context_names:
            failed = self._context(channel)
            share = tail_share(failed, failed)
            strength = np.where(
                (failed > 0) & (share <= _MAX_RARE_FAILURES_SHARE), failed * _MIN_DEVIATION, 0.0
            )
            yield Observations("failures", channel, failed, strength)

    def _categories(self, name: str) -> Iterator[Observations]:
        """Yield categories that few other GPUs have."""
        codes = self.timeline.records.codes(name, self.instances.row)
        texts = self.timeline.records.texts[name].texts
        for code in np.unique(codes[codes >= 0]).tolist():
            same = codes == code
            number = np.full(len(codes), float(same.sum()))
            strength = np.where(same & (same.mean() <= _MAX_RARE_CATEGORY_SHARE), 1.0, 0.0)
            yield Observations("category", name, number, strength, detail=texts[code])

    def _dates(self, name: str) -> Iterator[Observations]:
        day = self.timeline.records.numbers(name, self.instances.row).astype(np.float64)
        days: Float64Array = np.asarray(day - self.instances.end / DAY)
        distance = np.abs(days - known_median(days))
        rare = tail_share(distance, distance) <= _MAX_RARE_SHARE
        rare &= np.isfinite(days) & (np.abs(self.peers.against(deviation, days)) > 2)
        yield Observations("date", name, days, np.where(rare, 1.0, 0.0))

    def _explained(self, channel: str) -> Iterator[Observations]:
        """Yield residuals: the part of a sensor that another sensor does not explain."""
        for span in self.lengths[1:]:
            name = f"mean:{channel}:{span_name(span)}"
            if name in self.values.context_names:
                level = self._context(name)
                yield Observations("level", channel, level, self._off(level), span)

    def _context(self, name: str) -> Float64Array:
        column = self.values.context[:, self.values.context_names.index(name)]
        return column.astype(np.float64)


def _count_strength(counted: Float64Array, among: Float64Array) -> Float64Array:
    """Return the strength of counts relative to a reference group."""
    strength, some = np.zeros(len(counted)), np.flatnonzero(counted > 0)
    if not len(some):
        return strength
    counted = counted[some]  # skip zeros, which are most values
    usual = known_median(among)
    rare = tail_share(counted, among) <= _MAX_RARE_SHARE
    rare &= counted > usual + 3.0 * np.sqrt(max(usual, 0.0))
    strength[some] = np.where(rare, np.clip(deviation(counted, among), 1.0, 100.0), 0.0)
    return strength
