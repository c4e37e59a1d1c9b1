"""Scores of each machine's deviation from its peers and from its own baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.threads import parallel_for
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.machine_baseline import (
    N_BASELINE_BLOCKS,
    BaselineParams,
    MachineBaseline,
)
from forewarn.models.detection.peer_deviation import Deviations, medians_of_others

__all__ = [
    "beyond_tolerance",
    "combined_excess",
    "past_offsets",
    "score_against_baseline",
    "tolerated_offsets",
]


_N_FIRST_BLOCKS = 3  # first blocks that serve as baseline for a machine without one
# When a whole task slows down or changes phase, its machines need not change equally: a difference
# below half of the common change is not a deviation.
_SHIFT_TOLERANCE = 0.5
# Share of a window's variance that counts: the variance of a mean of 32 independent samples.
# Scatter does not make a machine slower, but it limits how precisely its mean is known.
_ROUGHNESS_WEIGHT = np.float32(0.03125)
_MAX_BASELINE_SCORE = 4.0  # blocks with a higher median score stay out of the baseline


def _medians(
    values: Float32Array, edges: Int64Array, out: Float32Array, first: int, last: int
) -> None:
    """Write the median of each block in which at least half of the windows have a value."""
    for block in range(first, last):
        windows = np.ascontiguousarray(values[edges[block] : edges[block + 1]].T)
        windows.sort(axis=1)  # NaN last
        n = (~np.isnan(windows)).sum(axis=1)
        enough = np.flatnonzero((2 * n >= windows.shape[1]) & (n > 0))
        out[enough, block] = windows[enough, n[enough] // 2]


def _block_medians(values: Float32Array, block_of: Int64Array, n_blocks: int) -> Float32Array:
    """Return the (upper) median of every machine in every block."""
    edges = np.searchsorted(block_of, np.arange(n_blocks + 1))
    out = np.full((values.shape[1], n_blocks), np.nan, dtype=np.float32)
    parallel_for(partial(_medians, values, edges, out), n_blocks)
    return out


@compiled
def _baseline_medians(
    values: Float32Array,
    blocks: Int64Array,
    until: int,
    early: int,
    remembered: int,
    out: Float32Array,
) -> None:
    """Write the median of a machine's newest blocks up to `until`, or of its first blocks.

    If a pause follows early, only the blocks before it count as first blocks: a machine that
    differs after a pause may not have recovered from it.
    """
    n_machines, n_blocks = values.shape
    buffer = np.empty(max(n_blocks, 1), np.float32)
    for machine in range(n_machines):
        n = 0
        for k in range(n_blocks):
            if blocks[k] <= until and not np.isnan(values[machine, k]):
                buffer[n] = values[machine, k]
                n += 1
        if n >= early:
            out[machine] = np.median(buffer[max(0, n - remembered) : n])
            continue
        n, paused = 0, False
        for k in range(n_blocks):
            if n < early and not paused and not np.isnan(values[machine, k]):
                buffer[n] = values[machine, k]
                n += 1
                paused = k + 1 < n_blocks and blocks[k + 1] > blocks[k] + 1
        out[machine] = np.median(buffer[:n]) if n >= early or paused else np.float32(np.nan)


def _baseline_by_block(
    blocks: Int64Array, numbers: Int64Array, values: Float32Array, lag: int, machines: int
) -> Float32Array:
    """Return each machine's baseline for the time at which each of `numbers` is judged."""
    out = np.empty((len(numbers), machines), dtype=np.float32)
    for i, number in enumerate(numbers):
        _baseline_medians(values, blocks, number - lag, _N_FIRST_BLOCKS, N_BASELINE_BLOCKS, out[i])
    return out


def score_against_baseline(
    deviations: Deviations,
    usual: Deviations,
    window: Int64Array,
    groups: Int64Array,
    params: BaselineParams,
    healthy: HealthySpread,
    baseline: MachineBaseline,
    *,
    is_work: bool = False,
) -> tuple[Float32Array, MachineBaseline]:
    """Score how far each machine deviates from its peers and from its own baseline.

    The difference from the peers, minus the tolerated offset of the machine, is divided by the
    deviation expected of it. Three things make up that deviation: healthy tasks, the peers in
    the same window, and the machine's own baseline. A machine without a baseline is compared
    with its first blocks.

    Parameters
    ----------
    deviations : Deviations
        One row per window.
    usual : Deviations
        The same windows, or only their ends, from which the baseline is made.
    window : ndarray of shape (n_windows,), int
        Number of each window, the same in every call; ascending.
    groups : ndarray of shape (n_machines,), int
    params : BaselineParams
    healthy : HealthySpread
    baseline : MachineBaseline
        Of the same machines, from earlier calls.
    is_work : bool
        The metric is the machine's own work: what its peers' work lost by waiting for it is no
        change of the whole task.

    Returns
    -------
    ndarray of shape (n_windows, n_machines), float32
        NaN where a machine has no score.
    MachineBaseline
        Includes the blocks of this call, except those in which a machine deviated.
    """
    numbers, block_of = np.unique(window // params.block, return_inverse=True)
    known = baseline.before(int(numbers[0])) if len(numbers) else baseline
    blocks = np.concatenate([known.blocks, numbers])
    bounds = healthy.bounds(baseline.machines)
    scoring = _ScoringPass(
        deviations,
        block_of.astype(np.int64),
        numbers,
        blocks,
        groups,
        params,
        healthy,
        bounds,
        known,
        is_work,
    )
    offsets = scoring.medians(usual.offset, known.offset)
    levels = scoring.medians(usual.level, known.level)
    same = usual is deviations
    newest = offsets if same else scoring.medians(deviations.offset, known.offset)
    measured = np.concatenate([known.measured, newest[:, len(known.blocks) :]], axis=1)
    scores, now = scoring.scores(offsets, levels, measured)
    medians = _block_medians(scores, scoring.block_of, len(numbers))
    doubtful = np.zeros(now.offset.shape, dtype=bool)
    doubtful[:, len(known.blocks) :] = medians > _MAX_BASELINE_SCORE
    if doubtful.any():
        offsets[doubtful] = np.nan
        scores, now = scoring.scores(offsets, levels, measured, doubtful)
    return scores, now


@dataclass(frozen=True, slots=True)
class _ScoringPass:
    """The windows of one call and their block numbers."""

    deviations: Deviations
    block_of: Int64Array
    numbers: Int64Array
    blocks: Int64Array
    groups: Int64Array
    params: BaselineParams
    healthy: HealthySpread
    bounds: tuple[Float32Array, Float32Array]
    known: MachineBaseline
    is_work: bool

    def medians(self, values: Float32Array, before: Float32Array) -> Float32Array:
        """Return block medians: those of earlier calls, then those of this call."""
        newest = _block_medians(values, self.block_of, len(self.numbers))
        return np.concatenate([before, newest], axis=1)

    def baseline_by_block(self, values: Float32Array) -> Float32Array:
        """Return each machine's baseline, per block of this call."""
        return _baseline_by_block(self.blocks, self.numbers, values, self.params.lag, len(values))

    def shifts(self, levels: Float32Array, offsets: Float32Array) -> Float32Array:
        """Return how far the peers' values have moved, per block of this call and machine.

        Of a metric of work only as far as the machine moved with them.
        """
        moved = self._moves(levels - offsets)
        sizes: Float32Array = np.nan_to_num(np.abs(moved))
        if self.is_work:
            own = np.nan_to_num(self._moves(levels))
            sizes = np.where(own * moved > 0.0, np.minimum(sizes, np.abs(own)), np.float32(0.0))
        return sizes

    def _moves(self, values: Float32Array) -> Float32Array:
        """Return how far values are from their baseline, per block of this call and machine."""
        moved: Float32Array = values[:, len(self.known.blocks) :].T - self.baseline_by_block(values)
        return moved

    def scores(
        self,
        offsets: Float32Array,
        levels: Float32Array,
        measured: Float32Array,
        doubtful: BoolArray | None = None,
    ) -> tuple[Float32Array, MachineBaseline]:
        """Return the scores and the updated baseline."""
        deviations, healthy = self.deviations, self.healthy
        tolerated = _bounded(self.baseline_by_block(offsets), self.bounds)
        excess = _excess_deviation(deviations, tolerated, self.block_of)
        spreads = self.medians(excess, self.known.spread)
        if doubtful is not None:
            spreads[doubtful] = np.nan
        own = np.clip(np.nan_to_num(self.baseline_by_block(spreads)), 0.0, healthy.spread)
        others = medians_of_others(excess, self.groups)
        floor = healthy.deviation**2
        # Bounded as well: if two of four machines are faulty, all four deviate.
        expected = np.minimum(others, np.float32(healthy.spread))
        allowed = np.sqrt(own**2 + (_SHIFT_TOLERANCE * self.shifts(levels, offsets)) ** 2)
        scores = _relative_deviation(excess, expected, allowed, self.block_of, floor)
        parts = (offsets, spreads, levels, measured)
        return scores, MachineBaseline(self.known.machines, self.blocks, *parts)


def tolerated_offsets(
    baseline: MachineBaseline, numbers: Int64Array, params: BaselineParams, healthy: HealthySpread
) -> Float32Array:
    """Return the offset that is tolerated in each machine while each block is judged.

    Parameters
    ----------
    baseline : MachineBaseline
        As returned by `score_against_baseline`, which used the same offsets.
    numbers : ndarray of shape (n_blocks,), int
    params : BaselineParams
    healthy : HealthySpread

    Returns
    -------
    ndarray of shape (n_blocks, n_machines), float32
    """
    past = past_offsets(baseline, numbers, params)
    return _bounded(past, healthy.bounds(baseline.machines))


def past_offsets(
    baseline: MachineBaseline, numbers: Int64Array, params: BaselineParams
) -> Float32Array:
    """Return the offset that each machine had before each block, shape (n_blocks, n_machines)."""
    n = len(baseline.machines)
    return _baseline_by_block(baseline.blocks, numbers, baseline.offset, params.lag, n)


def _bounded(offsets: Float32Array, bounds: tuple[Float32Array, Float32Array]) -> Float32Array:
    """Return offsets within what healthy machines show; 0 where the past is unknown."""
    return np.clip(np.nan_to_num(offsets), *bounds)


def _excess_deviation(
    deviations: Deviations, tolerated: Float32Array, block_of: Int64Array
) -> Float32Array:
    """Return the absolute difference minus the tolerated offset of each block."""
    out = np.empty(deviations.offset.shape, dtype=np.float32)
    parts = (deviations.offset, deviations.square, tolerated, block_of)
    parallel_for(lambda a, b: _subtract_tolerance(*parts, a, b, out), len(out))
    return out


@compiled
def beyond_tolerance(difference: np.float32, usual: np.float32) -> np.float32:
    """Return what of a difference exceeds the machine's usual one.

    A value between the machine's old offset and the peers' value is no fault.
    """
    zero = np.float32(0.0)
    return difference - min(max(difference, min(usual, zero)), max(usual, zero))


@compiled
def combined_excess(mean: np.float32, square: np.float32) -> np.float32:
    """Return the excess of a window from the mean and the mean square of its differences."""
    left = mean * mean + _ROUGHNESS_WEIGHT * (square - mean * mean)
    return np.float32(np.sqrt(max(left, np.float32(0.0))) if left == left else np.nan)


@compiled
def _subtract_tolerance(
    offset: Float32Array,
    square: Float32Array,
    tolerated: Float32Array,
    block_of: Int64Array,
    first: int,
    last: int,
    out: Float32Array,
) -> None:
    for w in range(first, last):
        for machine in range(offset.shape[1]):
            now = offset[w, machine]
            level = beyond_tolerance(now, tolerated[block_of[w], machine])
            variance = square[w, machine] - now * now
            out[w, machine] = combined_excess(level, level * level + variance)


def _relative_deviation(
    excess: Float32Array,
    others: Float32Array,
    own: Float32Array,
    block_of: Int64Array,
    floor: float,
) -> Float32Array:
    out = np.empty(excess.shape, dtype=np.float32)
    parts = (excess, others, own, block_of, floor)
    parallel_for(lambda a, b: _divide(*parts, a, b, out), len(out))
    return out


@compiled
def _divide(
    excess: Float32Array,
    others: Float32Array,
    own: Float32Array,
    block_of: Int64Array,
    floor: float,
    first: int,
    last: int,
    out: Float32Array,
) -> None:
    for w in range(first, last):
        for machine in range(excess.shape[1]):
            own_spread = own[block_of[w], machine]
            spread = others[w, machine]
            out[w, machine] = excess[w, machine] / np.sqrt(
                floor + spread * spread + own_spread * own_spread
            )
