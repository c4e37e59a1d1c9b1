"""Validation of LightGBM's text format, because scoring does not check any index in it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np

from forewarn.features.array_types import Float64Array

__all__ = ["DECISIONS", "check_tree_text"]


DECISIONS = (0, 2, 8, 10)
"""Supported split types. Bit 8: missing values have their own branch; bit 2: that branch is the
left.
"""

_REQUIRED_VALUES = {
    "version": "v4",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": "0",
    "objective": "binary sigmoid:1",
}
_SPLIT_FIELDS = (
    *("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child"),
    *("internal_value", "internal_weight", "internal_count"),
)
_LEAF_FIELDS = ("leaf_value", "leaf_weight", "leaf_count")
_SCALAR_FIELDS = ("num_leaves", "num_cat", "is_linear", "shrinkage")
_INTEGER_FIELDS = (
    *("split_feature", "decision_type", "left_child", "right_child", "num_leaves", "num_cat"),
    *("is_linear", "leaf_count", "internal_count"),
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,10}")
_LINE, _WHOLE_LINE = (
    re.compile(f"{form.pattern}(?: {form.pattern})*") for form in (_NUMBER, _WHOLE_NUMBER)
)


def check_tree_text(text: str, n_columns: int) -> None:
    """Refuse trees with invalid indices, cyclic branches or NaN leaves.

    Parameters
    ----------
    text : str
        A binary classifier on `n_columns` numeric columns, as saved by LightGBM.
    n_columns : int

    Raises
    ------
    ValueError
        Names the wrong field or block.
    """
    head, begin = _head(text)
    _check_head(head, n_columns)
    sizes = _numbers("tree_sizes", head["tree_sizes"], whole=True).astype(int).tolist()
    bounds = list(accumulate(sizes, initial=begin))
    if min(sizes, default=0) < 1 or not text.startswith("end of trees\n", bounds[-1]):
        raise ValueError("`tree_sizes` does not lead to the end of the trees")
    for number, (start, end) in enumerate(pairwise(bounds)):
        try:
            _check_tree(_fields(text[start:end], f"Tree={number}"), n_columns)
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from None


def _head(text: str) -> tuple[dict[str, str], int]:
    """Return the fields before the first tree, and the offset of that tree."""
    end = text.find("\n\nTree=0\n")
    if not text.isascii() or end < 0:
        raise ValueError("is not a LightGBM model text")
    return _fields(text[:end], "tree"), end + 2


def _fields(block: str, title: str) -> dict[str, str]:
    """Return the fields of a block of lines; each may occur once."""
    first, *lines = block.rstrip("\n").split("\n")
    pairs = [line.partition("=")[::2] for line in lines]
    fields = dict(pairs)
    if first != title or len(fields) != len(pairs):
        raise ValueError(f"got a block {first[:40]!r}, expected {title!r} with each field once")
    return fields


def _check_head(head: Mapping[str, str], n_columns: int) -> None:
    expected = _REQUIRED_VALUES | {"max_feature_idx": str(n_columns - 1)}
    listed = {"feature_names", "feature_infos"}
    _check_names(head, {*expected, *listed, "tree_sizes"})
    for name, value in expected.items():
        if head[name] != value:
            raise ValueError(f"`{name}` is {head[name][:40]!r}, expected {value!r}")
    for name in listed:
        if len(head[name].split(" ")) != n_columns:
            raise ValueError(f"`{name}` does not have {n_columns} columns")


def _check_names(named: Mapping[str, str], expected: set[str]) -> None:
    for name in sorted(named.keys() ^ expected):
        raise ValueError(f"field `{name[:40]}` {'is unknown' if name in named else 'is missing'}")


def _check_tree(fields: Mapping[str, str], n_columns: int) -> None:
    _check_names(fields, {*_SPLIT_FIELDS, *_LEAF_FIELDS, *_SCALAR_FIELDS})
    tree = {
        name: _numbers(name, text, whole=name in _INTEGER_FIELDS) for name, text in fields.items()
    }
    for name in _SCALAR_FIELDS:
        _check_size(name, tree[name], 1)
    n_leaves = int(tree["num_leaves"][0])
    for name in _SPLIT_FIELDS:
        _check_size(name, tree[name], n_leaves - 1)
    for name in _LEAF_FIELDS:
        # A tree without splits has a leaf without a weight.
        alone = name == "leaf_weight" and n_leaves == 1
        _check_size(name, tree[name], 0 if alone else n_leaves)
    if tree["num_cat"][0] or tree["is_linear"][0] or (tree["decision_type"] % 2).any():
        # The lowest bit of a decision type marks a categorical split.
        raise ValueError("has categorical splits or linear leaves")
    _check_range("split_feature", tree["split_feature"], 0, n_columns - 1)
    others = tree["decision_type"][~np.isin(tree["decision_type"], DECISIONS)]
    if len(others):
        raise ValueError(f"`decision_type` is {others[0]:.0f}, expected one of {DECISIONS}")
    for name in ("leaf_count", "internal_count"):
        _check_range(name, tree[name], 1, 2**31 - 1)
    _check_branches(tree["left_child"], tree["right_child"])


def _check_branches(left: Float64Array, right: Float64Array) -> None:
    """Check that every split but the first, and every leaf, is the child of one earlier split."""
    n_splits, children = len(left), np.concatenate([left, right])
    # Leaf k is encoded as -1 - k.
    expected = [*range(-n_splits - 1, 0), *range(1, n_splits)]
    later = np.concatenate([np.arange(n_splits)] * 2) < children
    if n_splits and (sorted(children.tolist()) != expected or not later[children >= 0].all()):
        raise ValueError("`left_child` and `right_child` do not form a tree")


def _check_size(name: str, values: Float64Array, expected: int) -> None:
    if len(values) != expected:
        raise ValueError(f"`{name}` holds {len(values)} numbers, expected {expected}")


def _check_range(name: str, values: Float64Array, low: int, high: int) -> None:
    outside = values[(values < low) | (values > high)]
    if len(outside):
        raise ValueError(f"`{name}` is {outside[0]:.0f}, expected {low} to {high}")


def _numbers(name: str, text: str, *, whole: bool) -> Float64Array:
    """Parse numbers; only thresholds may be infinite, in splits that separate missing values."""
    words = text.split(" ") if text else []
    # Matching the whole line is faster than matching each of the 50,000 words of a model.
    if not words or (_WHOLE_LINE if whole else _LINE).fullmatch(text):
        values = np.array([float(word) for word in words], dtype=np.float64)
        if np.isfinite(values).all():
            return values
    return np.array([_number(name, word, whole=whole) for word in words], dtype=np.float64)


def _number(name: str, word: str, *, whole: bool) -> float:
    form = _WHOLE_NUMBER if whole else _NUMBER
    usual = form.fullmatch(word) and math.isfinite(float(word))
    if not usual and (name != "threshold" or word not in ("inf", "-inf")):
        raise ValueError(f"`{name}` holds {word[:40]!r}, expected finite numbers")
    return float(word)
