"""Keras networks on disk, as `.keras` archives in which equal networks are equal bytes."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forewarn.models.tensorflow_runtime import keras

__all__ = ["load_network", "save_network"]


def save_network(network: Any, path: Path) -> None:
    """Write `network` to `path`, which ends in `.keras`; the same weights give the same bytes."""
    with _numpy_2_warning_off():
        network.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["metadata.json"] = _without_clock(members["metadata.json"])
    members["config.json"] = _without_addresses(members["config.json"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # dated 1980


def load_network(path: Path) -> Any:
    """Read a network that holds no code of its own (`safe_mode`)."""
    with _numpy_2_warning_off():
        return keras().saving.load_model(path, compile=False, safe_mode=True)


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
