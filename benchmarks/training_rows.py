"""Trains a model of a study on selected instances, and scores others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from benchmarks.measured_fleet import Study

from forewarn.features.array_types import Float64Array, Int8Array, Int64Array
from forewarn.models.prediction.model_catalogue import make_model

__all__ = ["TrainingRows"]


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a study that a model is trained on.

    Attributes
    ----------
    rows, labels : ndarray of shape (n,)
    weights : ndarray of shape (n,)
        Failing instances have the same total weight as healthy ones.
    """

    rows: Int64Array
    labels: Int8Array
    weights: Float64Array

    @classmethod
    def select(
        cls,
        study: Study,
        rows: Int64Array,
        labels: Int8Array,
        *,
        half_life: float | None,
        negatives: int,
    ) -> Self:
        """Select all failing rows, and a number of healthy ones for each.

        The weight of an instance halves with each half-life (nanoseconds) of its age; None: equal
        weights.
        """
        weights, ends = np.ones(len(rows)), study.instances.end[rows]
        if half_life is not None:
            weights = 0.5 ** ((ends.max() - ends) / half_life)
        positive, negative = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
        rarest = np.argsort(study.hashes[rows[negative]])[: negatives * len(positive)]
        chosen = np.sort(np.append(positive, negative[rarest]))
        rows, labels, weights = rows[chosen], labels[chosen], weights[chosen]
        weights[labels == 1] *= weights[labels == 0].sum() / weights[labels == 1].sum()
        return cls(rows, labels, weights)

    def scores(self, study: Study, name: str, tested: Int64Array) -> Float64Array:
        """Train a model of the catalogue, and return its scores of the test rows."""
        encoder = study.encoder(self.rows)
        model = make_model(name, seed=study.recipe.seed, purge=study.recipe.horizon)
        inputs = encoder.encode(study.values.select(self.rows))
        ends = study.instances.end[self.rows]
        model.fit(inputs, self.labels, self.weights.astype(np.float32), ends)
        return model.score(encoder.encode(study.values.select(tested)))
