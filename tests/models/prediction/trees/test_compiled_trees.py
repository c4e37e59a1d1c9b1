from __future__ import annotations

import lightgbm
import numpy as np
import pytest

from forewarn.models.prediction.trees.compiled_trees import CompiledTrees


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("n_leaves", [2, 7, 31])
def test_scores_equal_lightgbm_exactly(n_leaves: int, missing: float) -> None:
    rng = np.random.default_rng(n_leaves)
    table = rng.integers(0, 12, (3_000, 9)).astype(np.float32)
    labels = (rng.random(3_000) < 0.1 + 0.06 * table[:, 3]).astype(np.int8)
    table[rng.random(table.shape) < missing] = np.nan
    parameters = {"objective": "binary", "num_leaves": n_leaves, "verbosity": -1, "num_threads": 1}
    booster = lightgbm.train(parameters, lightgbm.Dataset(table, label=labels), 60)
    scores = CompiledTrees.from_text(booster.model_to_string()).score(table)
    assert len(np.unique(scores)) > 10
    assert (scores == booster.predict(table, num_threads=1)).all()
    # Columns never missing in training are read as 0.
    table[::3, ::2] = np.nan
    scores = CompiledTrees.from_text(booster.model_to_string()).score(table)
    assert (scores == booster.predict(table, num_threads=1)).all()


def test_trees_without_splits_give_constant() -> None:
    alike = lightgbm.Dataset(np.zeros((50, 2)), label=np.arange(50) % 5 == 0)
    booster = lightgbm.train({"objective": "binary", "verbosity": -1}, alike, 2)
    table = np.zeros((3, 2), dtype=np.float32)
    scores = CompiledTrees.from_text(booster.model_to_string()).score(table)
    assert (scores == booster.predict(table)).all()
    assert scores == pytest.approx(np.full(3, 0.2))
