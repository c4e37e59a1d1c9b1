"""From instances to what models take: measured, then put into buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from forewarn.features.buckets import Buckets
from forewarn.features.inputs import Inputs, InstanceValues
from forewarn.features.instances import Instances
from forewarn.features.measures import Measures, Plan
from forewarn.features.timeline import Timeline

__all__ = ["Encoder"]


@dataclass(frozen=True, slots=True)
class Encoder:
    """Measures and the buckets of their values, both fitted on training instances only."""

    measures: Measures
    sequence: Buckets
    context: Buckets

    @classmethod
    def fit(
        cls, plan: Plan, timeline: Timeline, instances: Instances
    ) -> tuple[Self, InstanceValues]:
        """Fit to the training instances; return their measured values too."""
        measures = Measures.fit(plan, timeline, instances)
        values = measures.values(timeline, instances)
        return cls(measures, Buckets.fit(values.sequence), Buckets.fit(values.context)), values

    def encode(self, values: InstanceValues) -> Inputs:
        """Put measured values into buckets."""
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
            "sequence_edges": [edges.tolist() for edges in self.sequence.edges],
            "context_edges": [edges.tolist() for edges in self.context.edges],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave."""
        sequence, context = (
            Buckets(tuple(np.array(edges, dtype=np.float32) for edges in saved[name]))
            for name in ("sequence_edges", "context_edges")
        )
        return cls(Measures.from_dict(saved["measures"]), sequence, context)
