"""Shapley values of boosted trees: what each column adds to the log odds of an instance.

The paths of a leaf either hold for an instance or do not, column by column, and few of the possible
patterns occur: what a leaf gives each of its columns is worked out once for each pattern
(path-dependent values of arXiv 1802.03888; patterns as in arXiv 2109.09847).
"""

from __future__ import annotations

import math

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.threads import map_threads
from forewarn.models.prediction.trees.leaf_paths import LeafPaths

__all__ = ["shapley_values"]

_BATCH_ROWS = 1024
_PATTERN_SLOTS = 2048  # for the patterns of so many rows, so that there is always a free one


def shapley_values(leaves: LeafPaths, table: Float32Array) -> Float64Array:
    """Return what each column adds to the sum of the trees, against the mean of their training.

    Parameters
    ----------
    leaves : LeafPaths
    table : ndarray of shape (n, n_columns)
        Without NaN.

    Returns
    -------
    ndarray of shape (n, n_columns)
    """
    values = np.empty(table.shape)
    most = int(np.diff(leaves.first_slot).max(initial=1))
    worth = np.array([[_shapley_weights(k, n) for k in range(most)] for n in range(most + 1)])

    def add(begin: int) -> None:
        rows = slice(begin, begin + _BATCH_ROWS)
        # Column after column in memory: a leaf asks for few of them, of all rows.
        columns = np.ascontiguousarray(table[rows].T)
        added = np.zeros(columns.shape)
        _add_leaves(leaves, worth, columns, added)
        values[rows] = added.T

    map_threads(add, range(0, len(table), _BATCH_ROWS))
    return values


def _shapley_weights(k: int, n: int) -> float:
    """Return the share of the orders of n columns in which k certain ones come before another."""
    return 1.0 / (n * math.comb(n - 1, k)) if k < n else 0.0


@compiled
def _add_leaves(
    leaves: LeafPaths, worth: Float64Array, columns: Float32Array, added: Float64Array
) -> None:
    """Add what every leaf gives the columns of each row; both have shape (n_columns, n_rows)."""
    most, n_rows = worth.shape[1], columns.shape[1]
    pattern, where = np.empty(n_rows, dtype=np.int64), np.empty(n_rows, dtype=np.int64)
    known = np.empty(_PATTERN_SLOTS, dtype=np.int64)
    parts, room = np.empty((_PATTERN_SLOTS, most)), np.empty((2, most + 1))
    for leaf in range(len(leaves.value)):
        first, last = leaves.first_slot[leaf], leaves.first_slot[leaf + 1]
        share = leaves.share[first:last]
        _find_patterns(leaves, leaf, len(share), columns, pattern)
        known[:] = -1
        for row in range(n_rows):
            at = (pattern[row] * 0x9E3779B1 >> 16) % _PATTERN_SLOTS
            while known[at] != pattern[row]:
                if known[at] < 0:
                    known[at] = pattern[row]
                    _distribute_leaf(
                        leaves.value[leaf], share, known[at], worth[len(share)], room, parts[at]
                    )
                else:
                    at = (at + 1) % _PATTERN_SLOTS
            where[row] = at
        for i in range(len(share)):
            line = added[leaves.slot_column[first + i]]
            for row in range(n_rows):
                line[row] += parts[where[row], i]


@compiled
def _find_patterns(
    leaves: LeafPaths, leaf: int, n: int, columns: Float32Array, pattern: Int64Array
) -> None:
    """Put a bit for each of n columns into `pattern`: whether all its steps go on to the leaf."""
    pattern[:] = (1 << n) - 1
    for step in range(leaves.first_step[leaf], leaves.first_step[leaf + 1]):
        line, threshold = columns[leaves.column[step]], leaves.threshold[step]
        below, others = leaves.below[step], ~(1 << leaves.slot[step])
        for row in range(len(pattern)):
            goes = (np.float64(line[row]) <= threshold) == below
            pattern[row] &= others | -np.int64(goes)


@compiled
def _distribute_leaf(
    value: float,
    share: Float64Array,
    pattern: int,
    worth: Float64Array,
    room: Float64Array,
    parts: Float64Array,
) -> None:
    """Work out what a leaf gives each of its n columns.

    A set of known columns reaches the leaf with the product of the shares of the others, and with 0
    if one of it leads elsewhere. So the sum over sets of the columns that lead there (arXiv
    1802.03888, equation 5) is one over the coefficients of the product of their (x + share).
    """
    product, rest = room
    product[:], product[0], n_there, others = 0.0, 1.0, 0, value
    for i in range(len(share)):
        if pattern >> i & 1:
            n_there += 1
            for k in range(n_there, 0, -1):
                product[k] = product[k - 1] + share[i] * product[k]
            product[0] *= share[i]
        else:
            others *= share[i]
    for i in range(len(share)):
        if pattern >> i & 1:
            rest[n_there] = 0.0
            for k in range(n_there, 0, -1):  # the product without this one: a division
                rest[k - 1] = product[k] - share[i] * rest[k]
            sets = 0.0
            for k in range(n_there):
                sets += worth[k] * rest[k]
            parts[i] = (1.0 - share[i]) * others * sets
        else:
            sets = 0.0
            for k in range(n_there + 1):
                sets += worth[k] * product[k]
            parts[i] = -others * sets
