"""Evaluation of a table of pair tests: slow and failed nodes, links and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.models.diagnosis.nodes.bandwidth_fit import BandwidthFit, fit_bandwidths
from forewarn.models.diagnosis.nodes.pair_matrix import PairMatrix, PairTest, build_matrix

__all__ = ["Block", "LinkState", "NodeState", "PairVerdict", "evaluate_pairs"]

_LIMIT: Final = float(np.log(0.87))  # healthy nodes of real tables reach 0.91
_MIN_PARTNERS: Final = 3
_LINK_SIGMAS: Final = 5.0  # a table has thousands of pairs, and sigma has its own error
_MEDIAN_ERROR: Final = 1.96 * 1.2533  # half of a 95 % interval of a median of normal values


@dataclass(frozen=True, slots=True)
class NodeState:
    """State of a node: `ok`, `slow`, `failed` or `unproven`.

    `factor` is the median share of the expected bandwidth, with a 95 % interval; None without three
    partners. `slow_with` and `failed_with` count its pairs with `partners`.
    """

    node: str
    state: str
    factor: float | None
    interval: tuple[float, float] | None
    partners: int
    slow_with: int
    failed_with: int


@dataclass(frozen=True, slots=True)
class LinkState:
    """A pair that is `slow` or `failed` though its nodes are not, or `unproven`."""

    a: str
    b: str
    state: str
    factor: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes that are faster within than to others; `across` is None if all those pairs fail.

    `within` and `across` are median bandwidths, `ratio` is across by within with a 95 % interval.
    """

    nodes: tuple[str, ...]
    within: float
    across: float | None
    ratio: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Result for a table: all nodes, the bad links, and the blocks if there are several."""

    nodes: tuple[NodeState, ...]
    links: tuple[LinkState, ...]
    blocks: tuple[Block, ...]


def evaluate_pairs(nodes: Sequence[str], tests: Sequence[PairTest]) -> PairVerdict:
    """Return which nodes, links and blocks explain a table of pair tests.

    A node is blamed if over half of its pairs with nodes that are not blamed are bad, and at least
    three are. A bad pair of other nodes is a link.

    Parameters
    ----------
    nodes : sequence of str
    tests : sequence of PairTest
    """
    matrix = build_matrix(nodes, tests)
    parts = _split_parts(matrix)
    inside = (parts[:, None] == parts) | (parts[:, None] < 0) | (parts < 0)
    failed = _blame(matrix.failed & inside, matrix.tested & inside)
    if failed.all():  # more likely the test itself
        failed = np.zeros_like(failed)
    logs = np.where(failed[:, None] | failed, np.nan, matrix.logs)
    fit = fit_bandwidths(logs)
    ratios = logs - fit.expected
    slow = _blame(ratios < _LIMIT, np.isfinite(ratios))
    table = _Table(matrix, fit, ratios, failed, slow, inside)
    states = tuple(_node_state(table, number) for number in range(len(matrix.nodes)))
    split = len(set(parts[parts >= 0])) > 1
    blocks = tuple(_blocks(table, parts if split else fit.blocks))
    return PairVerdict(states, tuple(_links(table)), blocks)


@dataclass(frozen=True, slots=True)
class _Table:
    matrix: PairMatrix
    fit: BandwidthFit
    ratios: Float64Array
    failed: BoolArray
    slow: BoolArray
    inside: BoolArray

    @property
    def blamed(self) -> BoolArray:
        """Nodes that are slow or failed."""
        return self.failed | self.slow


def _split_parts(matrix: PairMatrix) -> Int64Array:
    """Return the part of the fabric of each node, -1 if it passed with none.

    Parts are connected by passed pairs. A table is split if two parts have three and two nodes.
    """
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
        shares = np.where(blamed | (counts < _MIN_PARTNERS), 0.0, counts / np.maximum(totals, 1))
        if shares.max(initial=0.0) <= 0.5:
            return blamed
        blamed |= shares == shares.max()


def _node_state(table: _Table, number: int) -> NodeState:
    tested = table.matrix.tested[number] & table.inside[number]
    failed, slow = table.matrix.failed[number] & tested, table.ratios[number] < _LIMIT
    values = _partner_ratios(table, number)
    factor, low, high = _median(values, table.fit.sigma)
    proven = len(values) >= _MIN_PARTNERS
    state = "unproven"
    if table.failed[number]:
        state = "failed"
    elif proven and table.slow[number] and high < _LIMIT and not _is_fast_in_group(table, number):
        state = "slow"
    elif proven and not table.slow[number] and low >= _LIMIT:
        bad = int(((failed | slow) & ~table.blamed).sum())
        most = len(values) + int((failed & ~table.blamed).sum())
        state = "unproven" if 3 * bad > most and (bad >= 3 or 2 * bad > most) else "ok"
    return NodeState(
        table.matrix.nodes[number],
        state,
        float(np.exp(factor)) if proven else None,
        (float(np.exp(low)), float(np.exp(high))) if proven else None,
        int(tested.sum()),
        int(slow.sum()),
        int(failed.sum()),
    )


def _is_fast_in_group(table: _Table, number: int) -> bool:
    """Return whether a slow node is fast with another that is slow with most, as in a block."""
    known = np.isfinite(table.ratios)
    slow = table.ratios < _LIMIT
    mostly_slow = 2 * slow.sum(axis=1) > known.sum(axis=1)
    return bool((known[number] & ~slow[number] & mostly_slow).any())


def _partner_ratios(table: _Table, number: int) -> Float64Array:
    """Return the values with partners that are not blamed, or with all if those are too few."""
    known = np.isfinite(table.ratios[number])
    clear = known & ~table.blamed
    chosen = clear if clear.sum() >= _MIN_PARTNERS else known
    return np.asarray(table.ratios[number][chosen], dtype=np.float64)


def _median(values: Float64Array, sigma: float) -> tuple[float, float, float]:
    """Return the median and its 95 % interval."""
    if not len(values):
        return 0.0, 0.0, 0.0
    middle = float(np.median(values))
    spread = max(sigma, 1.4826 * float(np.median(np.abs(values - middle))))
    error = _MEDIAN_ERROR * spread / float(np.sqrt(len(values)))
    return middle, middle - error, middle + error


def _links(table: _Table) -> Iterator[LinkState]:
    """Yield bad pairs whose nodes are not blamed."""
    matrix, sigma = table.matrix, table.fit.sigma
    free = ~table.blamed
    valued = matrix.tested.sum(axis=1) >= _MIN_PARTNERS
    bad = (matrix.failed & table.inside) | (table.ratios < _LIMIT)
    for a, b in np.argwhere(np.triu(bad & free & free[:, None])):
        names = (matrix.nodes[a], matrix.nodes[b])
        ratio = float(table.ratios[a, b])
        if matrix.failed[a, b]:
            yield LinkState(*names, "failed", None, None)
        elif not (valued[a] and valued[b]):
            yield LinkState(*names, "unproven", float(np.exp(ratio)), None)
        elif ratio < -_LINK_SIGMAS * sigma:
            ends = (float(np.exp(ratio - 1.96 * sigma)), float(np.exp(ratio + 1.96 * sigma)))
            yield LinkState(*names, "slow", float(np.exp(ratio)), ends)


def _blocks(table: _Table, numbers: Int64Array) -> Iterator[Block]:
    """Yield the blocks of two nodes or more, if there are several."""
    if len(set(numbers)) < 2:
        return
    logs, sigma = table.matrix.logs, table.fit.sigma
    for number in dict.fromkeys(int(n) for n in numbers if n >= 0):
        members = (numbers == number) & ~table.failed
        within = logs[np.ix_(members, members)]
        within = within[np.isfinite(within)]
        if not len(within):
            continue
        across = logs[np.ix_(members, ~members & ~table.failed)]
        across = across[np.isfinite(across)]
        names = tuple(n for n, is_in in zip(table.matrix.nodes, members, strict=True) if is_in)
        yield _block(names, within, across, sigma)


def _block(
    names: tuple[str, ...], within: Float64Array, across: Float64Array, sigma: float
) -> Block:
    inner = float(np.median(within))
    if not len(across):
        return Block(names, float(np.exp(inner)), None, None, None)
    outer = float(np.median(across))
    error = _MEDIAN_ERROR * sigma * float(np.sqrt(2.0 / len(within) + 1.0 / len(across)))
    ratio = outer - inner
    ends = (float(np.exp(ratio - error)), float(np.exp(ratio + error)))
    return Block(names, float(np.exp(inner)), float(np.exp(outer)), float(np.exp(ratio)), ends)
