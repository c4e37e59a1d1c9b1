"""Scoring of boosted trees without LightGBM, whose import takes longer than scoring a list."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.features.compiled import compiled

__all__ = ["CompiledTrees"]


class CompiledTrees(NamedTuple):
    """Splits and leaves of all trees in flat arrays.

    Attributes
    ----------
    first_split, first_leaf : ndarray of shape (n_trees + 1,)
        Offsets of each tree; the last entry is the total.
    column : ndarray of shape (n_splits,)
        Column of the split.
    threshold : ndarray of shape (n_splits,)
    decision : ndarray of shape (n_splits,)
        One of `DECISIONS`.
    left, right : ndarray of shape (n_splits,)
        Next split in the same tree if the column is at most, or above, the threshold. Leaf k is
        encoded as -1 - k.
    value : ndarray of shape (n_leaves,)
    """

    first_split: Int64Array
    first_leaf: Int64Array
    column: Int64Array
    threshold: Float64Array
    decision: Int64Array
    left: Int64Array
    right: Int64Array
    value: Float64Array

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse LightGBM's text format for trees with numeric splits (`check_tree_text`)."""
        trees = text[: text.index("\nend of trees")].split("\nTree=")[1:]
        column, value = _numbers("split_feature", trees), _numbers("leaf_value", trees)
        decision, left, right = (
            np.concatenate(_numbers(name, trees)).astype(np.int64)
            for name in ("decision_type", "left_child", "right_child")
        )
        return cls(
            np.cumsum([0, *map(len, column)]),
            np.cumsum([0, *map(len, value)]),
            np.concatenate(column).astype(np.int64),
            np.concatenate(_numbers("threshold", trees)),
            decision,
            left,
            right,
            np.concatenate(value),
        )

    def score(self, table: Float32Array) -> Float64Array:
        """Return scores of shape (n,) in [0, 1], bit-identical to LightGBM's.

        Parameters
        ----------
        table : ndarray of shape (n, n_columns)
            NaN is missing.
        """
        scores = np.empty(len(table))
        _add_trees(self, table, scores)
        return scores


def _numbers(name: str, trees: Sequence[str]) -> list[Float64Array]:
    """Return the values of a field by tree; empty for trees without splits."""
    lines = [re.search(rf"^{name}=(.*)$", tree, re.MULTILINE) for tree in trees]
    words = [line.group(1).split() if line else [] for line in lines]
    return [np.array([float(word) for word in some], dtype=np.float64) for some in words]


@compiled
def _add_trees(trees: CompiledTrees, table: Float32Array, scores: Float64Array) -> None:
    """Fill `scores` with the sigmoid of the sum of each row's leaves, in tree order."""
    for row in range(len(table)):
        log_odds = 0.0
        for tree in range(len(trees.first_leaf) - 1):
            begin = trees.first_split[tree]
            node = 0 if trees.first_split[tree + 1] > begin else -1
            while node >= 0:
                split = begin + node
                value = np.float64(table[row, trees.column[split]])
                if np.isnan(value) and trees.decision[split] & 8:
                    below = trees.decision[split] & 2 > 0
                else:
                    below = (0.0 if np.isnan(value) else value) <= trees.threshold[split]
                node = trees.left[split] if below else trees.right[split]
            log_odds += trees.value[trees.first_leaf[tree] - 1 - node]
        scores[row] = 1.0 / (1.0 + math.exp(-log_odds))
