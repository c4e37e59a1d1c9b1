"""Robust fit of node effects and blocks to log bandwidths between pairs of nodes.

The model of a pair is ``log bandwidth = node + node + gap`` with the gap only within a block (leaf,
switch or rail). It is fitted by least absolute deviations, so single bad pairs have no influence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = ["BandwidthFit", "fit_bandwidths"]

_STEPS: Final = 40  # reweighted least squares; differences are below 0.1 % by then
_ROUGH_STEPS: Final = 12  # enough to compare blocks
_MAX_BLOCKS: Final = 32  # bounds the time of large tables
_TINY: Final = 1e-4  # residuals below this have equal weight
_CLIP: Final = 0.3  # a failed cable must not look like a leaf of its own
_MIN_BLOCK_NODES: Final = 5  # with four nodes, two leaves look like two fast pairs
_MIN_GAP: Final = -float(np.log(0.87))  # as the limit of a slow node
_GAP_SIGMAS: Final = 4.0  # clusters in pure noise reach 3


@dataclass(frozen=True, slots=True)
class BandwidthFit:
    """Fitted values of a table.

    Attributes
    ----------
    expected : Float64Array
        Log bandwidth of each pair if both its nodes were typical.
    sigma : float
        Robust scale of the residuals, in natural logarithms.
    blocks : Int64Array
        Block number of each node; all 0 without blocks.
    gap : float
        Log of the bandwidth within a block by that across; 0 without blocks.
    is_known : bool
        Whether the blocks were given, not found.
    """

    expected: Float64Array
    sigma: float
    blocks: Int64Array
    gap: float = 0.0
    is_known: bool = False


def fit_bandwidths(logs: Float64Array, known_blocks: Int64Array | None = None) -> BandwidthFit:
    """Fit node effects, then look for blocks in the residuals.

    Parameters
    ----------
    logs : Float64Array
        Symmetric log bandwidths; NaN where a pair has none, and on the diagonal.
    known_blocks : Int64Array, optional
        Block number of each node, where it is known; at least two blocks, from 0 on.
    """
    undivided = np.zeros(len(logs), dtype=np.int64)
    if not np.isfinite(logs).any():
        return BandwidthFit(np.zeros(logs.shape), 0.0, undivided)
    blocks = undivided
    is_known = known_blocks is not None
    if known_blocks is not None:
        blocks = known_blocks
    elif len(logs) >= _MIN_BLOCK_NODES:
        blocks = _dissolve_unclear(logs, _find_blocks(logs, undivided))
    nodes, gap = _fit_effects(logs, blocks)
    same = _same(blocks)
    residuals = logs - nodes[:, None] - nodes - gap * same
    if blocks.any() and not _is_block_structure(residuals, blocks, gap):
        return _without_blocks(logs, undivided, is_known)
    expected = _level(logs - gap * same) + gap * same
    sigma = _scale(residuals, np.isfinite(nodes).sum() + 1)
    return BandwidthFit(expected, sigma, blocks, gap if blocks.any() else 0.0, is_known)


def _without_blocks(logs: Float64Array, undivided: Int64Array, is_known: bool) -> BandwidthFit:
    nodes, _ = _fit_effects(logs, undivided)
    residuals = logs - nodes[:, None] - nodes
    expected = np.full(logs.shape, _level(logs))
    sigma = _scale(residuals, np.isfinite(nodes).sum())
    return BandwidthFit(expected, sigma, undivided, is_known=is_known)


def _level(logs: Float64Array) -> float:
    """Return the typical node's median over its partners.

    Node effects would do only if every node had partners in every block.
    """
    known = np.isfinite(logs)
    return _median(np.array([_median(row) for row in logs[known.any(axis=1)]]))


def _same(blocks: Int64Array) -> Float64Array:
    """Return 1 for pairs within a block, and 0 for all if there is one block."""
    if not blocks.any():
        return np.zeros((len(blocks), len(blocks)))
    return np.equal(blocks[:, None], blocks).astype(np.float64)


def _fit_effects(
    logs: Float64Array, blocks: Int64Array, steps: int = _STEPS
) -> tuple[Float64Array, float]:
    """Return node effects (NaN without a pair) and the gap, by least absolute deviations."""
    known = np.isfinite(logs)
    values, same = np.where(known, logs, 0.0), _same(blocks) * known
    weights = known.astype(np.float64)
    solution = np.zeros(len(logs) + 1)
    for _ in range(steps):
        solution = _solve(values, same, weights, solution)
        nodes, gap = solution[:-1], solution[-1]
        residuals = np.abs(values - nodes[:, None] - nodes - gap * same)
        weights = known / np.maximum(residuals, _TINY)
    return np.where(known.any(axis=1), solution[:-1], np.nan), float(solution[-1])


def _solve(
    values: Float64Array, same: Float64Array, weights: Float64Array, start: Float64Array
) -> Float64Array:
    """Solve the weighted normal equations of node effects and gap, the gap last."""
    from scipy.sparse.linalg import cg  # slow to import

    inner = weights * same
    normal = np.zeros((len(values) + 1, len(values) + 1))
    normal[:-1, :-1] = weights
    normal[:-1, -1] = normal[-1, :-1] = inner.sum(axis=1)
    diagonal = np.append(weights.sum(axis=1), inner.sum() / 2.0)
    diagonal += 1e-9 * max(1.0, float(weights.max(initial=0.0)))
    np.fill_diagonal(normal, diagonal)
    right = np.append((weights * values).sum(axis=1), (inner * values).sum() / 2.0)
    scale = 1.0 / np.sqrt(diagonal)
    normal *= scale
    normal *= scale[:, None]
    solution, _ = cg(normal, scale * right, x0=start / scale, rtol=1e-6, maxiter=200)
    return np.asarray(scale * solution, dtype=np.float64)


def _find_blocks(logs: Float64Array, blocks: Int64Array) -> Int64Array:
    """Alternate between node effects given blocks and blocks given node effects.

    The cut with the lowest absolute residuals wins, and among equals the one with fewest blocks.
    """
    cuts: list[Int64Array] = []
    losses: list[float] = []
    for turn in range(3):
        nodes, _ = _fit_effects(logs, blocks)
        centre = np.zeros(len(logs)) if turn == 1 else nodes - np.nanmedian(nodes)
        residuals = logs - centre[:, None] - centre
        residuals -= np.nanmedian(residuals)
        for cut in _cuts(residuals):
            if not any(np.array_equal(cut, other) for other in cuts):
                cuts.append(cut)
                losses.append(_loss(logs, cut))
        close = [n for n, loss in enumerate(losses) if loss <= 1.02 * min(losses)]
        blocks = cuts[min(close, key=lambda n: len(np.unique(cuts[n])))]
    return blocks


def _cuts(residuals: Float64Array) -> list[Int64Array]:
    """Return the cuts of a dendrogram of the nodes' profiles of residuals, NaN where unknown."""
    from scipy.cluster.hierarchy import cut_tree, linkage  # slow to import
    from scipy.spatial.distance import squareform

    profiles = np.clip(np.where(np.isfinite(residuals), residuals, 0.0), -_CLIP, _CLIP)
    known = np.isfinite(residuals)
    distances = np.array(
        [
            (np.abs(profiles - row) * (known & has)).sum(axis=1)
            / np.maximum(1, (known & has).sum(axis=1))
            for row, has in zip(profiles, known, strict=True)
        ]
    )
    # A fast pair is close even where its ends have few partners in common.
    distances -= np.where(known, profiles, 0.0) / len(residuals)
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(np.maximum(distances, 0.0), checks=False), "average")
    most = min(_MAX_BLOCKS, len(residuals) // 2 + 1)
    return [
        np.asarray(cut, dtype=np.int64)
        for cut in cut_tree(tree, n_clusters=range(2, max(3, most + 1))).T
    ]


def _loss(logs: Float64Array, blocks: Int64Array) -> float:
    """Return the sum of absolute residuals of the fit with these blocks."""
    nodes, gap = _fit_effects(logs, blocks, _ROUGH_STEPS)
    return float(np.nansum(np.abs(logs - nodes[:, None] - nodes - gap * _same(blocks))))


def _dissolve_unclear(logs: Float64Array, blocks: Int64Array) -> Int64Array:
    """Split blocks into single nodes unless most members are faster within than to others.

    Two slow nodes, or a slow node with one fast partner, would else be blocks of two.
    """
    numbers = blocks.copy()
    for number in np.unique(blocks):
        members = blocks == number
        gaps = [
            _median(row[members]) - _median(row[~members]) >= _MIN_GAP / 2.0
            for row in logs[members]
            if np.isfinite(row).any()
        ]
        if 3 * sum(gaps) <= 2 * len(gaps):
            numbers[members] = len(blocks) + np.flatnonzero(members)
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _median(values: Float64Array) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _is_block_structure(residuals: Float64Array, blocks: Int64Array, gap: float) -> bool:
    """Return whether the blocks are large enough and their gap is clear of the noise."""
    sizes = np.sort(np.bincount(blocks))
    upper: BoolArray = np.triu(np.isfinite(residuals), 1)
    noise = 1.4826 * float(np.median(np.abs(residuals[upper])))
    return bool(sizes[-1] >= 3 and sizes[-2] >= 2 and gap >= max(_MIN_GAP, _GAP_SIGMAS * noise))


def _scale(residuals: Float64Array, parameters: int) -> float:
    """Return the scale without the residuals that the fit makes zero, one per parameter."""
    sizes = np.sort(np.abs(residuals[np.triu(np.isfinite(residuals), 1)]))[parameters:]
    middle = float(sizes[(len(sizes) - 1) // 2]) if len(sizes) else 0.0
    return max(0.005, 1.4826 * middle)
