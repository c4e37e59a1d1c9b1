from __future__ import annotations

import gc
import json
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from forewarn.features.array_types import Int8Array, Int64Array
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.features.time_units import DAY
from forewarn.models.prediction.networks.architectures import CnnModel, LstmModel, MlpModel
from forewarn.models.prediction.networks.network_model import NetworkModel
from forewarn.models.tensorflow_runtime import keras, tensorflow


def instances(n: int = 120) -> tuple[ModelInputs, Int8Array, Int64Array]:
    """A weak signal over ten days, with an instance every two hours."""
    rng = np.random.default_rng(0)
    labels = (rng.random(n) < 0.4).astype(np.int8)
    sequence = rng.integers(1, 10, (n, 3, 2), dtype=np.uint8)
    sequence[:, :, 0] += 2 * labels[:, None].astype(np.uint8)
    context = rng.integers(0, 12, (n, 20), dtype=np.uint8)
    names = tuple(f"context{i}" for i in range(20))
    inputs = ModelInputs(sequence, context, ("a", "b"), names, (12, 12), (12,) * 20)
    return inputs, labels, np.arange(n, dtype=np.int64) * 10 * DAY // n


@cache
def plain() -> NetworkModel:
    """Return one network, shared by all tests that do not change it."""
    return fitted()


def fitted(
    labels: Int8Array | None = None, *, purge: int = DAY, kind: type[NetworkModel] = MlpModel
) -> NetworkModel:
    inputs, own_labels, ends = instances()
    labels = own_labels if labels is None else labels
    weights = np.ones(len(labels), dtype=np.float32)
    return kind(seed=1, purge=purge).fit(inputs, labels, weights, ends)


def layers(model: NetworkModel) -> Counter[str]:
    network = model.build(keras(), 18, 4, 7)
    assert network.input_shape == [(None, 18, 4), (None, 7)]
    assert network.output_shape == (None, 1)
    return Counter(type(layer).__name__ for layer in network.layers)


def test_cnn_architecture() -> None:
    found = layers(CnnModel(seed=0, purge=DAY))
    assert (found["Conv1D"], found["Dense"]) == (4, 2)


def test_mlp_architecture() -> None:
    assert layers(MlpModel(seed=0, purge=DAY))["Dense"] == 3


def test_lstm_architecture() -> None:
    model = LstmModel(seed=0, purge=DAY)
    assert layers(model)["LSTM"] == 1
    network = model.build(keras(), 18, 4, 7)
    (lstm,) = (layer for layer in network.layers if type(layer).__name__ == "LSTM")
    assert lstm.units == 10


def test_epochs_are_chosen_on_late_part() -> None:
    assert 10 <= plain().n_epochs_ <= 30


@pytest.mark.parametrize("purge", [9 * DAY, 30 * DAY])
def test_no_early_part_uses_fixed_epochs(purge: int) -> None:
    assert fitted(purge=purge).n_epochs_ == 15


def test_no_late_positives_use_fixed_epochs() -> None:
    _, labels, ends = instances()
    assert fitted(np.where(ends >= 7 * DAY, 0, labels).astype(np.int8)).n_epochs_ == 15


def test_purged_labels_do_not_choose_epochs() -> None:
    _, labels, ends = instances()
    gap = (ends > 7 * DAY) & (ends < 7.9 * DAY)
    early = ends < 6.5 * DAY
    flipped_gap, flipped_early = (
        np.where(part, 1 - labels, labels).astype(np.int8) for part in (gap, early)
    )
    assert gap.sum() > 5
    expected = plain().n_epochs_
    assert fitted(flipped_gap).n_epochs_ == expected
    assert fitted(flipped_early).n_epochs_ != expected


def test_saved_network_has_no_code_or_time(tmp_path: Path) -> None:
    fitted(kind=CnnModel).save(tmp_path)
    with zipfile.ZipFile(tmp_path / "network.keras") as archive:
        assert "date_saved" not in json.loads(archive.read("metadata.json"))
        assert {member.date_time[0] for member in archive.infolist()} == {1980}
        config = json.loads(archive.read("config.json"))
    modules = {layer["module"] for layer in config["config"]["layers"]}
    assert modules == {"keras.layers"}
    assert "Lambda" not in {layer["class_name"] for layer in config["config"]["layers"]}


def test_fits_leak_no_graphs() -> None:
    def operations() -> int:
        gc.collect()
        # By type: accessing the class of other libraries' weak references may raise.
        graphs = [one for one in gc.get_objects() if issubclass(type(one), tensorflow().Graph)]
        return sum(len(graph.get_operations()) for graph in graphs)

    fitted(purge=30 * DAY)
    before = operations()
    for _ in range(2):
        fitted(purge=30 * DAY)
    assert operations() <= before
