"""Reading and writing of `.keras` archives; equal networks give identical bytes."""

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
    """Configuration and weights of a network.

    Attributes
    ----------
    config : str
        JSON, as written by Keras.
    weights : mapping of sequence of ndarray
        By layer name, in Keras's order.
    """

    config: str
    weights: Mapping[str, Sequence[Float32Array]]


def read_network(network: Any) -> NetworkParts:
    """Return configuration and weights of a Keras network."""
    with _numpy_2_warning_off():
        weights = {layer.name: layer.get_weights() for layer in network.layers}
    return NetworkParts(network.to_json(), weights)


def read_archive(archive: bytes) -> NetworkParts:
    """Read configuration and weights from an archive without running any code from it."""
    import h5py  # slow to import; most commands read no network

    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        config = members.read("config.json").decode()
        file = h5py.File(io.BytesIO(members.read("model.weights.h5")))
    weights = {}
    with file:
        for layer in file["layers"].values():
            # An LSTM stores its weights in its cell.
            group = layer["cell/vars"] if "cell" in layer else layer["vars"]
            values = [_read_array(group, str(number)) for number in range(len(group))]
            weights[layer["vars"].attrs["name"]] = values
    return NetworkParts(config, weights)


def _read_array(group: Any, name: str) -> Float32Array:
    """Return an array stored in this file. HDF5 links can point to any file on the machine."""
    import h5py

    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink) or group[name].external or group[name].is_virtual:
        raise ValueError(f"weights {group.name}/{name} are stored in another file")
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
    """Suppress a NumPy 2 warning about how Keras reads TensorFlow variables."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        yield


def _without_clock(metadata: bytes) -> bytes:
    """Remove the time of saving."""
    fields = json.loads(metadata)
    fields.pop("date_saved", None)
    return json.dumps(fields).encode()


def _without_addresses(config: bytes) -> bytes:
    """Replace the memory addresses that Keras uses as ids of shared objects by 0, 1, 2, ..."""
    numbers: dict[int, int] = {}

    def numbered(part: dict[str, Any]) -> dict[str, Any]:
        if "shared_object_id" in part:
            address = part["shared_object_id"]
            part["shared_object_id"] = numbers.setdefault(address, len(numbers))
        return part

    return json.dumps(json.loads(config, object_hook=numbered)).encode()
