"""A table of pair tests by expected bandwidth, with the nodes that explain its bad pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.models.diagnosis.nodes.bandwidth_fit import BandwidthFit, fit_bandwidths
from forewarn.models.diagnosis.nodes.pair_matrix import PairMatrix

__all__ = ["MEDIAN_ERROR", "MIN_PARTNERS", "SLOW_LIMIT", "FittedTable", "fit_table"]

SLOW_LIMIT: Final = float(np.log(0.87))  # healthy nodes of real tables reach 0.91
MIN_PARTNERS: Final = 3
MEDIAN_ERROR: Final = 1.96 * 1.2533  # half of a 95 % interval of a median of normal values


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A fitted table.

    Attributes
    ----------
    matrix : PairMatrix
    fit : BandwidthFit
    parts : Int64Array
        Part of the fabric of each node, -1 if it passed with none.
    inside : BoolArray
        Pairs that are not between two parts.
    failed, slow : BoolArray
        Nodes that explain failed pairs, and slow ones.
    ratios : Float64Array
        Log of bandwidth by expected bandwidth; NaN where there is none, and for failed nodes.
    """

    matrix: PairMatrix
    fit: BandwidthFit
    parts: Int64Array
    inside: BoolArray
    failed: BoolArray
    slow: BoolArray
    ratios: Float64Array

    @property
    def blamed(self) -> BoolArray:
        """Nodes that are slow or failed."""
        return self.failed | self.slow

    @property
    def has_majority(self) -> bool:
        """Whether over half of the tested nodes have three partners, so that typical is known."""
        counts = self.matrix.tested.sum(axis=1)
        return bool(2 * (counts >= MIN_PARTNERS).sum() > (counts > 0).sum())


def fit_table(matrix: PairMatrix, known_blocks: Int64Array | None = None) -> FittedTable:
    """Fit a table without its failed nodes.

    A node is blamed if over half of its pairs with nodes that are not blamed are bad, and at least
    three are.

    Parameters
    ----------
    matrix : PairMatrix
    known_blocks : Int64Array, optional
        Of `fit_bandwidths`.
    """
    parts = _split_parts(matrix)
    inside = (parts[:, None] == parts) | (parts[:, None] < 0) | (parts < 0)
    failed = _blame(matrix.failed & inside, matrix.tested & inside)
    if failed.all():  # more likely the test itself
        failed = np.zeros_like(failed)
    logs = np.where(failed[:, None] | failed, np.nan, matrix.logs)
    fit = fit_bandwidths(logs, known_blocks)
    ratios = logs - fit.expected
    slow = _blame(ratios < SLOW_LIMIT, np.isfinite(ratios))
    return FittedTable(matrix, fit, parts, inside, failed, slow, ratios)


def _split_parts(matrix: PairMatrix) -> Int64Array:
    """Return the parts, connected by passed pairs; one if no two parts have three and two nodes."""
    from scipy.sparse.csgraph import connected_components  # slow to import

    _, labels = connected_components(np.isfinite(matrix.logs), directed=False)
    sizes = np.bincount(labels)
    largest = np.sort(sizes)[::-1]
    if len(largest) < 2 or largest[0] < 3 or largest[1] < 2:
        return np.zeros(len(labels), dtype=np.int64)
    return np.where(sizes[labels] > 1, labels, -1).astype(np.int64)


def _blame(bad: BoolArray, tested: BoolArray) -> BoolArray:
    """Return the nodes that explain bad pairs, the worst first, each without those before it."""
    blamed = np.zeros(len(bad), dtype=bool)
    while True:
        left = tested & ~blamed
        counts, totals = (bad & left).sum(axis=1), left.sum(axis=1)
        shares = np.where(blamed | (counts < MIN_PARTNERS), 0.0, counts / np.maximum(totals, 1))
        if shares.max(initial=0.0) <= 0.5:
            return blamed
        blamed |= shares == shares.max()
