"""Distributions of repeated measurements, compared by the area between distribution functions."""

from __future__ import annotations

from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = [
    "harmful_shares",
    "medoid",
    "quantile_functions",
    "reference_quantiles",
    "relative_areas",
]

_MAX_LEVELS: Final = 256  # bounds the memory of a unit with very many values


def quantile_functions(values: Float64Array, counts: Int64Array) -> Float64Array:
    """Return the quantile function of each unit at equal steps.

    Units with equally many values keep all of them, so that areas between their distribution
    functions are exact; otherwise they are exact to a step.

    Parameters
    ----------
    values : Float64Array
        Measurements, one unit after the other; finite.
    counts : Int64Array of shape (n_units,)
        How many of them each unit has, at least 1.

    Returns
    -------
    Float64Array of shape (n_units, n_levels)

    Examples
    --------
    >>> quantile_functions(np.array([3.0, 1.0, 5.0]), np.array([2, 1])).tolist()
    [[1.0, 3.0], [5.0, 5.0]]
    """
    n_levels = min(int(counts.max()), _MAX_LEVELS)
    starts = np.cumsum(counts) - counts
    quantiles = np.empty((len(counts), n_levels))
    for n_values in np.unique(counts):
        units = np.flatnonzero(counts == n_values)
        if len(units) == len(counts):
            ordered = np.sort(values.reshape(len(counts), n_values), axis=1)
        else:
            ordered = np.sort(values[starts[units][:, None] + np.arange(n_values)], axis=1)
        if n_values == n_levels:
            quantiles[units] = ordered
        else:
            levels = (np.arange(n_levels) + 0.5) / n_levels
            quantiles[units] = ordered[:, (levels * n_values).astype(np.int64)]
    return quantiles


def reference_quantiles(quantiles: Float64Array, included: BoolArray) -> Float64Array:
    """Return the pointwise median of quantile functions, itself one; linear in the units."""
    chosen = quantiles if included.all() else quantiles[included]
    return np.median(np.ascontiguousarray(chosen.T), axis=1)


def relative_areas(
    quantiles: Float64Array, reference: Float64Array, scale: float | Float64Array
) -> Float64Array:
    """Return the area between distribution functions, as a share of a scale.

    With the median of the reference as the scale, one minus it is the similarity.

    Parameters
    ----------
    quantiles : Float64Array of shape (n_units, n_levels)
    reference : Float64Array of shape (n_levels,) or (n_units, n_levels)
    scale : float or Float64Array of shape (n_units,)
        Not 0.
    """
    return np.asarray(np.abs(quantiles - reference).mean(axis=1) / np.abs(scale))


def harmful_shares(
    quantiles: Float64Array, reference: Float64Array, *, higher_is_better: bool
) -> Float64Array:
    """Return the share of each area that lies on the harmful side, 0 of an empty area.

    Parameters
    ----------
    quantiles, reference : Float64Array
        As for `relative_areas`.
    higher_is_better : bool
    """
    differences = reference - quantiles if higher_is_better else quantiles - reference
    areas = np.abs(differences).sum(axis=1)
    harmful = np.maximum(differences, 0.0).sum(axis=1)
    return np.asarray(np.divide(harmful, areas, out=np.zeros(len(areas)), where=areas > 0))


def medoid(quantiles: Float64Array) -> int:
    """Return the unit with the least sum of areas to all others, quadratic in the units."""
    sums = [np.abs(quantiles - row).mean(axis=1).sum() for row in quantiles]
    return int(np.argmin(sums))
