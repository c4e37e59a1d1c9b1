"""Feature extraction: window, categories, history and peers of an instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from forewarn.features.array_types import Float32Array, Int64Array
from forewarn.features.prediction.earlier_failures import earlier_failures
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.fleet_reading import FleetReading
from forewarn.features.prediction.hourly_residuals import GpuTypes, HourlyResiduals
from forewarn.features.prediction.instance_facts import InstanceFacts
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.prediction.residuals import ResidualFit
from forewarn.features.prediction.span_sums import GatheredSums
from forewarn.features.records.fleet_timeline import Fleet
from forewarn.features.time_units import HOUR
from forewarn.features.xid_severity import GRADED_CODES, severity_of_codes

__all__ = ["FeatureExtractor"]


@dataclass(frozen=True, slots=True)
class FeatureExtractor:
    """A feature plan fitted to training records: categories, codes and residual fits.

    Attributes
    ----------
    plan : FeaturePlan
    categories : dict of tuple of str
        Texts of each categorical column that get a one-hot column.
    codes : dict of tuple of int
        Most frequent codes of each code column.
    residuals : tuple of ResidualFit
        One per pair of the plan.
    """

    plan: FeaturePlan
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    codes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    residuals: tuple[ResidualFit, ...] = ()

    @classmethod
    def fit(cls, plan: FeaturePlan, fleet: Fleet, instances: Instances) -> Self:
        """Fit to training instances and to the records of a fleet, which end before t."""
        return cls.fit_values(plan, fleet, instances)[0]

    @classmethod
    def fit_values(
        cls,
        plan: FeaturePlan,
        fleet: Fleet,
        instances: Instances,
        span_sums: GatheredSums | None = None,
    ) -> tuple[Self, InstanceValues]:
        """Fit to training instances and return their feature values; each column is read once."""
        reading = FleetReading.from_fleet(
            plan, fleet, instances, with_codes=True, span_sums=span_sums
        )
        measures = cls.fit_to(reading)
        return measures, measures.values_of(reading)

    @classmethod
    def fit_to(cls, reading: FleetReading, rows: Int64Array | None = None) -> Self:
        """Fit to `rows` of a reading with codes; all instances by default."""
        plan, facts, readings = reading.plan, reading.facts, reading.readings
        categories = {name: facts.frequent_texts(name, rows) for name in plan.kinds.categorical}
        fits: tuple[ResidualFit, ...] = ()
        if plan.residuals:
            types = _gpu_types(plan, categories)
            fits = HourlyResiduals.fit(plan.residuals, types, readings.means).fits
        return cls(plan, categories, readings.codes, fits)

    def values(
        self,
        fleet: Fleet,
        instances: Instances,
        span_sums: GatheredSums | None = None,
    ) -> InstanceValues:
        """Return the feature values of instances.

        Parameters
        ----------
        fleet : Fleet
            A timeline or slices of one. Starts `plan.reach` before the first instance.
        instances : Instances
            n instances of that fleet.
        span_sums : GatheredSums, optional
            Filled in for later use of the same spans.
        """
        return self.values_of(
            FleetReading.from_fleet(self.plan, fleet, instances, span_sums=span_sums)
        )

    def values_of(self, reading: FleetReading) -> InstanceValues:
        """Return the feature values of the instances of a reading."""
        context = dict(self._context(reading))
        table = np.empty((len(context), len(reading.instances)), dtype=np.float32)
        names = tuple(context)
        for number, name in enumerate(names):
            table[number] = context.pop(name)
        return InstanceValues(reading.readings.sequence, table.T, reading.readings.names, names)

    def _context(self, reading: FleetReading) -> Iterator[tuple[str, Float32Array]]:
        readings, facts = reading.readings, reading.facts
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
            known = reading.failures, reading.instances, facts.slots
            yield from earlier_failures(*known, self.plan.reach)

    def _categories(self, facts: InstanceFacts) -> Iterator[tuple[str, Float32Array]]:
        # In plan order: the order of a dict may change when it is saved and loaded.
        for name in self.plan.kinds.categorical:
            known, codes = facts.texts[name], facts.codes[name]
            for text in self.categories[name]:
                number = known.index(text) if text in known else -2
                yield f"category:{name}={text}", (codes == number).astype(np.float32)

    def _codes(self, name: str, window: Float32Array) -> Iterator[tuple[str, Float32Array]]:
        """Count the codes in the window; `window` has shape (n, length)."""
        yield f"count:{name}", (window != 0).sum(axis=1, dtype=np.float32)
        for code in self.codes[name]:
            yield f"count:{name}={code}", (window == code).sum(axis=1, dtype=np.float32)
        since = np.argmax(window[:, ::-1] != 0, axis=1)
        since = np.where((window != 0).any(axis=1), since, self.plan.window_records)
        hours = since * (self.plan.interval / HOUR)
        yield f"window_since:{name}", hours.astype(np.float32)
        if name in GRADED_CODES:
            yield f"severity:{name}", severity_of_codes(name, window).max(axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "plan": self.plan.to_dict(),
            "categories": {name: list(texts) for name, texts in self.categories.items()},
            "codes": {name: list(codes) for name, codes in self.codes.items()},
            "residuals": [fit.to_dict() for fit in self.residuals],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read a dict from `to_dict`."""
        return cls(
            plan=FeaturePlan.from_dict(saved["plan"]),
            categories={name: tuple(texts) for name, texts in saved["categories"].items()},
            codes={name: tuple(codes) for name, codes in saved["codes"].items()},
            residuals=tuple(ResidualFit.from_dict(fit) for fit in saved["residuals"]),
        )


def _gpu_types(plan: FeaturePlan, categories: Mapping[str, tuple[str, ...]]) -> GpuTypes:
    """Return the first categorical feature as the GPU type."""
    if not plan.kinds.categorical:
        return GpuTypes(None)
    name = plan.kinds.categorical[0]
    return GpuTypes(name, categories[name])
