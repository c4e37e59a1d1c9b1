"""Encoding of instances for models: feature extraction followed by bucketing."""

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
    """A feature extractor and the buckets of its values, both fitted on training instances only.

    Attributes
    ----------
    measures : FeatureExtractor
    sequence, context : Buckets
    columns : InputColumns
        Columns of the buckets.
    """

    measures: FeatureExtractor
    sequence: Buckets
    context: Buckets
    columns: InputColumns

    @classmethod
    def fit(
        cls, plan: FeaturePlan, fleet: Fleet, instances: Instances
    ) -> tuple[Self, InstanceValues]:
        """Fit to the training instances; also return their feature values."""
        measures, values = FeatureExtractor.fit_values(plan, fleet, instances)
        return cls.from_values(measures, values), values

    @classmethod
    def from_values(cls, measures: FeatureExtractor, values: InstanceValues) -> Self:
        """Fit buckets to the feature values of training instances."""
        buckets = Buckets.fit(values.sequence), Buckets.fit(values.context)
        return cls(measures, *buckets, values.columns)

    def encode(self, values: InstanceValues) -> ModelInputs:
        """Replace feature values by bucket numbers.

        Raises
        ------
        InputError
            If the columns or their order differ.
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
        """Return a JSON-serializable dict."""
        return {
            "measures": self.measures.to_dict(),
            "columns": self.columns.to_dict(),
            "sequence_edges": [edges.tolist() for edges in self.sequence.edges],
            "context_edges": [edges.tolist() for edges in self.context.edges],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read a dict from `to_dict`."""
        sequence, context = (
            Buckets.from_lists(saved[name]) for name in ("sequence_edges", "context_edges")
        )
        columns = InputColumns.from_dict(saved["columns"])
        for names, buckets in ((columns.sequence, sequence), (columns.context, context)):
            if len(names) != len(buckets.edges):
                raise ValueError(
                    f"got edges of {len(buckets.edges)} columns, expected {len(names)}"
                )
        return cls(FeatureExtractor.from_dict(saved["measures"]), sequence, context, columns)
