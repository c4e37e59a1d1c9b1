"""The JSON file for the small parameters of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forewarn.models.finite_json import finite_json

__all__ = ["read_parameters", "write_parameters"]

_FILE = "parameters.json"


def write_parameters(folder: Path, parameters: Mapping[str, Any]) -> None:
    """Write `parameters` into an existing `folder`; floats keep full precision."""
    text = json.dumps(parameters, indent=1, allow_nan=False)
    (folder / _FILE).write_text(text + "\n", encoding="utf-8")


def read_parameters(folder: Path) -> dict[str, Any]:
    """Read the file that `write_parameters` wrote.

    Raises
    ------
    ValueError
        If it is not valid JSON, or holds a number that is not finite.
    """
    parameters: dict[str, Any] = finite_json((folder / _FILE).read_text(encoding="utf-8"))
    return parameters
