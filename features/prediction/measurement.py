"""Measured values of an instance: its window, its categories, its history, its peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.channel_readings import ChannelReadings, ReadingsOfFleet
from forewarn.features.prediction.earlier_failures import earlier_failures
from forewarn.features.prediction.history import SpanSums
from forewarn.features.prediction.hourly_residuals import GpuTypes, HourlyResiduals
from forewarn.features.prediction.inputs import InstanceValues
from forewarn.features.prediction.instance_facts import InstanceFacts
from forewarn.features.prediction.instances import Instances, instances_of_slice
from forewarn.features.prediction.plan import Plan
from forewarn.features.prediction.residuals import ResidualFit
from forewarn.features.records.failures import Failures
from forewarn.features.records.timeline import Fleet
from forewarn.features.time_units import HOUR
from forewarn.features.xid_severity import severity

__all__ = ["Measures"]

FloatArray = npt.NDArray[np.float32]

_XID = "xid"


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
    def fit(cls, plan: Plan, fleet: Fleet, instances: Instances) -> Self:
        """Fit to training instances and to the records of a fleet, which end before t."""
        return cls.fit_values(plan, fleet, instances)[0]

    @classmethod
    def fit_values(
        cls,
        plan: Plan,
        fleet: Fleet,
        instances: Instances,
        span_sums: dict[str, SpanSums] | None = None,
    ) -> tuple[Self, InstanceValues]:
        """Fit to training instances, and measure them: every column is read once for both."""
        read = _Read.of(plan, fleet, instances, with_codes=True, span_sums=span_sums)
        categories = {name: read.facts.frequent_texts(name) for name in plan.kinds.categorical}
        fits: tuple[ResidualFit, ...] = ()
        if plan.residuals:
            types = _gpu_types(plan, categories)
            fits = HourlyResiduals.fit(plan.residuals, types, read.readings.means).fits
        measures = cls(plan, categories, read.readings.codes, fits)
        return measures, measures._values(read)

    def values(
        self,
        fleet: Fleet,
        instances: Instances,
        span_sums: dict[str, SpanSums] | None = None,
    ) -> InstanceValues:
        """Measure the chosen instances.

        Parameters
        ----------
        fleet : Fleet
            A timeline, or slices of one. Reaches `plan.reach` back before the first instance.
        instances : Instances
            n of that fleet.
        span_sums : dict of SpanSums, optional
            Filled in by channel, for whoever looks at the same spans again; of a timeline only.
        """
        return self._values(_Read.of(self.plan, fleet, instances, span_sums=span_sums))

    def _values(self, read: _Read) -> InstanceValues:
        context = dict(self._context(read))
        table = np.empty((len(context), len(read.instances)), dtype=np.float32)
        names = tuple(context)
        for number, name in enumerate(names):
            table[number] = context.pop(name)
        return InstanceValues(read.readings.sequence, table.T, read.readings.names, names)

    def _context(self, read: _Read) -> Iterator[tuple[str, FloatArray]]:
        readings, facts = read.readings, read.facts
        yield from self._categories(facts)
        for name in self.plan.kinds.date:
            yield f"days_until:{name}", facts.days[name]
        for name in self.plan.kinds.code:
            yield from self._codes(name, readings.sequence[..., readings.names.index(name)])
        yield from readings.columns
        types = _gpu_types(self.plan, self.categories)
        residuals = HourlyResiduals(self.plan.residuals, types, self.residuals)
        yield from readings.residual_columns(residuals)
        if self.plan.history:
            yield from earlier_failures(read.failures, read.instances, facts.slots, self.plan.reach)

    def _categories(self, facts: InstanceFacts) -> Iterator[tuple[str, FloatArray]]:
        # In the order of the plan: that of a dict may change when it is saved and loaded.
        for name in self.plan.kinds.categorical:
            known, codes = facts.texts[name], facts.codes[name]
            for text in self.categories[name]:
                number = known.index(text) if text in known else -2
                yield f"category:{name}={text}", (codes == number).astype(np.float32)

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


class _Read(NamedTuple):
    """What was read of a fleet for some instances, slice after slice."""

    instances: Instances
    failures: Failures
    readings: ChannelReadings
    facts: InstanceFacts

    @classmethod
    def of(
        cls,
        plan: Plan,
        fleet: Fleet,
        instances: Instances,
        *,
        with_codes: bool = False,
        span_sums: dict[str, SpanSums] | None = None,
    ) -> _Read:
        """Read all slices, each of them once."""
        n, n_gpus = len(instances), len(fleet.serials)
        readings = ReadingsOfFleet(plan, n, with_codes=with_codes, span_sums=span_sums)
        facts = InstanceFacts(plan, fleet, n)
        for number, part in enumerate(fleet.slices(), 1):
            rows, inside = instances_of_slice(part, n_gpus, instances)
            facts.read(part, inside, rows)
            readings.read(part, inside, rows, last=number == fleet.n_slices)
            del part  # or two slices would be in memory at a time
        return cls(instances, fleet.failures, readings.readings(), facts)
