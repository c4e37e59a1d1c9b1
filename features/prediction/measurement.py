"""Measured values of an instance: its window, its categories, its history, its peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.earlier_failures import earlier_failures
from forewarn.features.prediction.history import InstanceHistory
from forewarn.features.prediction.hourly_residuals import GpuTypes, HourlyResiduals
from forewarn.features.prediction.inputs import InstanceValues
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.plan import Plan
from forewarn.features.prediction.residuals import ResidualFit
from forewarn.features.records.timeline import Timeline
from forewarn.features.threads import in_threads
from forewarn.features.time_units import DAY, HOUR
from forewarn.features.xid_severity import severity

__all__ = ["Measures"]

FloatArray = npt.NDArray[np.float32]

_XID = "xid"
_MOST_CATEGORIES = 32
_MOST_CODES = 8


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
        categories = {
            name: _frequent_texts(timeline, name, instances) for name in plan.kinds.categorical
        }
        codes = {name: _frequent_codes(timeline, name) for name in plan.kinds.code}
        types = _gpu_types(plan, categories)
        residuals = HourlyResiduals.fit(plan.residuals, types, timeline.grid)
        return cls(plan, categories, codes, residuals.fits)

    def values(self, timeline: Timeline, instances: Instances) -> InstanceValues:
        """Measure the chosen instances.

        Parameters
        ----------
        timeline : Timeline
            Reaches `plan.reach` back before the first instance.
        instances : Instances
            n of that timeline.
        """
        sequence, names = self._sequence(timeline, instances)
        context = dict(self._context(timeline, instances, sequence, names))
        columns = list(context.values())
        table = np.array(columns, dtype=np.float32).reshape(len(columns), len(instances)).T
        return InstanceValues(sequence, table, names, tuple(context))

    def _sequence(
        self, timeline: Timeline, instances: Instances
    ) -> tuple[FloatArray, tuple[str, ...]]:
        """Gather the windows, shape (n, length, n_channels)."""
        kinds = self.plan.kinds
        names = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
        rows = instances.row[:, None] + np.arange(1 - self.plan.window_records, 1)
        records, as_read = timeline.records, timeline.records.order[rows]
        columns = in_threads(lambda name: records.numbers(name, rows, as_read), names)
        # Channel after channel in memory: what follows takes them one by one.
        channels = np.array(columns, dtype=np.float32).reshape(len(names), *rows.shape)
        return np.moveaxis(channels, 0, -1), names

    def _context(
        self,
        timeline: Timeline,
        instances: Instances,
        sequence: FloatArray,
        names: tuple[str, ...],
    ) -> Iterator[tuple[str, FloatArray]]:
        yield from self._categories(timeline, instances)
        yield from self._dates(timeline, instances)
        for name in self.plan.kinds.code:
            yield from self._codes(name, sequence[..., names.index(name)])
        if self.plan.history or self.plan.peers or self.plan.residuals:
            types = _gpu_types(self.plan, self.categories)
            residuals = HourlyResiduals(self.plan.residuals, types, self.residuals)
            yield from InstanceHistory.of(self.plan, residuals, timeline, instances).columns()
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


def _frequent_codes(timeline: Timeline, name: str) -> tuple[int, ...]:
    """Return the codes that most GPUs have shown: one chatty GPU must not choose them."""
    grid = timeline.grid
    codes = grid.columns_as_read(name)
    rows = np.flatnonzero((codes != 0) & (grid.cell_as_read >= 0))
    gpu = grid.cell_as_read[rows] % grid.shape[0]
    # Each pair of code and GPU as one number: sorting those is far faster than sorting pairs.
    pairs = np.unique(codes[rows].astype(np.int64) * grid.shape[0] + gpu)
    frequent, counts = np.unique(pairs // grid.shape[0], return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_MOST_CODES]
    return tuple(int(code) for code in np.sort(frequent[most]))
