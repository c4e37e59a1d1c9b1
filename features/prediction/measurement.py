"""Measured values of an instance: its window, its categories, its history, its peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.channel_readings import ChannelReadings
from forewarn.features.prediction.earlier_failures import earlier_failures
from forewarn.features.prediction.history import SpanSums
from forewarn.features.prediction.hourly_residuals import GpuTypes, HourlyResiduals
from forewarn.features.prediction.inputs import InstanceValues
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.plan import Plan
from forewarn.features.prediction.residuals import ResidualFit
from forewarn.features.records.timeline import Timeline
from forewarn.features.time_units import DAY, HOUR
from forewarn.features.xid_severity import severity

__all__ = ["Measures"]

FloatArray = npt.NDArray[np.float32]

_XID = "xid"
_MOST_CATEGORIES = 32


@dataclass(frozen=True, slots=True)
class Measures:
    """A plan fitted to training records: their categories, codes and expected readings.

    Attributes
    ----------
    plan : Plan
    categories : dict of tuple of str
        Texts of each categorical column that have a column of their own.
    codes : dict of tuple of int
        The most frequent codes of each event column.
    residuals : tuple of ResidualFit
        One for each pair of the plan.
    """

    plan: Plan
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    codes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    residuals: tuple[ResidualFit, ...] = ()

    @classmethod
    def fit(cls, plan: Plan, timeline: Timeline, instances: Instances) -> Self:
        """Fit to training instances and to the records of the timeline, which end before t."""
        return cls.fit_values(plan, timeline, instances)[0]

    @classmethod
    def fit_values(
        cls,
        plan: Plan,
        timeline: Timeline,
        instances: Instances,
        span_sums: dict[str, SpanSums] | None = None,
    ) -> tuple[Self, InstanceValues]:
        """Fit to training instances, and measure them: every column is read once for both."""
        readings = ChannelReadings.of(
            plan, timeline, instances, with_codes=True, span_sums=span_sums
        )
        categories = {
            name: _frequent_texts(timeline, name, instances) for name in plan.kinds.categorical
        }
        fits: tuple[ResidualFit, ...] = ()
        if plan.residuals:
            types = _gpu_types(plan, categories)
            residuals = HourlyResiduals.fit(plan.residuals, types, timeline.grid, readings.means)
            fits = residuals.fits
        measures = cls(plan, categories, readings.codes, fits)
        return measures, measures._values(timeline, instances, readings)

    def values(
        self,
        timeline: Timeline,
        instances: Instances,
        span_sums: dict[str, SpanSums] | None = None,
    ) -> InstanceValues:
        """Measure the chosen instances.

        Parameters
        ----------
        timeline : Timeline
            Reaches `plan.reach` back before the first instance.
        instances : Instances
            n of that timeline.
        span_sums : dict of SpanSums, optional
            Filled in by channel, for whoever looks at the same spans again.
        """
        readings = ChannelReadings.of(self.plan, timeline, instances, span_sums=span_sums)
        return self._values(timeline, instances, readings)

    def _values(
        self, timeline: Timeline, instances: Instances, readings: ChannelReadings
    ) -> InstanceValues:
        context = dict(self._context(timeline, instances, readings))
        table = np.empty((len(context), len(instances)), dtype=np.float32)
        names = tuple(context)
        for number, name in enumerate(names):
            table[number] = context.pop(name)
        return InstanceValues(readings.sequence, table.T, readings.names, names)

    def _context(
        self, timeline: Timeline, instances: Instances, readings: ChannelReadings
    ) -> Iterator[tuple[str, FloatArray]]:
        yield from self._categories(timeline, instances)
        yield from self._dates(timeline, instances)
        for name in self.plan.kinds.code:
            yield from self._codes(name, readings.sequence[..., readings.names.index(name)])
        yield from readings.columns
        types = _gpu_types(self.plan, self.categories)
        residuals = HourlyResiduals(self.plan.residuals, types, self.residuals)
        yield from readings.residual_columns(residuals)
        if self.plan.history:
            yield from earlier_failures(timeline, instances, self.plan.reach)

    def _categories(
        self, timeline: Timeline, instances: Instances
    ) -> Iterator[tuple[str, FloatArray]]:
        # In the order of the plan: that of a dict may change when it is saved and loaded.
        for name in self.plan.kinds.categorical:
            known = timeline.records.texts[name].texts
            codes = timeline.records.codes(name, instances.row)
            for text in self.categories[name]:
                number = known.index(text) if text in known else -2
                yield f"category:{name}={text}", (codes == number).astype(np.float32)

    def _dates(self, timeline: Timeline, instances: Instances) -> Iterator[tuple[str, FloatArray]]:
        for name in self.plan.kinds.date:
            days = timeline.records.numbers(name, instances.row) - instances.end / DAY
            yield f"days_until:{name}", days.astype(np.float32)

    def _codes(self, name: str, window: FloatArray) -> Iterator[tuple[str, FloatArray]]:
        """Count the codes of the window; `window` has shape (n, length)."""
        yield f"count:{name}", (window != 0).sum(axis=1, dtype=np.float32)
        for code in self.codes[name]:
            yield f"count:{name}={code}", (window == code).sum(axis=1, dtype=np.float32)
        since = np.argmax(window[:, ::-1] != 0, axis=1)
        since = np.where((window != 0).any(axis=1), since, self.plan.window_records)
        hours = since * (self.plan.interval / HOUR)
        yield f"window_since:{name}", hours.astype(np.float32)
        if name == _XID:
            yield f"severity:{name}", severity(window).max(axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "plan": self.plan.to_dict(),
            "categories": {name: list(texts) for name, texts in self.categories.items()},
            "codes": {name: list(codes) for name, codes in self.codes.items()},
            "residuals": [fit.to_dict() for fit in self.residuals],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave."""
        return cls(
            plan=Plan.from_dict(saved["plan"]),
            categories={name: tuple(texts) for name, texts in saved["categories"].items()},
            codes={name: tuple(codes) for name, codes in saved["codes"].items()},
            residuals=tuple(ResidualFit.from_dict(fit) for fit in saved["residuals"]),
        )


def _gpu_types(plan: Plan, categories: Mapping[str, tuple[str, ...]]) -> GpuTypes:
    """Return the first categorical feature as the type of a GPU."""
    if not plan.kinds.categorical:
        return GpuTypes(None)
    name = plan.kinds.categorical[0]
    return GpuTypes(name, categories[name])


def _frequent_texts(timeline: Timeline, name: str, instances: Instances) -> tuple[str, ...]:
    texts = timeline.records.texts[name].texts
    codes = timeline.records.codes(name, instances.row)
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    most = np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]
    return tuple(texts[i] for i in most if counts[i])
