"""Scores how far every machine is from its peers and from its own past."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.threads import in_parallel
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.own_past import REMEMBERED, Past, PastTerms
from forewarn.models.detection.peer_deviation import Deviations, medians_of_others

__all__ = ["past_scores"]

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_EARLY = 3  # blocks that serve as the past of a machine that has none
# Where a whole task slows down or changes phase, its machines need not follow alike: less than half
# of the change is no difference to act on.
_PROPORTIONAL = 0.5
# Of how a window varies about its mean: as much as the mean of 32 independent samples would. What a
# machine scatters by is not what it is slower by, but tells how far its means can be trusted.
_ROUGH = np.float32(0.03125)
_SUSPECT = 4.0  # blocks with such scores teach nothing about what is usual


def _medians(values: Floats, edges: Numbers, out: Floats, first: int, last: int) -> None:
    """Write medians of the windows of each block, where at least half of them have a value."""
    for block in range(first, last):
        windows = np.ascontiguousarray(values[edges[block] : edges[block + 1]].T)
        windows.sort(axis=1)  # NaN last
        n = (~np.isnan(windows)).sum(axis=1)
        enough = np.flatnonzero((2 * n >= windows.shape[1]) & (n > 0))
        out[enough, block] = windows[enough, n[enough] // 2]


def _block_medians(values: Floats, block_of: Numbers, n_blocks: int) -> Floats:
    """Return the (upper) median of every machine in every block."""
    edges = np.searchsorted(block_of, np.arange(n_blocks + 1))
    out = np.full((values.shape[1], n_blocks), np.nan, dtype=np.float32)
    in_parallel(partial(_medians, values, edges, out), n_blocks)
    return out


@compiled
def _usual(
    values: Floats, blocks: Numbers, until: int, early: int, remembered: int, out: Floats
) -> None:
    """Write the median of a machine's newest blocks up to one, or of its first ones.

    Where a pause comes soon, those before it are the first ones: who is different after it has not
    come back from it.
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


def _by_block(blocks: Numbers, numbers: Numbers, values: Floats, lag: int, machines: int) -> Floats:
    """Return what was usual for every machine when each of `numbers` was judged."""
    out = np.empty((len(numbers), machines), dtype=np.float32)
    for i, number in enumerate(numbers):
        _usual(values, blocks, number - lag, _EARLY, REMEMBERED, out[i])
    return out


def past_scores(
    deviations: Deviations,
    window: Numbers,
    groups: Numbers,
    terms: PastTerms,
    usual: HealthySpread,
    past: Past,
) -> tuple[Floats, Past]:
    """Return how much every machine stands out from its peers and from its own past.

    The difference from the others, less what is usual for the machine, is set against what is
    usual in healthy tasks, what the others of the task show at the same moment, and what the
    machine itself used to show. A machine without a past is compared with its first blocks.

    Parameters
    ----------
    deviations : Deviations
        Of n_windows windows.
    window : ndarray of shape (n_windows,), int
        Number of each window, the same in every call; ascending.
    groups : ndarray of shape (n_machines,), int
    terms : PastTerms
    usual : HealthySpread
    past : Past
        Of the same machines, from earlier calls.

    Returns
    -------
    ndarray of shape (n_windows, n_machines), float32
        NaN where nothing can be said.
    Past
        With the blocks that ended here; those in which a machine stood out teach nothing.
    """
    numbers, block_of = np.unique(window // terms.block, return_inverse=True)
    known = past.before(int(numbers[0])) if len(numbers) else past
    blocks = np.concatenate([known.blocks, numbers])
    bounds = usual.bounds(past.machines)
    scoring = _ScoringPass(
        deviations, block_of.astype(np.int64), numbers, blocks, groups, terms, usual, bounds, known
    )
    offsets, levels = (
        scoring.medians(deviations.offset, known.offset),
        scoring.medians(deviations.level, known.level),
    )
    scores, now = scoring.scored(offsets, levels)
    medians = _block_medians(scores, scoring.block_of, len(numbers))
    doubtful = np.zeros(now.offset.shape, dtype=bool)
    doubtful[:, len(known.blocks) :] = medians > _SUSPECT
    if doubtful.any():
        offsets[doubtful] = np.nan
        scores, now = scoring.scored(offsets, levels, doubtful)
    return scores, now


@dataclass(frozen=True, slots=True)
class _ScoringPass:
    """The windows of one call, and the numbers of their blocks."""

    deviations: Deviations
    block_of: Numbers
    numbers: Numbers
    blocks: Numbers
    groups: Numbers
    terms: PastTerms
    usual: HealthySpread
    bounds: tuple[Floats, Floats]
    known: Past

    def medians(self, values: Floats, before: Floats) -> Floats:
        """Return a machine's blocks, those of this call after those from before."""
        newest = _block_medians(values, self.block_of, len(self.numbers))
        return np.concatenate([before, newest], axis=1)

    def usual_by_block(self, values: Floats) -> Floats:
        """Return what is usual for each machine, by block of this call."""
        return _by_block(self.blocks, self.numbers, values, self.terms.lag, len(values))

    def shifts(self, levels: Floats, offsets: Floats) -> Floats:
        """Return how far what the others show has moved, by block of this call and machine."""
        others = levels - offsets
        moved = others[:, len(self.known.blocks) :].T - self.usual_by_block(others)
        sizes: Floats = np.nan_to_num(np.abs(moved))
        return sizes

    def scored(
        self, offsets: Floats, levels: Floats, doubtful: Flags | None = None
    ) -> tuple[Floats, Past]:
        """Return the scores, and the past as it is after them."""
        deviations, usual = self.deviations, self.usual
        forgiven = np.clip(np.nan_to_num(self.usual_by_block(offsets)), *self.bounds)
        apart = _apart(deviations, forgiven, self.block_of)
        spreads = self.medians(apart, self.known.spread)
        if doubtful is not None:
            spreads[doubtful] = np.nan
        own = np.clip(np.nan_to_num(self.usual_by_block(spreads)), 0.0, usual.spread)
        others = medians_of_others(apart, self.groups)
        floor = usual.deviation**2
        # Bounded, too: where half of four machines are faulty, everybody differs.
        beside = np.minimum(others, np.float32(usual.spread))
        allowed = np.sqrt(own**2 + (_PROPORTIONAL * self.shifts(levels, offsets)) ** 2)
        scores = _against(apart, beside, allowed, self.block_of, floor)
        return scores, Past(self.known.machines, self.blocks, offsets, spreads, levels)


def _apart(deviations: Deviations, forgiven: Floats, block_of: Numbers) -> Floats:
    """Return the size of the differences, less what is forgiven in each block."""
    out = np.empty(deviations.offset.shape, dtype=np.float32)
    parts = (deviations.offset, deviations.square, forgiven, block_of)
    in_parallel(lambda a, b: _take_off(*parts, a, b, out), len(out))
    return out


@compiled
def _take_off(
    offset: Floats,
    square: Floats,
    forgiven: Floats,
    block_of: Numbers,
    first: int,
    last: int,
    out: Floats,
) -> None:
    for w in range(first, last):
        for machine in range(offset.shape[1]):
            usual, now = forgiven[block_of[w], machine], offset[w, machine]
            # Anything between what it always was and what the others are is no fault.
            taken = min(max(now, min(usual, 0.0)), max(usual, 0.0))
            level = now - taken
            left = level * level + _ROUGH * (square[w, machine] - now * now)
            out[w, machine] = np.sqrt(max(left, 0.0)) if left == left else np.nan


def _against(apart: Floats, others: Floats, own: Floats, block_of: Numbers, floor: float) -> Floats:
    out = np.empty(apart.shape, dtype=np.float32)
    parts = (apart, others, own, block_of, floor)
    in_parallel(lambda a, b: _divide(*parts, a, b, out), len(out))
    return out


@compiled
def _divide(
    apart: Floats,
    others: Floats,
    own: Floats,
    block_of: Numbers,
    floor: float,
    first: int,
    last: int,
    out: Floats,
) -> None:
    for w in range(first, last):
        for machine in range(apart.shape[1]):
            usual = own[block_of[w], machine]
            beside = others[w, machine]
            out[w, machine] = apart[w, machine] / np.sqrt(floor + beside * beside + usual * usual)
