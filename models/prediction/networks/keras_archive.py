"""Keras networks as `.keras` archives in which equal networks are equal bytes."""

from __future__ import annotations

import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from forewarn.features.array_types import Float32Array

__all__ = ["NetworkParts", "read_archive", "read_network", "write_archive"]


class NetworkParts(NamedTuple):
    """What a network is made of.

    Attributes
    ----------
    config : str
        JSON, as Keras writes it.
    weights : mapping of sequence of ndarray
        By name of the layer, in Keras's order.
    """

    config: str
    weights: Mapping[str, Sequence[Float32Array]]


def read_network(network: Any) -> NetworkParts:
    """Take a Keras network apart, as it is now."""
    with _numpy_2_warning_off():
        weights = {layer.name: layer.get_weights() for layer in network.layers}
    return NetworkParts(network.to_json(), weights)


def read_archive(archive: bytes) -> NetworkParts:
    """Read the parts of a saved network; no code is looked for, and none would be run."""
    import h5py  # only here and below: most commands read no network

    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        config = members.read("config.json").decode()
        file = h5py.File(io.BytesIO(members.read("model.weights.h5")))
    weights = {}
    with file:
        for layer in file["layers"].values():
            # Those of an LSTM are its cell's.
            group = layer["cell/vars"] if "cell" in layer else layer["vars"]
            values = [_read_array(group, str(number)) for number in range(len(group))]
            weights[layer["vars"].attrs["name"]] = values
    return NetworkParts(config, weights)


def _read_array(group: Any, name: str) -> Float32Array:
    """Return an array that lies in this file itself: HDF5 can point to any file of the machine."""
    import h5py

    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink) or group[name].external or group[name].is_virtual:
        raise ValueError(f"weights {group.name}/{name} lie in another file")
    return np.asarray(group[name][()], dtype=np.float32)


def write_archive(network: Any) -> bytes:
    """Return a network as a `.keras` archive; the same weights give the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.keras"
        with _numpy_2_warning_off():
            network.save(path)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    members["metadata.json"] = _without_clock(members["metadata.json"])
    members["config.json"] = _without_addresses(members["config.json"])
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member)  # dated 1980
    return content.getvalue()


@contextmanager
def _numpy_2_warning_off() -> Iterator[None]:
    """Silence one warning of NumPy 2 about Keras' way of reading TensorFlow variables."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        yield


def _without_clock(metadata: bytes) -> bytes:
    """Leave out the moment of saving."""
    fields = json.loads(metadata)
    fields.pop("date_saved", None)
    return json.dumps(fields).encode()


def _without_addresses(config: bytes) -> bytes:
    """Replace the addresses in memory by which Keras names what layers share by 0, 1, 2, ..."""
    numbers: dict[int, int] = {}

    def numbered(part: dict[str, Any]) -> dict[str, Any]:
        if "shared_object_id" in part:
            address = part["shared_object_id"]
            part["shared_object_id"] = numbers.setdefault(address, len(numbers))
        return part

    return json.dumps(json.loads(config, object_hook=numbered)).encode()
