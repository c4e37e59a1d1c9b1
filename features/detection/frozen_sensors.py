"""Detects frozen sensors: series that carry no information about a machine."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array
from forewarn.features.compiled import compiled

__all__ = ["find_frozen", "longest_runs"]


@compiled
def _mark_constant_runs(series: Float32Array, longest: int, out: BoolArray) -> None:
    """Mark runs of one value that are too long, or a series of one value only."""
    for machine in range(series.shape[0]):
        row = series[machine]
        begin, n_runs, whole = -1, 0, 0
        for tick in range(row.shape[0] + 1):
            last = tick == row.shape[0]
            if not last and begin >= 0 and row[tick] == row[begin]:
                continue
            if begin >= 0 and not np.isnan(row[begin]):
                n_runs += 1
                whole = tick - begin
                inside = 0.0 < row[begin] < 1.0
                if inside and tick - begin >= longest:
                    out[machine, begin:tick] = True
            begin = tick
        if n_runs == 1 and whole >= longest:
            for tick in range(row.shape[0]):
                out[machine, tick] = not np.isnan(row[tick])


def find_frozen(series: Float32Array, longest: int) -> BoolArray:
    """Tell where a sensor is frozen: bit-identical values while most machines vary.

    A value at a limit of its metric does not count as frozen, because an idle or a fully loaded
    machine shows it too, unless the machine never shows anything else.

    Parameters
    ----------
    series : ndarray of shape (n_machines, n_ticks), float32
        Scaled by the limits of the metric.
    longest : int
        Longest run of one value, in ticks, that is not frozen.

    Returns
    -------
    ndarray of shape (n_machines, n_ticks), bool
    """
    still = np.zeros(series.shape, dtype=bool)
    _mark_constant_runs(np.ascontiguousarray(series), longest, still)
    never_varies = still.mean(axis=0, keepdims=True) > 0.5  # then the metric itself does not vary
    hangs: BoolArray = np.logical_and(still, ~never_varies)
    return hangs


@compiled
def _write_longest_runs(flags: BoolArray, out: Float32Array) -> None:
    for machine in range(flags.shape[0]):
        length = 0
        for tick in range(flags.shape[1]):
            length = length + 1 if flags[machine, tick] else 0
            out[machine] = max(out[machine], np.float32(length))


def longest_runs(flags: BoolArray) -> Float32Array:
    """Return the length of each machine's longest run, shape (n_machines,).

    Examples
    --------
    >>> longest_runs(np.array([[True, True, False, True], [False] * 4])).tolist()
    [2.0, 0.0]
    """
    out = np.zeros(len(flags), dtype=np.float32)
    _write_longest_runs(flags, out)
    return out
