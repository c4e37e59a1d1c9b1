"""From instances to what models take: measured, then put into buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from forewarn.features.prediction.buckets import Buckets
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.model_inputs import InputColumns, InstanceValues, ModelInputs
from forewarn.features.records.fleet_timeline import Fleet

__all__ = ["Encoder"]


@dataclass(frozen=True, slots=True)
class Encoder:
    """Measures and the buckets of their values, both fitted on training instances only.

    Attributes
    ----------
    measures : Measures
    sequence, context : Buckets
    columns : Columns
        What the buckets are of.
    """

    measures: FeatureExtractor
    sequence: Buckets
    context: Buckets
    columns: InputColumns

    @classmethod
    def fit(
        cls, plan: FeaturePlan, fleet: Fleet, instances: Instances
    ) -> tuple[Self, InstanceValues]:
        """Fit to the training instances; return their measured values too."""
        measures, values = FeatureExtractor.fit_values(plan, fleet, instances)
        return cls.from_values(measures, values), values

    @classmethod
    def from_values(cls, measures: FeatureExtractor, values: InstanceValues) -> Self:
        """Fit to what some measures gave of the training instances."""
        buckets = Buckets.fit(values.sequence), Buckets.fit(values.context)
        return cls(measures, *buckets, values.columns)

    def encode(self, values: InstanceValues) -> ModelInputs:
        """Put measured values into buckets.

        Raises
        ------
        InputError
            If they are of other columns, or in another order.
        """
        self.columns.refuse_others(values.columns)
        return ModelInputs(
            self.sequence.encode(values.sequence),
            self.context.encode(values.context),
            values.sequence_names,
            values.context_names,
            self.sequence.levels,
            self.context.levels,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "measures": self.measures.to_dict(),
            "columns": self.columns.to_dict(),
            "sequence_edges": [edges.tolist() for edges in self.sequence.edges],
            "context_edges": [edges.tolist() for edges in self.context.edges],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave."""
        sequence, context = (
            Buckets.from_lists(saved[name]) for name in ("sequence_edges", "context_edges")
        )
        columns = InputColumns.from_dict(saved["columns"])
        for names, buckets in ((columns.sequence, sequence), (columns.context, context)):
            if len(names) != len(buckets.edges):
                raise ValueError(f"{len(buckets.edges)} columns have edges, {len(names)} a name")
        return cls(FeatureExtractor.from_dict(saved["measures"]), sequence, context, columns)
