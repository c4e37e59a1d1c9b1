"""Alternative vectors by which machines are compared, for studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.models.detection.denoiser import LstmVae

__all__ = ["Concatenated", "Moments", "WindowMeans", "fit_moments"]


_EXPLAINED = 0.99  # share of the variance that the components retain


def _views(series: Float32Array, length: int) -> Float32Array:
    """Return windows as (parts, windows, length, machines)."""
    views = np.lib.stride_tricks.sliding_window_view(np.nan_to_num(series), length, axis=2)
    windows: Float32Array = views.transpose(0, 2, 3, 1)
    return windows


@dataclass(frozen=True, slots=True)
class Concatenated:
    """The denoised windows of several metrics as one vector (Minder's CON)."""

    denoisers: Sequence[LstmVae]

    def reconstruct(self, series: Float32Array) -> Float32Array:
        """Return vectors of windows (`Denoiser.reconstruct`)."""
        parts = [
            denoiser.reconstruct(series[i : i + 1]) for i, denoiser in enumerate(self.denoisers)
        ]
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True, slots=True)
class WindowMeans:
    """The mean of a window only: the simplest representation."""

    length: int

    def reconstruct(self, series: Float32Array) -> Float32Array:
        """Return vectors of windows (`Denoiser.reconstruct`)."""
        means = _views(series, self.length).mean(axis=2, dtype=np.float32)
        return np.ascontiguousarray(means.transpose(1, 0, 2))


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean, deviation, skewness and kurtosis of every metric, whitened.

    Their Euclidean distance is the Mahalanobis distance of Minder's baseline (section 6.1).

    Attributes
    ----------
    length : int
    whitening : ndarray of shape (4 * parts, kept)
        Principal components of the moments, standardised and divided by their own deviation.
    """

    length: int
    whitening: Float32Array

    def reconstruct(self, series: Float32Array) -> Float32Array:
        """Return vectors of windows (`Denoiser.reconstruct`)."""
        moments = _moments(series, self.length)
        return np.ascontiguousarray(np.einsum("wfm,fk->wkm", moments, self.whitening))


def _moments(series: Float32Array, length: int) -> Float32Array:
    """Return four moments of every metric, shape (windows, 4 * parts, machines)."""
    views = _views(series, length)
    mean = views.mean(axis=2, keepdims=True)
    rest = views - mean
    deviation = np.sqrt((rest**2).mean(axis=2)) + 1e-4
    skewness = (rest**3).mean(axis=2) / deviation**3
    kurtosis = (rest**4).mean(axis=2) / deviation**4
    stacked = np.concatenate([mean[:, :, 0], deviation, skewness, kurtosis])
    by_window: Float32Array = stacked.transpose(1, 0, 2).astype(np.float32)
    return by_window


def fit_moments(tasks: Sequence[Float32Array], length: int) -> Moments:
    """Fit principal components to the scaled series (parts, machines, ticks) of some tasks."""
    rows = []
    for series in tasks:
        moments = _moments(series, length).transpose(0, 2, 1)
        rows.append(moments.reshape(-1, moments.shape[2])[::37])
    table = np.concatenate(rows).astype(np.float64)
    # Kurtosis is large and has no unit: unscaled, it would dominate every component.
    scale = table.std(axis=0) + 1e-9
    values, vectors = np.linalg.eigh(np.cov(table / scale, rowvar=False))
    order = np.argsort(values)[::-1]
    share = np.cumsum(values[order]) / values.sum()
    chosen = order[: int(np.searchsorted(share, _EXPLAINED)) + 1]
    whitening = vectors[:, chosen] / np.sqrt(values[chosen] + 1e-9) / scale[:, None]
    return Moments(length, whitening.astype(np.float32))
