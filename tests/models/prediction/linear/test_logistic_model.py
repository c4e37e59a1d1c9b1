from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.linear.log_odds import logit
from forewarn.models.prediction.linear.logistic_model import LogisticModel
from forewarn.models.prediction.linear.parameter_file import read_parameters, write_parameters

LABELS = np.array([0, 0, 0, 1, 1, 1], dtype=np.int8)
ENDS, ONES = np.arange(6, dtype=np.int64), np.ones(6, dtype=np.float32)


def last_values(*columns: Sequence[int]) -> ModelInputs:
    """Windows of two records of nine levels; the first record is the opposite of the last."""
    last = np.array(columns, dtype=np.uint8).T
    names = tuple("abc"[: last.shape[1]])
    context = np.zeros((len(last), 0), np.uint8)
    return ModelInputs(
        np.stack([8 - last, last], axis=1), context, names, (), (9,) * len(names), ()
    )


def test_fit_minimizes_penalized_loss() -> None:
    rng = np.random.default_rng(0)
    n = 200
    inputs = last_values(rng.integers(0, 9, n).tolist(), rng.integers(0, 9, n).tolist())
    labels = (inputs.sequence[:, -1, 0] + rng.integers(0, 6, n) > 6).astype(np.int8)
    weights = rng.uniform(0.5, 1.5, n).astype(np.float32)
    model = LogisticModel(seed=0).fit(inputs, labels, weights, np.arange(n, dtype=np.int64))
    scores = model.score(inputs)
    residual = weights / weights.mean() * (scores - labels)
    assert residual.sum() == pytest.approx(0.0, abs=0.02)
    slopes = model.table_.apply(inputs).T @ residual + model.fit_.coefficients
    assert np.abs(slopes).max() < 0.05


def test_fit_uses_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = LogisticRegression.fit
    threads: list[int] = []

    def counted(self: LogisticRegression, *args: Any, **weights: Any) -> LogisticRegression:
        threads.extend(
            pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
        )
        return fit(self, *args, **weights)

    monkeypatch.setattr(LogisticRegression, "fit", counted)
    with threadpool_limits(2, user_api="blas"):
        LogisticModel(seed=0).fit(last_values([1, 2, 3, 4, 5, 6]), LABELS, ONES, ENDS)
    assert set(threads) == {1}


def test_model_uses_last_record_only() -> None:
    inputs = last_values([1, 2, 3, 6, 7, 8])
    model = LogisticModel(seed=0).fit(inputs, LABELS, ONES, ENDS)
    other_first = last_values([1, 2, 3, 6, 7, 8])
    other_first.sequence[:, 0] = 4
    assert np.array_equal(model.score(other_first), model.score(inputs))
    assert (np.diff(logit(model.score(inputs))) > 0).all()


def test_score_is_independent_of_batch() -> None:
    rng, n, width = np.random.default_rng(0), 17_001, 90
    names, levels = tuple(f"c{number}" for number in range(width)), (9,) * width
    context = rng.integers(0, 9, (n, width), dtype=np.uint8)
    inputs = ModelInputs(np.zeros((n, 2, 0), np.uint8), context, (), names, (), levels)
    few = inputs.select(np.arange(200))
    labels = (few.context[:, 0] > 4).astype(np.int8)
    model = LogisticModel(seed=0).fit(few, labels, np.ones(200, np.float32), np.arange(200))
    scores = model.score(inputs)
    for start, end in ((0, 1), (5, 1_000), (16_380, 16_400), (16_999, n)):
        rows = np.arange(start, end)
        assert np.array_equal(model.score(inputs.select(rows)), scores[rows])


def test_wrong_number_of_coefficients_is_refused(tmp_path: Path) -> None:
    model = LogisticModel(seed=0).fit(last_values([1, 2, 3, 4, 5, 6]), LABELS, ONES, ENDS)
    model.save(tmp_path)
    saved = read_parameters(tmp_path)
    saved["coefficients"].pop()
    write_parameters(tmp_path, saved)
    with pytest.raises(ValueError, match="got 2 coefficients, expected 3"):
        LogisticModel.load(tmp_path)
