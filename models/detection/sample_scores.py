"""Which samples of a machine deviate: the scores of windows, made exact at the ends.

The mean of a window finds what no sample shows, but a short deviation raises all windows that touch
it. A duration counted in windows would then depend on their length and on the size of the fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forewarn.features.array_types import Float32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.threads import parallel_for
from forewarn.models.detection.baseline_scoring import beyond_tolerance, combined_excess
from forewarn.models.detection.peer_deviation import medians_of_others

__all__ = ["SampleScoring"]

_EDGE_SHARE = np.float32(0.5)  # of the deviation of its window: below it, a sample lies outside
_EVEN_SHARE = np.float32(0.5)  # windows that differ by less lie in one deviation


@dataclass(frozen=True)
class SampleScoring:
    """Samples of one metric, from which the scores of single samples are derived.

    Attributes
    ----------
    series : ndarray of shape (n_machines, n_ticks), float32
        Scaled samples; NaN where one is missing.
    groups : ndarray of shape (n_machines,), int
    tolerated : ndarray of shape (n_blocks, n_machines), float32
        Tolerated offset of each machine in each block of the call.
    block_of : ndarray of shape (n_ticks,), int
    length : int
        Samples per window.
    """

    series: Float32Array
    groups: Int64Array
    tolerated: Float32Array
    block_of: Int64Array
    length: int

    def scores(
        self, windows: Float32Array, first: Int64Array, machines: Int64Array
    ) -> Float32Array:
        """Return the scores of all samples of some machines.

        If the windows that contain a sample have about the same score, the sample has the lowest of
        them. Otherwise, the deviation begins, ends or pauses there: a sample that deviates by at
        least half as much as the strongest window nearby has its own score, up to the highest of
        its windows. Any other one has the lowest score of its windows.

        Parameters
        ----------
        windows : ndarray of shape (n_machines, n_windows), float32
            Scores of windows; NaN where one is missing.
        first : ndarray of shape (n_windows,), int
            First tick of each window.
        machines : ndarray of shape (n,), int

        Returns
        -------
        ndarray of shape (n, n_ticks), float32
            NaN where the sample is missing, or no window contains it.
        """
        n_ticks = self.series.shape[1]
        dense = np.full((len(machines), n_ticks - self.length + 1), np.nan, dtype=np.float32)
        dense[:, first] = windows[machines]
        differences = self._differences[machines]
        tolerated = np.ascontiguousarray(self.tolerated[:, machines].T)
        out = np.full(differences.shape, np.nan, dtype=np.float32)
        parts = (dense, differences, tolerated, self.block_of, self.length, out)
        parallel_for(lambda a, b: _write_sample_scores(*parts, a, b), len(machines))
        return out

    @cached_property
    def _differences(self) -> Float32Array:
        """Return the differences of all machines from their peers, shape (n_machines, n_ticks)."""
        others = medians_of_others(np.ascontiguousarray(self.series.T), self.groups)
        differences: Float32Array = self.series - others.T
        return differences


@compiled
def _write_sample_scores(
    windows: Float32Array,
    differences: Float32Array,
    tolerated: Float32Array,
    block_of: Int64Array,
    length: int,
    out: Float32Array,
    first: int,
    last: int,
) -> None:
    excess = np.empty(differences.shape[1], np.float32)
    for machine in range(first, last):
        for tick in range(len(excess)):
            usual = tolerated[machine, block_of[tick]]
            excess[tick] = beyond_tolerance(differences[machine, tick], usual)
        for tick in range(len(excess)):
            if excess[tick] == excess[tick]:
                out[machine, tick] = _sample_score(windows[machine], excess, tick, length)


@compiled
def _sample_score(
    windows: Float32Array, excess: Float32Array, tick: int, length: int
) -> np.float32:
    """Return the score of one sample from those of the windows that contain it."""
    begin, end = max(tick - length + 1, 0), min(tick + 1, len(windows))
    low, high = np.float32(np.inf), np.float32(-1.0)
    for window in range(begin, end):
        if windows[window] > high:
            high = windows[window]
        if windows[window] < low:
            low = windows[window]
    if high < 0.0:
        return np.float32(np.nan)
    if low >= _EVEN_SHARE * high:
        return np.float32(low)
    # The windows next to it as well: they lie further inside the deviation.
    inside, most = -1, np.float32(-1.0)
    for window in range(max(begin - length + 1, 0), min(end + length - 1, len(windows))):
        if windows[window] > most:
            most, inside = windows[window], window
    own, whole = abs(excess[tick]), _window_excess(excess, inside, length)
    if own < _EDGE_SHARE * whole or whole == 0.0:
        return np.float32(low)
    return np.float32(min(high, most * own / whole))


@compiled
def _window_excess(excess: Float32Array, first: int, length: int) -> np.float32:
    total, square = np.float32(0.0), np.float32(0.0)
    for tick in range(first, first + length):
        total += excess[tick]
        square += excess[tick] * excess[tick]
    return combined_excess(np.float32(total / length), np.float32(square / length))
