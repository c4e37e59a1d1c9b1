"""Sums of distances between all machines of a task, and Minder's normal score of the sums."""

from __future__ import annotations

from typing import Literal

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array
from forewarn.features.compiled import vectorised
from forewarn.features.threads import parallel_for

__all__ = ["DISTANCES", "Distance", "distance_sums", "normal_scores"]

Distance = Literal["euclidean", "manhattan", "chebyshev"]
DISTANCES: tuple[Distance, ...] = ("euclidean", "manhattan", "chebyshev")


@vectorised
def _add_pairs(
    windows: Float32Array, present: BoolArray, first: int, last: int, kind: int, out: Float32Array
) -> None:
    """Add the distances of each machine to all others, place by place, for SIMD."""
    _, n_places, n_machines = windows.shape
    distances = np.empty(n_machines, np.float32)
    for w in range(first, last):
        for i in range(n_machines):
            if not present[w, i]:
                continue
            distances[:] = 0
            for position in range(n_places):
                own = windows[w, position, i]
                if kind == 0:
                    for j in range(n_machines):
                        difference = windows[w, position, j] - own
                        distances[j] += difference * difference
                elif kind == 1:
                    for j in range(n_machines):
                        distances[j] += abs(windows[w, position, j] - own)
                else:
                    for j in range(n_machines):
                        distances[j] = max(distances[j], abs(windows[w, position, j] - own))
            total = np.float32(0.0)
            if kind == 0:
                for j in range(n_machines):
                    total += np.sqrt(distances[j]) if present[w, j] else np.float32(0.0)
            else:
                for j in range(n_machines):
                    total += distances[j] if present[w, j] else np.float32(0.0)
            out[w, i] = total


def distance_sums(
    windows: Float32Array, present: BoolArray, distance: Distance = "euclidean"
) -> Float32Array:
    """Return the sum of the distances of each machine to all others, per window.

    Minder, section 4.4, step 1. The running time is quadratic in the number of machines.

    Parameters
    ----------
    windows : ndarray of shape (n_windows, n_places, n_machines), float32
    present : ndarray of shape (n_windows, n_machines), bool
        Absent machines are not compared.
    distance : {"euclidean", "manhattan", "chebyshev"}

    Returns
    -------
    ndarray of shape (n_windows, n_machines), float32
        NaN where a machine is absent.
    """
    out = np.full(present.shape, np.nan, dtype=np.float32)
    kind = DISTANCES.index(distance)
    parallel_for(lambda a, b: _add_pairs(windows, present, a, b, kind, out), len(present))
    return out


def normal_scores(sums: Float32Array) -> Float32Array:
    """Return (sum - mean) / deviation over the machines of each window; 0 where all are equal.

    With n machines no score exceeds sqrt(n - 1).
    """
    present = ~np.isnan(sums)
    n = np.maximum(present.sum(axis=1, keepdims=True), 1)
    filled = np.where(present, sums, 0.0).astype(np.float64)
    mean = filled.sum(axis=1, keepdims=True) / n
    spread = np.sqrt((np.where(present, filled - mean, 0.0) ** 2).sum(axis=1, keepdims=True) / n)
    scores = np.divide(filled - mean, spread, out=np.zeros_like(filled), where=spread > 1e-9)
    return np.where(present, scores, np.nan).astype(np.float32)
