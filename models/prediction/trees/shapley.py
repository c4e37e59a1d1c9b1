"""Shapley values of boosted trees: the contribution of each column to the log odds.

For each leaf, an instance has a pattern of columns whose splits lead to the leaf. Few of the
possible patterns occur, so contributions are computed once per pattern (path-dependent values of
arXiv 1802.03888; patterns as in arXiv 2109.09847).
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
_PATTERN_SLOTS = 2048  # hash slots for the patterns of a batch; more than its rows


def shapley_values(leaves: LeafPaths, table: Float32Array) -> Float64Array:
    """Return what each column adds to the sum of the trees, relative to the training mean.

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
        # Column-major order: each leaf reads few columns of all rows.
        columns = np.ascontiguousarray(table[rows].T)
        added = np.zeros(columns.shape)
        _add_leaves(leaves, worth, columns, added)
        values[rows] = added.T

    map_threads(add, range(0, len(table), _BATCH_ROWS))
    return values


def _shapley_weights(k: int, n: int) -> float:
    """Return the Shapley weight of a coalition of k among n columns."""
    return 1.0 / (n * math.comb(n - 1, k)) if k < n else 0.0


@compiled
def _add_leaves(
    leaves: LeafPaths, worth: Float64Array, columns: Float32Array, added: Float64Array
) -> None:
    """Add the contributions of every leaf to each row; arrays have shape (n_columns, n_rows)."""
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
    """Fill `pattern` with one bit per column: whether all of its splits lead towards the leaf."""
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
    """Compute the contributions of a leaf to its n columns.

    A coalition of known columns reaches the leaf with the product of the shares of the unknown
    columns, or 0 if a known one leads elsewhere. The sum over coalitions (arXiv 1802.03888,
    equation 5) therefore uses the coefficients of the product of (x + share) over the matching
    columns.
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
            for k in range(n_there, 0, -1):  # divide the product by this factor
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
