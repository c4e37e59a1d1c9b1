"""Requirements that every registered model meets."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

from forewarn.features.errors import InputError
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.features.time_units import DAY
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.model_catalogue import (
    BASELINE_NAMES,
    MODEL_NAMES,
    load_model,
    make_model,
)
from forewarn.models.prediction.networks import network_training
from forewarn.models.prediction.networks.keras_archive import write_archive
from forewarn.models.tensorflow_runtime import keras

NAMES = (*MODEL_NAMES, *BASELINE_NAMES)
LEARNING = tuple(name for name in NAMES if name != "random")
LEVELS = 16


@dataclass(frozen=True)
class Instances:
    inputs: ModelInputs
    labels: npt.NDArray[np.int8]
    weights: npt.NDArray[np.float32]
    ends: npt.NDArray[np.int64]

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        inputs = self.inputs
        return inputs.sequence, inputs.context, self.labels, self.weights, self.ends

    @property
    def arguments(
        self,
    ) -> tuple[ModelInputs, npt.NDArray[np.int8], npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        return self.inputs, self.labels, self.weights, self.ends


def made(
    n: int = 240,
    *,
    length: int = 4,
    n_channels: int = 5,
    n_context: int = 6,
    seed: int = 0,
) -> Instances:
    """Return noise except in the first channel: positives are five buckets higher."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 3 == 0).astype(np.int8)
    sequence = rng.integers(0, 11, (n, length, n_channels), dtype=np.uint8)
    sequence[labels == 1, :, 0] += 5
    context = rng.integers(0, LEVELS, (n, n_context), dtype=np.uint8)
    inputs = ModelInputs(
        sequence,
        context,
        tuple(f"channel{i}" for i in range(n_channels)),
        tuple(f"category:{i}" if i % 2 else f"context{i}" for i in range(n_context)),
        (LEVELS,) * n_channels,
        (LEVELS,) * n_context,
    )
    weights = np.where(labels == 1, 2.0, 1.0).astype(np.float32)
    return Instances(inputs, labels, weights, rng.integers(0, 15 * DAY, n))


TRAINING = made()
HELD_OUT = made(1_100, seed=1)


def fitted(name: str, instances: Instances = TRAINING, *, seed: int = 3) -> FailureModel:
    return make_model(name, seed=seed, purge=DAY).fit(*instances.arguments)


@cache
def shared(name: str) -> FailureModel:
    """Return one fitted model, shared by all tests that do not change it."""
    return fitted(name)


@cache
def with_another_seed(name: str) -> FailureModel:
    return fitted(name, seed=4)


@cache
def fitted_again(name: str) -> FailureModel:
    """Fit again after fits of another seed and another model type."""
    with_another_seed(name)
    with_another_seed("gbdt" if name == "mlp" else "mlp")
    return fitted(name)


def saved(model: FailureModel, folder: Path) -> dict[str, bytes]:
    """Save into a new folder; return the contents of each file."""
    folder.mkdir()
    model.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def blinded(inputs: ModelInputs) -> ModelInputs:
    """Return the instances with every value missing."""
    return replace(
        inputs, sequence=np.zeros_like(inputs.sequence), context=np.zeros_like(inputs.context)
    )


def area(model: FailureModel) -> float:
    return float(roc_auc_score(HELD_OUT.labels, model.score(HELD_OUT.inputs)))


@pytest.fixture
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train networks for two epochs in tests that do not depend on what they learn."""
    for name in ("_MAX_EPOCHS", "_MIN_EPOCHS", "_FIXED_EPOCHS"):
        monkeypatch.setattr(network_training, name, 2)


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("name", NAMES)
def test_fit_returns_self_without_mutation(name: str) -> None:
    small = made(60, length=1)
    before = [array.copy() for array in small.arrays]
    model = make_model(name, seed=3, purge=DAY)
    assert model.fit(*small.arguments) is model
    model.score(small.inputs)
    for array, copy in zip(small.arrays, before, strict=True):
        assert np.array_equal(array, copy)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_finite_and_in_unit_interval(name: str) -> None:
    scores = shared(name).score(HELD_OUT.inputs)
    assert scores.shape == (len(HELD_OUT.inputs),)
    assert scores.dtype == np.float64
    assert ((scores >= 0.0) & (scores <= 1.0)).all()


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_same_scores(name: str) -> None:
    expected = shared(name).score(HELD_OUT.inputs)
    assert np.array_equal(fitted_again(name).score(HELD_OUT.inputs), expected)
    assert np.array_equal(shared(name).score(HELD_OUT.inputs), expected)


@pytest.mark.parametrize("name", ["cnn", "mlp", "lstm", "gbdt", "random"])
def test_other_seed_gives_other_scores(name: str) -> None:
    other = with_another_seed(name).score(HELD_OUT.inputs)
    assert not np.array_equal(other, shared(name).score(HELD_OUT.inputs))


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_saves_same_bytes(name: str, tmp_path: Path) -> None:
    once = saved(shared(name), tmp_path / "once")
    assert saved(fitted_again(name), tmp_path / "again") == once
    assert {Path(file).suffix for file in once} <= {".json", ".txt", ".keras"}


@pytest.mark.parametrize("name", NAMES)
def test_save_load_round_trip(name: str, tmp_path: Path) -> None:
    saved(shared(name), tmp_path / "once")
    saved(load_model(name, tmp_path / "once"), tmp_path / "again")
    scores = load_model(name, tmp_path / "again").score(HELD_OUT.inputs)
    assert np.array_equal(scores, shared(name).score(HELD_OUT.inputs))


@pytest.mark.parametrize("name", LEARNING)
def test_easy_signal_is_learned(name: str) -> None:
    assert area(shared(name)) > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_shuffled_labels_give_no_signal(name: str) -> None:
    labels = np.random.default_rng(5).permutation(TRAINING.labels)
    assert 0.3 < area(fitted(name, replace(TRAINING, labels=labels))) < 0.7


@pytest.mark.parametrize("name", LEARNING)
def test_instance_weight_matters(name: str) -> None:
    # Half of the instances have the opposite label, with weight zero.
    n = len(TRAINING.labels)
    lies = np.arange(n) % 2 == 0
    labels = np.where(lies, 1 - TRAINING.labels, TRAINING.labels).astype(np.int8)
    weights = np.where(lies, 1e-6, 1.0).astype(np.float32)
    model = fitted(name, replace(TRAINING, labels=labels, weights=weights))
    assert area(model) > 0.8


@pytest.mark.parametrize("name", ["cnn", "gbdt", "logistic"])
def test_positive_weight_raises_scores(name: str) -> None:
    heavy = make_model(name, seed=3, purge=DAY, positive_weight=10.0).fit(*TRAINING.arguments)
    usual = shared(name).score(HELD_OUT.inputs)
    assert heavy.score(HELD_OUT.inputs).mean() > usual.mean() + 0.02


@pytest.mark.parametrize("name", LEARNING)
def test_score_is_independent_of_batch(name: str) -> None:
    rows = np.arange(len(HELD_OUT.inputs))[::-7]
    together = shared(name).score(HELD_OUT.inputs)[rows]
    assert np.allclose(shared(name).score(HELD_OUT.inputs.select(rows)), together, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_no_instances_no_scores(name: str) -> None:
    assert shared(name).score(HELD_OUT.inputs.select(slice(0, 0))).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_all_missing_is_scored(name: str) -> None:
    scores = shared(name).score(blinded(HELD_OUT.inputs.select(slice(0, 5))))
    assert np.isfinite(scores).all()


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("name", NAMES)
def test_training_on_missing_gives_constant_score(name: str) -> None:
    inputs = blinded(TRAINING.inputs)
    scores = fitted(name, replace(TRAINING, inputs=inputs)).score(inputs)
    assert np.isfinite(scores).all()
    assert name == "random" or np.ptp(scores) < 1e-6


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("name", NAMES)
def test_minimal_inputs_are_accepted(name: str, tmp_path: Path) -> None:
    small = made(90, length=1, n_channels=1, n_context=0)
    model = fitted(name, small)
    scores = model.score(small.inputs)
    assert scores.shape == (90,)
    assert np.isfinite(scores).all()
    model.save(tmp_path)
    assert np.array_equal(load_model(name, tmp_path).score(small.inputs), scores)


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("label", [0, 1])
def test_single_class_is_refused(name: str, label: int) -> None:
    labels = np.full_like(TRAINING.labels, label)
    with pytest.raises(ValueError, match="`labels` must hold 0 and 1"):
        fitted(name, replace(TRAINING, labels=labels))


def test_unknown_name_is_refused(tmp_path: Path) -> None:
    message = "`name` must be one of cnn, mlp, gbdt, lstm, linear, random, .*, got 'forest'"
    with pytest.raises(ValueError, match=message):
        make_model("forest", seed=0, purge=DAY)
    with pytest.raises(ValueError, match=message):
        load_model("forest", tmp_path)


def test_importing_models_imports_no_heavy_library() -> None:
    code = """
import importlib, pkgutil, sys
import forewarn.models
from forewarn.models.prediction import model_catalogue as registry
registry.make_model("cnn", seed=0, purge=0)
print(sorted({"tensorflow", "keras", "lightgbm", "sklearn"} & sys.modules.keys()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_tensorflow_starts_silently() -> None:
    code = """
from forewarn.models.tensorflow_runtime import keras
keras().layers.Dense(1)(keras().ops.zeros((1, 1)))
"""
    environment = {"PATH": "/usr/bin"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("name", LEARNING)
def test_column_order_is_checked(name: str, tmp_path: Path) -> None:
    model = shared(name)
    model.save(tmp_path)
    swapped = replace(HELD_OUT.inputs, context_names=HELD_OUT.inputs.context_names[::-1])
    for one in (model, load_model(name, tmp_path)):
        with pytest.raises(InputError, match="column 0 of the context is"):
            one.score(swapped)


def keras_network(model: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.keras"
        path.write_bytes(model.archive_)
        return keras().saving.load_model(path, compile=False, safe_mode=True)


@pytest.mark.parametrize("name", ["cnn", "mlp", "lstm"])
def test_nan_weights_are_refused(name: str, tmp_path: Path) -> None:
    model: Any = shared(name)
    network = keras_network(model)
    weights = network.get_weights()
    weights[0][0] = np.nan
    network.set_weights(weights)
    model.save(tmp_path)
    (tmp_path / "network.keras").write_bytes(write_archive(network))
    with pytest.raises(ValueError, match=r"weight 0 of layer \w+ is not finite"):
        load_model(name, tmp_path)


@pytest.mark.parametrize("name", ["cnn", "mlp", "lstm"])
def test_network_scores_equal_keras(name: str) -> None:
    model: Any = shared(name)
    network, inputs = keras_network(model), HELD_OUT.inputs
    expected = np.asarray(network(list(model.scaling_.apply(inputs)), training=False))[:, 0]
    log_odds = model.network_.log_odds(inputs, model.scaling_)
    assert np.ptp(expected) > 0.1
    assert np.allclose(log_odds, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_scoring_needs_no_training_library(name: str, tmp_path: Path) -> None:
    shared(name).save(tmp_path)
    code = f"""
import sys
from pathlib import Path
from forewarn.models.prediction.model_catalogue import load_model
load_model({name!r}, Path({str(tmp_path)!r}))
assert not {{"tensorflow", "keras", "lightgbm", "sklearn"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
