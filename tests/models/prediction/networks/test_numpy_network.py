from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.linear.bucket_scaling import InputScaling
from forewarn.models.prediction.networks.architectures import CnnModel, LstmModel, MlpModel
from forewarn.models.prediction.networks.keras_archive import (
    NetworkParts,
    read_archive,
    read_network,
    write_archive,
)
from forewarn.models.prediction.networks.network_model import NetworkModel
from forewarn.models.prediction.networks.numpy_network import NumpyNetwork
from forewarn.models.tensorflow_runtime import fresh_keras

KINDS = pytest.mark.parametrize("kind", [CnnModel, MlpModel, LstmModel])


def inputs_of(n: int, length: int) -> ModelInputs:
    rng = np.random.default_rng(length)
    sequence = rng.integers(0, 12, (n, length, 5), dtype=np.uint8)
    context = rng.integers(0, 12, (n, 9), dtype=np.uint8)
    names = tuple(f"channel{i}" for i in range(5)), tuple(f"context{i}" for i in range(9))
    return ModelInputs(sequence, context, *names, (12,) * 5, (12,) * 9)


def network_parts(kind: type[NetworkModel], length: int) -> NetworkParts:
    """Return a network with biases other than 0."""
    network = kind(seed=0, purge=0).build(fresh_keras(1), length, 6, 10)
    rng = np.random.default_rng(2)
    network.set_weights([rng.normal(0, 0.4, w.shape) for w in network.get_weights()])
    return read_network(network)


def keras_scores(
    kind: type[NetworkModel], parts: NetworkParts, inputs: ModelInputs, scaling: InputScaling
) -> npt.NDArray[np.float32]:
    network = kind(seed=0, purge=0).build(fresh_keras(1), inputs.sequence.shape[1], 6, 10)
    for layer, weights in zip(network.layers, parts.weights.values(), strict=True):
        layer.set_weights(weights)
    return np.asarray(network(list(scaling.apply(inputs)), training=False))[:, 0]


@KINDS
@pytest.mark.parametrize("length", [1, 2, 5, 18])
def test_scores_equal_keras_for_any_length(kind: type[NetworkModel], length: int) -> None:
    inputs = inputs_of(70, length)
    scaling, parts = InputScaling.fit(inputs), network_parts(kind, length)
    log_odds = NumpyNetwork.from_parts(parts).log_odds(inputs, scaling)
    expected = keras_scores(kind, parts, inputs, scaling)
    assert np.ptp(expected) > 0.5
    assert np.allclose(log_odds, expected, rtol=0, atol=1e-5)


@KINDS
def test_scores_are_independent_of_batch_size(kind: type[NetworkModel]) -> None:
    inputs = inputs_of(600, 18)
    network, scaling = NumpyNetwork.from_parts(network_parts(kind, 18)), InputScaling.fit(inputs)
    scores = network.log_odds(inputs, scaling)
    for rows in (slice(0, 1), slice(7, 311), slice(599, 600), slice(0, 0)):
        assert (network.log_odds(inputs.select(rows), scaling) == scores[rows]).all()


@KINDS
def test_archive_round_trip(kind: type[NetworkModel]) -> None:
    network = kind(seed=0, purge=0).build(fresh_keras(1), 3, 6, 10)
    parts, stored = read_network(network), read_archive(write_archive(network))
    assert stored.weights.keys() == parts.weights.keys()
    for name, weights in parts.weights.items():
        assert len(stored.weights[name]) == len(weights)
        for mine, theirs in zip(weights, stored.weights[name], strict=True):
            assert (mine == theirs).all()
    layers = (json.loads(each.config)["config"]["layers"] for each in (parts, stored))
    kinds, stored_kinds = ([layer["class_name"] for layer in some] for some in layers)
    assert stored_kinds == kinds


@pytest.mark.parametrize(
    ("name", "layer", "found"),
    [
        ("class_name", "Dense", "layer dense is a Mystery"),
        ("activation", "Dense", "activation gelu is not supported"),
        ("strides", "Conv1D", r"layer conv1d: strides is gelu, expected \[1\]"),
    ],
)
def test_unknown_layer_is_refused(name: str, layer: str, found: str) -> None:
    parts = network_parts(CnnModel, 4)
    config = json.loads(parts.config)
    chosen = next(each for each in config["config"]["layers"] if each["class_name"] == layer)
    if name == "class_name":
        chosen["class_name"] = "Mystery"
    else:
        chosen["config"][name] = "gelu"
    with pytest.raises(ValueError, match=found):
        NumpyNetwork.from_parts(parts._replace(config=json.dumps(config)))


def test_wrong_weight_shape_is_refused() -> None:
    parts = network_parts(MlpModel, 4)
    weights = {**parts.weights, "dense": [w[:-1] for w in parts.weights["dense"]]}
    with pytest.raises(ValueError, match=r"weights are \(1, 33, 16\), expected 34 inputs and 15"):
        NumpyNetwork.from_parts(parts._replace(weights=weights))


@pytest.mark.parametrize("kind", ["raw bytes", "link"])
def test_external_weights_are_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(np.ones(4, dtype=np.float32).tobytes())
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        variables = file.create_group("layers/dense/vars")
        variables.attrs["name"] = "dense"
        if kind == "link":
            variables["0"] = h5py.ExternalLink("other.h5", "/weights")
        else:
            variables.create_dataset("0", (4,), "f4", external=str(tmp_path / "other"))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("config.json", "{}")
        members.write(tmp_path / "weights.h5", "model.weights.h5")
    with pytest.raises(ValueError, match="vars/0 are stored in another file"):
        read_archive(archive.getvalue())
