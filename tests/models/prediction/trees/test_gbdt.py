from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.linear.log_odds import sigmoid
from forewarn.models.prediction.trees.gbdt import GbdtModel


@pytest.fixture(scope="module")
def inputs() -> ModelInputs:
    rng = np.random.default_rng(0)
    return ModelInputs(
        rng.integers(0, 20, (300, 3, 2), dtype=np.uint8),
        rng.integers(0, 20, (300, 2), dtype=np.uint8),
        ("temperature", "power"),
        ("age", "repeats"),
        (20, 20),
        (20, 20),
    )


@pytest.fixture(scope="module")
def model(inputs: ModelInputs) -> GbdtModel:
    labels = (inputs.sequence[:, -1, 0] > 12).astype(np.int8)
    weights, ends = np.ones(300, dtype=np.float32), np.arange(300, dtype=np.int64)
    return GbdtModel(seed=0).fit(inputs, labels, weights, ends)


def test_feature_names(model: GbdtModel) -> None:
    assert model.feature_names == (
        *("temperature[-2]", "power[-2]"),
        *("temperature[-1]", "power[-1]"),
        *("temperature[-0]", "power[-0]"),
        *("age", "repeats"),
    )


def test_columns_match_feature_names(model: GbdtModel, inputs: ModelInputs) -> None:
    table = model.table(inputs)
    assert np.array_equal(table[:, 2], inputs.sequence[:, 1, 0])
    assert np.array_equal(table[:, 7], inputs.context[:, 1])


def test_number_of_trees(model: GbdtModel) -> None:
    assert model.text_.count("\nTree=") == 200


def contributions_of(model: GbdtModel, inputs: ModelInputs) -> npt.NDArray[np.float64]:
    contributions = model.contributions(inputs)
    assert contributions.shape == (len(inputs), len(model.feature_names))
    assert contributions.dtype == np.float64
    return contributions


def test_contributions_sum_to_log_odds(model: GbdtModel, inputs: ModelInputs) -> None:
    total = contributions_of(model, inputs).sum(axis=1)
    scores = model.score(inputs)
    constant = np.log(scores / (1 - scores)) - total
    assert np.ptp(constant) < 1e-6
    assert np.allclose(sigmoid(total + constant[0]), scores)


def test_cause_contributes_most(model: GbdtModel, inputs: ModelInputs) -> None:
    strongest = np.abs(contributions_of(model, inputs)).mean(axis=0).argmax()
    assert model.feature_names[strongest] == "temperature[-0]"


def test_loaded_model_has_same_contributions(
    model: GbdtModel, inputs: ModelInputs, tmp_path: Path
) -> None:
    model.save(tmp_path)
    loaded = GbdtModel.load(tmp_path)
    assert loaded.feature_names == model.feature_names
    assert np.array_equal(loaded.contributions(inputs), model.contributions(inputs))


def test_batched_scores_are_equal(model: GbdtModel, inputs: ModelInputs) -> None:
    rows = np.arange(17_000) % 300
    assert np.array_equal(model.score(inputs.select(rows)), model.score(inputs)[rows])
