from __future__ import annotations

from itertools import combinations
from math import factorial
from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.array_types import Float32Array, Float64Array
from forewarn.models.prediction.trees.leaf_paths import LeafPaths
from forewarn.models.prediction.trees.shapley import shapley_values


def trees(
    table: Float32Array, target: Float64Array, n: int = 3, leaves: int = 8
) -> lightgbm.Booster:
    parameters = {"objective": "binary", "num_leaves": leaves, "min_data_in_leaf": 1}
    more = {"verbosity": -1, "num_threads": 1, "min_data_in_bin": 1, "deterministic": True}
    return lightgbm.train({**parameters, **more}, lightgbm.Dataset(table, label=target), n)


def expected_value(tree: dict[str, Any], row: Float32Array, known: set[int]) -> float:
    """Follow known columns, and average both branches by their shares for unknown ones."""
    if "leaf_value" in tree:
        return float(tree["leaf_value"])
    ways = [tree["left_child"], tree["right_child"]]
    column = int(tree["split_feature"])
    if column in known:
        below = float(row[column]) <= float(tree["threshold"])
        return expected_value(ways[0 if below else 1], row, known)
    counts = [way.get("leaf_count", way.get("internal_count")) for way in ways]
    values = [expected_value(way, row, known) for way in ways]
    return float(np.average(values, weights=counts))


def by_definition(booster: lightgbm.Booster, row: Float32Array) -> list[float]:
    roots = [info["tree_structure"] for info in booster.dump_model()["tree_info"]]
    n, shares = len(row), []
    for column in range(n):
        others, share = [i for i in range(n) if i != column], 0.0
        for size in range(n):
            worth = factorial(size) * factorial(n - size - 1) / factorial(n)
            for some in combinations(others, size):
                more = sum(expected_value(root, row, {*some, column}) for root in roots)
                share += worth * (more - sum(expected_value(r, row, {*some}) for r in roots))
        shares.append(share)
    return shares


@given(st.integers(0, 2**31), st.integers(2, 6))
@settings(max_examples=12)
def test_values_match_definition(seed: int, n_columns: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 5, (60, n_columns)).astype(np.float32)
    booster = trees(table, (table[:, 0] > rng.integers(0, 5, 60)).astype(float))
    values = shapley_values(LeafPaths.from_text(booster.model_to_string()), table)
    for row in (0, 17):
        assert values[row] == pytest.approx(by_definition(booster, table[row]), abs=1e-12)


def test_values_equal_lightgbm() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 60, (1500, 12)).astype(np.float32)
    target = (table.sum(axis=1) + rng.normal(0, 60, 1500) > 360).astype(float)
    booster = trees(table, target, 20, 31)
    leaves = LeafPaths.from_text(booster.model_to_string())
    values = shapley_values(leaves, table)
    theirs = np.asarray(booster.predict(table, pred_contrib=True))[:, :-1]
    assert np.abs(values - theirs).max() < 1e-12
    assert np.array_equal(shapley_values(leaves, table[1200:1203]), values[1200:1203])


def test_single_split_by_hand() -> None:
    table = np.repeat(np.array([[0.0], [9.0]], dtype=np.float32), [30, 10], axis=0)
    booster = trees(table, (table[:, 0] > 5).astype(float), 1)
    leaves = LeafPaths.from_text(booster.model_to_string())
    low, high = sorted(leaves.value)
    mean = (3 * low + high) / 4
    values = shapley_values(leaves, np.array([[0.0], [9.0]], dtype=np.float32))
    assert values[:, 0] == pytest.approx([low - mean, high - mean])
    assert shapley_values(leaves, table[:0]).shape == (0, 1)


def test_trees_without_splits_contribute_nothing() -> None:
    table = np.zeros((40, 2), dtype=np.float32)
    booster = trees(table, (np.arange(40) % 2).astype(float))
    leaves = LeafPaths.from_text(booster.model_to_string())
    assert not len(leaves.value)
    assert not shapley_values(leaves, table).any()
