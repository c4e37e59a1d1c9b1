"""Comparison of the units of one group, such as all GPUs of one type, by one check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array
from forewarn.models.inspection.criterion import MIN_UNITS, HealthyTail, healthy_units
from forewarn.models.inspection.distributions import (
    harmful_shares,
    reference_quantiles,
    relative_areas,
)

__all__ = ["MIN_EFFECT", "Comparison", "compare_levels", "compare_scatter", "compare_with_accepted"]

MIN_EFFECT: Final = 0.01
"""Smallest distance that counts, as a share of the reference, however equal the machines are."""

_MIN_HARMFUL: Final = 0.25  # a wider distribution has a half, one that is only better has none
_MAX_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True)
class Comparison:
    """Distances of units to a reference, and which of them look healthy.

    Attributes
    ----------
    references : Float64Array
        Median of the reference; of shape (n_units,) if each unit has its own, else (1,).
    distances : Float64Array of shape (n_units,)
        Area between distribution functions, by the median of the reference.
    harmful : BoolArray of shape (n_units,)
        Whether the difference is one for the worse.
    healthy, outliers : BoolArray of shape (n_units,)
        Units from which the criterion may be learned, and those among them that look otherwise.
    """

    references: Float64Array
    distances: Float64Array
    harmful: BoolArray
    healthy: BoolArray
    outliers: BoolArray

    @property
    def tail(self) -> HealthyTail | None:
        """Return the tail of the healthy distances; None if there are too few units."""
        if self.healthy.sum() < MIN_UNITS:
            return None
        return HealthyTail.from_distances(
            self.distances[self.healthy], self.distances[self.outliers]
        )

    def beyond(self, limit: float | Float64Array) -> BoolArray:
        """Tell which units exceed a criterion, or the smallest effect if that is larger."""
        return self.harmful & (self.distances > np.maximum(limit, MIN_EFFECT))


def compare_levels(
    quantiles: Float64Array, *, higher_is_better: bool, judged: BoolArray | None = None
) -> Comparison | None:
    """Compare units with the median of those that are no outliers, until these do not change.

    Parameters
    ----------
    quantiles : Float64Array of shape (n_units, n_levels)
        Quantile functions.
    higher_is_better : bool
    judged : BoolArray of shape (n_units,), optional
        Rows that may be part of the reference, at least `MIN_UNITS`; all by default. The others,
        such as earlier runs, only get a distance.

    Returns
    -------
    Comparison or None
        None if the reference is 0, to which nothing has a relative distance.
    """
    judged = np.ones(len(quantiles), dtype=np.bool_) if judged is None else judged
    compared = _compare(quantiles, judged, lambda reference: float(np.median(reference)))
    if compared is None:
        return None
    reference, distances, healthy = compared
    harm = harmful_shares(quantiles, reference, higher_is_better=higher_is_better)
    return Comparison(
        np.array([np.median(reference)]),
        distances,
        harm >= _MIN_HARMFUL,
        healthy,
        judged & ~healthy,
    )


def compare_scatter(quantiles: Float64Array, judged: BoolArray | None = None) -> Comparison | None:
    """Compare how the values of units scatter around their own median; only more is harmful.

    A machine that is slow now and then, or unsteady, differs little in level and much in this.

    Parameters
    ----------
    quantiles, judged
        As for `compare_levels`.

    Returns
    -------
    Comparison or None
        None if units have one value, or the reference is 0.
    """
    if quantiles.shape[1] < 2:
        return None
    medians = np.median(quantiles, axis=1, keepdims=True)
    centred = quantiles - medians
    judged = np.ones(len(quantiles), dtype=np.bool_) if judged is None else judged
    scale = float(np.median(medians[judged]))
    compared = _compare(centred, judged, lambda _: scale)
    if compared is None:
        return None
    reference, distances, healthy = compared
    harmful = np.abs(centred).sum(axis=1) > np.abs(reference).sum()
    return Comparison(np.array([scale]), distances, harmful, healthy, judged & ~healthy)


def _compare(
    quantiles: Float64Array, judged: BoolArray, scale_of: Callable[[Float64Array], float]
) -> tuple[Float64Array, Float64Array, BoolArray] | None:
    """Return reference, distances, and which units are healthy."""
    healthy = judged
    for _ in range(_MAX_ROUNDS):
        reference = reference_quantiles(quantiles, healthy)
        scale = scale_of(reference)
        if scale == 0.0:
            return None
        distances = relative_areas(quantiles, reference, scale)
        before, healthy = healthy, healthy_units(distances, judged)
        if np.array_equal(before, healthy):
            break
    return reference, distances, healthy


def compare_with_accepted(
    quantiles: Float64Array,
    accepted: Float64Array,
    *,
    higher_is_better: bool,
    judged: BoolArray,
) -> Comparison:
    """Compare each unit with its own accepted values.

    Parameters
    ----------
    quantiles, accepted : Float64Array of shape (n_units, n_levels)
        Quantile functions at the same levels. Where the median of `accepted` is 0 or missing, the
        distance is NaN, and the unit is neither healthy nor beyond any limit.
    higher_is_better : bool
    judged : BoolArray of shape (n_units,)
        Rows from which healthy distances may be learned.
    """
    references = np.median(accepted, axis=1)
    scales = np.where(references == 0.0, np.nan, references)
    distances = relative_areas(quantiles, accepted, scales)
    usable = judged & np.isfinite(distances)
    enough = int(usable.sum()) >= MIN_UNITS
    healthy = healthy_units(distances, usable) if enough else usable
    harm = harmful_shares(quantiles, accepted, higher_is_better=higher_is_better)
    return Comparison(references, distances, harm >= _MIN_HARMFUL, healthy, usable & ~healthy)
