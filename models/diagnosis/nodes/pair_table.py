"""Evaluation of a table of pair tests: slow and failed nodes, links and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.models.diagnosis.nodes.fitted_table import (
    MEDIAN_ERROR,
    MIN_PARTNERS,
    SLOW_LIMIT,
    FittedTable,
    fit_table,
)
from forewarn.models.diagnosis.nodes.node_state import NodeState, evaluate_node
from forewarn.models.diagnosis.nodes.pair_matrix import PairTest, build_matrix

__all__ = ["Block", "LinkState", "PairVerdict", "evaluate_pairs"]

_LINK_SIGMAS: Final = 5.0  # a table has thousands of pairs, and sigma has its own error


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


def evaluate_pairs(
    nodes: Sequence[str], tests: Sequence[PairTest], block_of: Mapping[str, str] | None = None
) -> PairVerdict:
    """Return which nodes, links and blocks explain a table of pair tests.

    A bad pair of nodes that are not blamed is a link.

    Parameters
    ----------
    nodes : sequence of str
    tests : sequence of PairTest
    block_of : mapping of str to str, optional
        Block of each node, such as its rack, where it is known.
    """
    table = fit_table(build_matrix(nodes, tests), _block_numbers(nodes, block_of or {}))
    states = tuple(evaluate_node(table, number) for number in range(len(table.matrix.nodes)))
    is_split = len(set(table.parts[table.parts >= 0])) > 1
    blocks = tuple(_blocks(table, table.parts if is_split else table.fit.blocks))
    return PairVerdict(states, tuple(_links(table)), blocks)


def _block_numbers(nodes: Sequence[str], block_of: Mapping[str, str]) -> Int64Array | None:
    """Return the number of the block of each node; None unless there are two or more."""
    names = sorted({block_of[node] for node in nodes} if block_of else ())
    if len(names) < 2:
        return None
    return np.array([names.index(block_of[node]) for node in nodes], dtype=np.int64)


def _links(table: FittedTable) -> Iterator[LinkState]:
    """Yield bad pairs whose nodes are not blamed."""
    matrix, sigma = table.matrix, table.fit.sigma
    free = ~table.blamed
    valued = matrix.tested.sum(axis=1) >= MIN_PARTNERS
    bad = (matrix.failed & table.inside) | (table.ratios < SLOW_LIMIT)
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


def _blocks(table: FittedTable, numbers: Int64Array) -> Iterator[Block]:
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
    error = MEDIAN_ERROR * sigma * float(np.sqrt(2.0 / len(within) + 1.0 / len(across)))
    ratio = outer - inner
    ends = (float(np.exp(ratio - error)), float(np.exp(ratio + error)))
    return Block(names, float(np.exp(inner)), float(np.exp(outer)), float(np.exp(ratio)), ends)
