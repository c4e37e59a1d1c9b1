"""Expected sensor readings: temperature from power, power from utilization, and the residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Float64Array, FloatingArray
from forewarn.features.compiled import compiled

__all__ = ["RESIDUAL_SAMPLE", "ResidualFit"]


_N_KNOTS = 5
_KNOT_QUANTILES = (0.005, 0.995)
RESIDUAL_SAMPLE = 50_000


@dataclass(frozen=True, slots=True)
class ResidualFit:
    """A piecewise linear expectation of y given x, with an offset per group.

    Attributes
    ----------
    knots : ndarray of shape (n_knots,)
        Points where the slope may change; x is clipped to the outer ones.
    weights : ndarray of shape (n_knots,)
        Intercept and slopes.
    offsets : ndarray of shape (n_groups,)
    """

    knots: Float64Array
    weights: Float64Array
    offsets: Float64Array

    def expected(self, x: FloatingArray, group: npt.NDArray[np.integer]) -> Float64Array:
        """Return the expected y in the shape of x; NaN where x is missing."""
        expected, line = np.empty(x.shape), np.cumsum(self.weights)
        offsets = np.append(self.offsets, 0.0)
        _expect(x.ravel(), group.ravel(), self.knots, line, offsets, expected.ravel())
        return expected

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {name: getattr(self, name).tolist() for name in ("knots", "weights", "offsets")}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """Read a dict from `to_dict`."""
        return cls(*(np.array(saved[name], dtype=float) for name in cls.__slots__))

    @classmethod
    def fit(
        cls, x: Float64Array, y: Float64Array, group: npt.NDArray[np.integer], n_groups: int
    ) -> Self:
        """Fit by least squares on complete pairs of readings.

        Parameters
        ----------
        x, y : ndarray of shape (n,)
        group : ndarray of shape (n,)
            Number of the GPU's type, -1 unknown.
        n_groups : int

        Returns
        -------
        ResidualFit
            Expects 0 everywhere if there are fewer than ten complete pairs.
        """
        both = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        both = both[:: max(1, len(both) // RESIDUAL_SAMPLE)]
        if len(both) < 10:
            return cls(np.array([0.0, 1.0]), np.zeros(2), np.zeros(n_groups))
        x, y, group = x[both], y[both], group[both]
        # Clipping limits the influence of outliers.
        y = np.clip(y, *np.quantile(y, _KNOT_QUANTILES))
        knots = np.unique(np.quantile(x, np.linspace(*_KNOT_QUANTILES, _N_KNOTS)))
        knots = knots if len(knots) > 1 else np.array([knots[0], knots[0] + 1.0])
        offset_columns = (group[:, None] == np.arange(n_groups)).astype(float)
        design = np.hstack([_basis(x, knots), offset_columns])
        penalty = 1e-6 * len(y) * np.eye(design.shape[1])
        solved = np.linalg.solve(design.T @ design + penalty, design.T @ y)
        return cls(knots, solved[: len(knots)], solved[len(knots) :])


@compiled
def _expect(
    x: FloatingArray,
    group: npt.NDArray[np.integer],
    knots: Float64Array,
    line: Float64Array,
    offsets: Float64Array,
    expected: Float64Array,
) -> None:
    """Interpolate each x between the knots and add the offset of its group."""
    last = len(knots) - 1
    for i in range(len(x)):
        value, piece = np.float64(x[i]), 0
        while piece < last and value >= knots[piece + 1]:
            piece += 1
        level = line[piece]
        if np.isnan(value):
            level = np.nan
        elif piece < last and value > knots[piece]:
            slope = (line[piece + 1] - line[piece]) / (knots[piece + 1] - knots[piece])
            level = slope * (value - knots[piece]) + line[piece]
        expected[i] = level + offsets[group[i]]


def _basis(x: Float64Array, knots: Float64Array) -> Float64Array:
    """Return a constant and, per segment, how far x reaches into it, in segment widths."""
    low, width = knots[:-1], np.diff(knots)
    pieces = np.clip((x[:, None] - low) / width, 0.0, 1.0)
    return np.hstack([np.where(np.isnan(x), np.nan, 1.0)[:, None], pieces])
