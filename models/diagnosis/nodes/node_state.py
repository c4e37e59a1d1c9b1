"""State of a node in a table of pair tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array
from forewarn.models.diagnosis.nodes.fitted_table import (
    MEDIAN_ERROR,
    MIN_PARTNERS,
    SLOW_LIMIT,
    FittedTable,
)

__all__ = ["NodeState", "evaluate_node"]


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


def evaluate_node(table: FittedTable, number: int) -> NodeState:
    """Return the state of a node, which holds in every block where the node may be.

    Parameters
    ----------
    table : FittedTable
    number : int
        Row of the node.
    """
    tested = table.matrix.tested[number] & table.inside[number]
    failed = table.matrix.failed[number] & tested
    slow = table.ratios[number] < SLOW_LIMIT
    partners = _partners(table, number)
    factor = interval = None
    state = "failed" if table.failed[number] else "unproven"
    if table.has_majority and partners.sum() >= MIN_PARTNERS:
        middle, low, high = _factor(table, number, partners)
        factor, interval = float(np.exp(middle)), (float(np.exp(low)), float(np.exp(high)))
        if state == "unproven" and table.slow[number]:
            is_proven = high < SLOW_LIMIT and not _may_share_block(table, number)
            state = "slow" if is_proven else "unproven"
        elif state == "unproven":
            is_proven = low >= SLOW_LIMIT and _has_few_bad_pairs(table, failed, slow, partners)
            state = "ok" if is_proven else "unproven"
    counts = (int(tested.sum()), int(slow.sum()), int(failed.sum()))
    return NodeState(table.matrix.nodes[number], state, factor, interval, *counts)


def _partners(table: FittedTable, number: int) -> BoolArray:
    """Return the partners that are not blamed, or all if those are too few."""
    known = np.isfinite(table.ratios[number])
    clear: BoolArray = known & ~table.blamed
    return clear if clear.sum() >= MIN_PARTNERS else known


def _factor(table: FittedTable, number: int, partners: BoolArray) -> tuple[float, float, float]:
    """Return the log of the factor, and its interval over all blocks that fit as well."""
    fit = table.fit
    own = fit.blocks == fit.blocks[number]
    numbers = fit.blocks[number] if fit.is_known else np.append(fit.blocks, -1)
    others = fit.blocks == np.unique(numbers)[:, None]
    shifts = fit.gap * np.vstack([np.zeros(len(own)), own.astype(np.float64) - others])
    moved = (table.ratios[number] + shifts)[:, partners]
    middle = np.median(moved, axis=1)
    sizes = np.abs(moved - middle[:, None])
    spread = np.maximum(fit.sigma, 1.4826 * np.median(sizes, axis=1))
    error = MEDIAN_ERROR * spread / np.sqrt(moved.shape[1])
    slack = max(-SLOW_LIMIT, 4.0 * fit.sigma)  # less than one bad link
    is_likely = sizes.sum(axis=1) <= sizes[0].sum() + slack
    low, high = (middle - error)[is_likely].min(), (middle + error)[is_likely].max()
    return float(middle[0]), float(low), float(high)


def _may_share_block(table: FittedTable, number: int) -> bool:
    """Return whether a slow node may be in a block with a node that is about as slow with others.

    Their pair was not tested, or is faster than each of them is with others. A node that was tested
    with no other may be in that block too. If all of its block is slow, the gap may be wider.
    """
    pairs = table.ratios[number]
    own = _middle(pairs)
    middles = np.array([_middle(row) for row in np.delete(table.ratios, number, axis=1)])
    margin = max(-SLOW_LIMIT / 2.0, 3.0 * table.fit.sigma)
    is_fast = pairs > np.fmin(own, middles) + margin
    is_slow = middles <= min(own - SLOW_LIMIT, SLOW_LIMIT / 2.0)
    is_tested_by_no_other = np.isfinite(pairs) & np.isnan(middles)
    mates = (is_slow & (is_fast | np.isnan(pairs))) | is_tested_by_no_other
    mates[number] = False
    block = table.fit.blocks == table.fit.blocks[number]
    if table.fit.is_known:
        mates &= block
    block[number] = False
    return bool(mates.any() or (block.any() and not (block & ~is_slow).any()))


def _middle(row: Float64Array) -> float:
    known = row[np.isfinite(row)]
    return float(np.median(known)) if len(known) else float("nan")


def _has_few_bad_pairs(
    table: FittedTable, failed: BoolArray, slow: BoolArray, partners: BoolArray
) -> bool:
    """Return whether less than a third of the pairs with nodes that are not blamed are bad."""
    bad = int(((failed | slow) & ~table.blamed).sum())
    count = int(partners.sum()) + int((failed & ~table.blamed).sum())
    return 3 * bad <= count or (bad < 3 and 2 * bad <= count)
