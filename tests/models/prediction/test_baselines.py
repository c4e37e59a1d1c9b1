from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.baselines import LastValueRule, RandomModel

ENDS = np.arange(6, dtype=np.int64)
ONES = np.ones(6, dtype=np.float32)
LABELS = np.array([0, 0, 0, 1, 1, 1], dtype=np.int8)


def last_values(*columns: Sequence[int], levels: int = 9) -> ModelInputs:
    """Windows of two records; the first record is the opposite of the last."""
    last = np.array(columns, dtype=np.uint8).T
    sequence = np.stack([levels - 1 - last, last], axis=1)
    names = tuple("abc"[: last.shape[1]])
    return ModelInputs(
        sequence, np.zeros((len(last), 0), np.uint8), names, (), (levels,) * len(names), ()
    )


def rule(inputs: ModelInputs) -> LastValueRule:
    return LastValueRule(seed=0).fit(inputs, LABELS, ONES, ENDS)


def test_rule_chooses_best_channel() -> None:
    fitted = rule(last_values([1, 5, 3, 2, 6, 4], [1, 2, 5, 4, 6, 7]))
    assert (fitted.channel_, fitted.rising_) == ("b", True)


def test_rule_chooses_best_direction() -> None:
    fitted = rule(last_values([1, 5, 3, 2, 6, 4], [7, 6, 8, 2, 3, 1]))
    assert (fitted.channel_, fitted.rising_) == ("b", False)


def test_rule_scores_by_bucket_number() -> None:
    rising = rule(last_values([1, 2, 3, 4, 6, 8]))
    assert rising.score(last_values([0, 4, 8])).tolist() == [0.0, 0.5, 1.0]


def test_missing_values_have_no_risk() -> None:
    falling = rule(last_values([8, 7, 6, 4, 2, 1]))
    assert falling.score(last_values([0, 1, 5, 8])).tolist() == [0.0, 1.0, 0.5, 0.125]


@pytest.mark.parametrize(
    ("flags", "scores"), [([0, 0, 0, 1, 1, 1], [0, 1]), ([1, 1, 1, 0, 0, 0], [1, 0])]
)
def test_one_hot_zero_is_value(flags: list[int], scores: list[float]) -> None:
    fitted = rule(last_values(flags, levels=2))
    assert fitted.score(last_values([0, 1], levels=2)).tolist() == scores


def test_rule_follows_weights() -> None:
    inputs = last_values([1, 2, 8, 5, 6, 7], [3, 3, 3, 3, 3, 2])
    weights = np.array([0.01, 0.01, 10, 1, 1, 1], dtype=np.float32)
    assert rule(inputs).rising_
    assert not LastValueRule(seed=0).fit(inputs, LABELS, weights, ENDS).rising_


def random_scores(seed: int, last_end: int) -> list[float]:
    inputs = last_values([0] * 1_000)
    model = RandomModel(seed=seed).fit(inputs, LABELS, ONES, ENDS + last_end)
    return [float(score) for score in model.score(inputs)]


def test_random_scores_depend_on_seed_and_retraining() -> None:
    scores = random_scores(1, 0)
    assert random_scores(1, 0) == scores
    assert random_scores(2, 0) != scores
    assert random_scores(1, 1) != scores
    assert np.mean(scores) == pytest.approx(0.5, abs=0.05)


def test_random_scores_survive_saving(tmp_path: Path) -> None:
    inputs = last_values([1, 2, 3])
    model = RandomModel(seed=7).fit(inputs, LABELS, ONES, ENDS)
    model.save(tmp_path)
    assert np.array_equal(RandomModel.load(tmp_path).score(inputs), model.score(inputs))
