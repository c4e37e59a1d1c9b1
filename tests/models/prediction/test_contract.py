"""The contract of failure models, for every built-in model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from forewarn.features.time_units import DAY
from forewarn.models.prediction.model_catalogue import (
    BASELINE_NAMES,
    BUILTIN,
    MODEL_NAMES,
    ModelClass,
    load_model,
    make_model,
)
from forewarn.models.prediction.networks import network_training
from forewarn.models.prediction.networks.keras_archive import write_archive
from forewarn.models.tensorflow_runtime import keras
from forewarn.pipelines.training.model_contract import (
    CLAUSES,
    HELD_OUT,
    LEARNING_CLAUSES,
    fitted_once,
    fitted_with_other_seed,
    positive_weight_raises_scores,
)

NAMES = (*MODEL_NAMES, *BASELINE_NAMES)
NETWORKS = ("cnn", "mlp", "lstm")
# Clauses that do not depend on what a network learns.
SHORT = (
    *("fit_changes_no_input", "smallest_inputs_are_accepted", "missing_values_are_scored"),
    *("hyperparameters_are_declared", "positive_weight_raises_scores"),
)


def cases() -> list[Any]:
    """Return each model with the clauses that apply to it."""
    exempt: dict[str, set[object]] = {
        "random": set(LEARNING_CLAUSES),
        "last_value": {positive_weight_raises_scores},
    }
    return [
        pytest.param(name, clause, id=f"{name}-{clause.__name__}")
        for name in NAMES
        for clause in CLAUSES
        if clause not in exempt.get(name, ())
    ]


def shared(name: str) -> Any:
    return fitted_once(BUILTIN.class_of(name))


@pytest.mark.parametrize(("name", "clause"), cases())
def test_model_meets_contract(
    name: str, clause: Callable[[ModelClass], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(name)
    if clause.__name__ in SHORT:
        for constant in ("_MAX_EPOCHS", "_MIN_EPOCHS", "_FIXED_EPOCHS"):
            monkeypatch.setattr(network_training, constant, 2)
    clause(BUILTIN.class_of(name))


@pytest.mark.parametrize("name", [*NETWORKS, "gbdt", "random"])
def test_other_seed_gives_other_scores(name: str) -> None:
    other = fitted_with_other_seed(BUILTIN.class_of(name)).score(HELD_OUT.inputs)
    assert not np.array_equal(other, shared(name).score(HELD_OUT.inputs))


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


def keras_network(model: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.keras"
        path.write_bytes(model.archive_)
        return keras().saving.load_model(path, compile=False, safe_mode=True)


@pytest.mark.parametrize("name", NETWORKS)
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


@pytest.mark.parametrize("name", NETWORKS)
def test_network_scores_equal_keras(name: str) -> None:
    model: Any = shared(name)
    network, inputs = keras_network(model), HELD_OUT.inputs
    expected = np.asarray(network(list(model.scaling_.apply(inputs)), training=False))[:, 0]
    log_odds = model.network_.log_odds(inputs, model.scaling_)
    assert np.ptp(expected) > 0.1
    assert np.allclose(log_odds, expected, rtol=0, atol=1e-5)
