from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.linear.linear_model import LinearModel
from forewarn.models.prediction.linear.linear_table import LinearTable
from forewarn.models.prediction.linear.log_odds import logit
from forewarn.models.prediction.linear.parameter_file import read_parameters, write_parameters

LEVELS = 5  # missing, and four buckets in [-1, 1]: -1, -1/3, 1/3, 1


def windows(first: list[int], last: list[int], context: list[int]) -> ModelInputs:
    """Return windows of two records with one channel, and one context column."""
    sequence = np.array([first, last], dtype=np.uint8).T[:, :, None]
    return ModelInputs(
        sequence, np.array(context, np.uint8)[:, None], ("a",), ("c",), (LEVELS,), (LEVELS,)
    )


def fitted(
    inputs: ModelInputs,
    labels: npt.NDArray[np.int8],
    weights: npt.NDArray[np.float32] | None = None,
) -> LinearModel:
    n = len(labels)
    weights = np.ones(n, np.float32) if weights is None else weights
    return LinearModel(seed=0).fit(inputs, labels, weights, np.arange(n, dtype=np.int64))


def test_columns_are_values_changes_and_mode_deviations() -> None:
    # The mode of the channel is 2 (three of five); the context has no mode among its buckets.
    inputs = windows([2, 2, 4, 0, 2], [2, 3, 2, 2, 1], [1, 2, 3, 4, 0])
    table = LinearTable.fit(inputs)
    assert table.rest == (2, 0)
    columns = table.apply(inputs) + np.asarray(table.centres)
    rise, rose, fell, above, below = columns[:, 4:].T
    assert rise.round(3).tolist() == [0.0, 0.667, -1.333, 0.0, -0.667]  # a missing first: no change
    assert rose.tolist() == [0, 1, 0, 0, 0]
    assert fell.tolist() == [0, 0, 1, 0, 1]
    assert above.tolist() == [0, 1, 0, 0, 0]
    assert below.tolist() == [0, 0, 0, 0, 1]
    assert table.sources(inputs.columns).tolist() == [0, -1, 1, -1, 0, 0, 0, 0, 0]


def test_missing_value_is_not_mode_deviation() -> None:
    table = LinearTable.fit(windows([2, 2, 2], [2, 2, 3], [1, 2, 3]))
    apart = table.apply(windows([0], [0], [0])) + np.asarray(table.centres)
    assert apart[0, -2:].tolist() == [0.0, 0.0]


def test_training_columns_have_zero_mean() -> None:
    rng = np.random.default_rng(1)
    draws = rng.integers(0, LEVELS, (3, 50)).tolist()
    inputs = windows(*draws)
    assert np.allclose(LinearTable.fit(inputs).apply(inputs).mean(axis=0), 0.0)


def signal(n: int) -> tuple[ModelInputs, npt.NDArray[np.int8]]:
    """One instance in four fails, with higher readings; most others are at the mode."""
    labels = (np.arange(n) % 4 == 0).astype(np.int8)
    last = np.where(labels == 1, 3, 1 + (np.arange(n) % 8 == 1))
    return windows([1] * n, last.tolist(), [1] * n), labels


def test_effect_grows_with_number_of_failures() -> None:
    spreads = []
    for n in (40, 400, 4_000):
        inputs, labels = signal(n)
        scores = fitted(inputs, labels).score(inputs)
        spreads.append(np.ptp(logit(scores)))
        assert scores[labels == 1].min() > scores[labels == 0].max()
    assert spreads[0] < 3.0 < spreads[1] < spreads[2]


def noisy(n: int, seed: int) -> tuple[ModelInputs, npt.NDArray[np.int8]]:
    """One in 51 fails; one of sixty columns is informative: high for 40 % of the failures."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 51 == 0).astype(np.int8)
    columns = rng.integers(1, LEVELS, (60, n), dtype=np.uint8)
    columns[0] = np.where(rng.random(n) < np.where(labels == 1, 0.4, 0.01), 4, 1)
    rest = np.ones((n, 2, 1), dtype=np.uint8)
    names = tuple(f"c{i}" for i in range(60))
    return ModelInputs(rest, columns.T.copy(), ("a",), names, (LEVELS,), (LEVELS,) * 60), labels


def test_rare_signal_outranks_chance_patterns() -> None:
    inputs, labels = noisy(51 * 40, seed=1)
    model = fitted(inputs, labels, np.where(labels == 1, 50.0, 1.0).astype(np.float32))
    others, _ = noisy(51 * 100, seed=2)
    shows = others.context[:, 0] == 4
    scores = model.score(others)
    assert scores[shows].min() > scores[~shows].max()


def test_single_instance_signal_is_limited() -> None:
    inputs, labels = signal(4_000)
    context = np.where(np.arange(4_000) == 0, 4, 1).astype(np.uint8)[:, None]  # of a failing one
    inputs = replace(inputs, context=context)
    parts = fitted(inputs, labels).contributions(inputs)
    assert parts[0, 1] < parts[0, 0] / 5


def test_identical_healthy_instances_are_handled() -> None:
    labels = (np.arange(40) % 4 == 0).astype(np.int8)
    inputs = windows([1] * 40, np.where(labels == 1, 3, 1).tolist(), [1] * 40)
    scores = fitted(inputs, labels).score(inputs)
    assert scores[labels == 1].min() > 0.5 > scores[labels == 0].max()


def test_scores_depend_on_total_healthy_weight() -> None:
    inputs, labels = signal(400)
    healthy = np.flatnonzero(labels == 0)
    more = np.append(np.arange(400), np.tile(healthy, 4))
    weights = np.where(labels[more] == 1, 1.0, 0.2).astype(np.float32)
    once, again = fitted(inputs, labels), fitted(inputs.select(more), labels[more], weights)
    # The intercept absorbs that columns are centred by the mean of different instances.
    assert np.abs(logit(once.score(inputs)) - logit(again.score(inputs))).max() < 0.05


def test_score_is_independent_of_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    n, channels = 300, 40
    inputs = ModelInputs(
        rng.integers(0, LEVELS, (n, 2, channels), dtype=np.uint8),
        rng.integers(0, LEVELS, (channels, n), dtype=np.uint8).T,
        tuple(f"a{i}" for i in range(channels)),
        tuple(f"c{i}" for i in range(channels)),
        (LEVELS,) * channels,
        (LEVELS,) * channels,
    )
    model = fitted(inputs, (np.arange(n) % 3 == 0).astype(np.int8))
    together = model.score(inputs)
    for n_rows in (1, 2, 7, 100):
        rows = np.arange(n_rows) * 2
        assert model.score(inputs.select(rows)).tolist() == together[rows].tolist()
    monkeypatch.setattr("forewarn.models.prediction.linear.row_batches._BATCH_ROWS", 64)
    assert model.score(inputs).tolist() == together.tolist()


def test_contributions_sum_to_log_odds() -> None:
    inputs, labels = signal(200)
    model = fitted(inputs, labels)
    parts = model.contributions(inputs)
    assert model.feature_names == ("a[-0]", "c")
    assert np.allclose(parts.sum(axis=1) + model.fit_.intercept, logit(model.score(inputs)))
    assert parts[labels == 1, 0].min() > 0.0 > parts[labels == 0, 0].mean()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("coefficients", "got 10 coefficients, expected 11"),
        ("rest", "modes, expected"),
        ("centres", "centres"),
    ],
)
def test_inconsistent_file_is_refused(tmp_path: Path, part: str, message: str) -> None:
    inputs, labels = signal(40)
    fitted(inputs, labels).save(tmp_path)
    saved = read_parameters(tmp_path)
    (saved if part == "coefficients" else saved["table"])[part].pop()
    write_parameters(tmp_path, saved)
    with pytest.raises(ValueError, match=message):
        LinearModel.load(tmp_path)


def test_columns_without_mode_are_handled() -> None:
    inputs, labels = signal(40)
    alone = replace(inputs, context=inputs.context[:, :0], context_names=(), context_levels=())
    assert np.isfinite(fitted(alone, labels).score(alone)).all()
