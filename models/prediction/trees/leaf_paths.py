"""The leaves of boosted trees with the splits that lead to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = ["LeafPaths"]

_FIELDS = (
    *("split_feature", "threshold", "left_child", "right_child", "leaf_value", "leaf_count"),
    "internal_count",
)
_MAX_SLOTS = 62
_Step = tuple[int, float, bool, float]


class LeafPaths(NamedTuple):
    """The leaves of all trees with at least one split, in one flat array.

    A leaf has one slot for each distinct column on its path.

    Attributes
    ----------
    value : ndarray of shape (n_leaves,)
    first_step, first_slot : ndarray of shape (n_leaves + 1,)
        Offsets of each leaf; the last entry is the total.
    column : ndarray of shape (n_steps,)
        Column of the split.
    threshold : ndarray of shape (n_steps,)
    below : ndarray of shape (n_steps,), bool
        Whether the path continues where the column is at most the threshold.
    slot : ndarray of shape (n_steps,)
        Number of the column's slot within the leaf.
    slot_column : ndarray of shape (n_slots,)
    share : ndarray of shape (n_slots,)
        Share of the training instances at the column's splits that continue towards the leaf.
    """

    value: Float64Array
    first_step: Int64Array
    first_slot: Int64Array
    column: Int64Array
    threshold: Float64Array
    below: BoolArray
    slot: Int64Array
    slot_column: Int64Array
    share: Float64Array

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse LightGBM's text format for trees with numeric splits (`check_tree_text`).

        Raises
        ------
        ValueError
            If a path has more than 62 columns: patterns are 64-bit integers.
        """
        leaves = [leaf for tree in text.split("\nTree=")[1:] for leaf in _leaves(tree)]
        n_steps, n_slots, columns = [0], [0], []
        for _, path in leaves:
            slots: dict[int, float] = {}
            number: dict[int, int] = {}
            for column, _, _, share in path:
                number[column] = number.get(column, len(number))
                slots[column] = slots.get(column, 1.0) * share
            n_steps.append(n_steps[-1] + len(path))
            n_slots.append(n_slots[-1] + len(slots))
            columns.append((path, [number[step[0]] for step in path], slots))
            if len(slots) > _MAX_SLOTS:
                raise ValueError(f"a path has {len(slots)} columns, expected at most {_MAX_SLOTS}")
        steps = [step for path, _, _ in columns for step in path]
        return cls(
            np.array([value for value, _ in leaves]),
            np.array(n_steps),
            np.array(n_slots),
            np.array([step[0] for step in steps], dtype=np.int64),
            np.array([step[1] for step in steps]),
            np.array([step[2] for step in steps], dtype=np.bool_),
            np.array([number for _, numbers, _ in columns for number in numbers], dtype=np.int64),
            np.array([column for _, _, slots in columns for column in slots], dtype=np.int64),
            np.array([share for _, _, slots in columns for share in slots.values()]),
        )


def _leaves(tree: str) -> Iterator[tuple[float, list[_Step]]]:
    """Yield value and path of each leaf; nothing for a tree without splits."""
    lines = {name: re.search(rf"^{name}=(.*)$", tree, re.MULTILINE) for name in _FIELDS}
    fields = {name: match.group(1).split() if match else [] for name, match in lines.items()}
    column, left, right = ([int(w) for w in fields[n]] for n in ("split_feature", *_FIELDS[2:4]))
    threshold, value = ([float(w) for w in fields[n]] for n in ("threshold", "leaf_value"))
    leaf_count, count = ([int(w) for w in fields[n]] for n in ("leaf_count", "internal_count"))
    paths: list[tuple[int, list[_Step]]] = [(0, [])] if column else []
    while paths:
        node, path = paths.pop()
        for child, below in ((left[node], True), (right[node], False)):
            n_child = count[child] if child >= 0 else leaf_count[-1 - child]
            longer = [*path, (column[node], threshold[node], below, n_child / count[node])]
            if child >= 0:
                paths.append((child, longer))
            else:
                yield value[-1 - child], longer
