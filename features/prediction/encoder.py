"""From instances to what models take: measured, then put into buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from forewarn.features.prediction.buckets import Buckets
from forewarn.features.prediction.inputs import Columns, Inputs, InstanceValues
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.measurement import Measures
from forewarn.features.prediction.plan import Plan
from forewarn.features.records.timeline import Fleet

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

    measures: Measures
    sequence: Buckets
    context: Buckets
    columns: Columns

    @classmethod
    def fit(cls, plan: Plan, fleet: Fleet, instances: Instances) -> tuple[Self, InstanceValues]:
        """Fit to the training instances; return their measured values too."""
        measures, values = Measures.fit_values(plan, fleet, instances)
        return cls.of_values(measures, values), values

    @classmethod
    def of_values(cls, measures: Measures, values: InstanceValues) -> Self:
        """Fit to what some measures gave of the training instances."""
        buckets = Buckets.fit(values.sequence), Buckets.fit(values.context)
        return cls(measures, *buckets, values.columns)

    def encode(self, values: InstanceValues) -> Inputs:
        """Put measured values into buckets.

        Raises
        ------
        InputError
            If they are of other columns, or in another order.
        """
        self.columns.refuse_others(values.columns)
        return Inputs(
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
            Buckets.of_lists(saved[name]) for name in ("sequence_edges", "context_edges")
        )
        columns = Columns.from_dict(saved["columns"])
        for names, buckets in ((columns.sequence, sequence), (columns.context, context)):
            if len(names) != len(buckets.edges):
                raise ValueError(f"{len(buckets.edges)} columns have edges, {len(names)} a name")
        return cls(Measures.from_dict(saved["measures"]), sequence, context, columns)
