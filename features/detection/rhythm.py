"""The rhythm of a job: the period with which a metric repeats itself on all machines."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array

__all__ = ["find_period"]

_MIN_CORRELATION = 0.3
_NEARLY = 0.9  # of the highest correlation: the shortest such period is the rhythm
_MAX_MACHINES = 64
_MIN_PERIODS = 4  # in a series


def find_period(series: Float32Array, shortest: int, longest: int) -> int:
    """Return the period of a metric in ticks, or 0 if it does not repeat.

    The autocorrelation is averaged over the machines, because a slow machine has the rhythm of
    the others.

    Parameters
    ----------
    series : ndarray of shape (n_machines, n_ticks), float32
        NaN where a sample is missing.
    shortest, longest : int
        Ticks; a period outside is not searched.

    Examples
    --------
    >>> steps = np.tile(np.repeat([1.0, 0.0], [14, 6]), 30).astype(np.float32)
    >>> find_period(np.stack([steps, steps]), 8, 120)
    20
    """
    n_ticks = series.shape[1]
    longest = min(longest, n_ticks // _MIN_PERIODS)
    seen = np.flatnonzero(np.isfinite(series).mean(axis=1) > 0.5)
    chosen = seen[np.linspace(0, len(seen) - 1, min(len(seen), _MAX_MACHINES)).astype(int)]
    if longest <= shortest or not len(chosen):
        return 0
    correlation = _autocorrelation(series[chosen])[: longest + 1]
    inside = correlation[1:-1]
    peaks = np.flatnonzero((inside >= correlation[:-2]) & (inside >= correlation[2:])) + 1
    peaks = peaks[(peaks >= shortest) & (correlation[peaks] >= _MIN_CORRELATION)]
    if not len(peaks):
        return 0
    return int(peaks[correlation[peaks] >= _NEARLY * correlation[peaks].max()][0])


def _autocorrelation(series: Float32Array) -> Float64Array:
    """Return the mean autocorrelation of the machines, by lag."""
    filled = np.where(np.isfinite(series), series, np.nanmean(series, axis=1, keepdims=True))
    steps = filled - filled.mean(axis=1, keepdims=True)
    n = steps.shape[1]
    spectrum = np.abs(np.fft.rfft(steps, 2 * n, axis=1)) ** 2
    power = np.fft.irfft(spectrum, axis=1)[:, :n]
    scale = np.maximum(power[:, :1], 1e-12)
    pairs = 1.0 - np.arange(n) / n  # fewer pairs of samples at longer lags
    return np.asarray((power / scale).mean(axis=0) / pairs, dtype=np.float64)
