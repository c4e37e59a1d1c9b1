"""The files of a saved predictor, and the digests that say whether they are whole."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["DESCRIPTION", "digest_of", "digests_in", "is_models_folder", "models_folder"]

DESCRIPTION = "predictor.json"
_NAME = re.compile(r"models-[0-9a-f]{16}")


def digests_in(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its path in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def digest_of(described: Any) -> str:
    """Return the SHA-256 of something that JSON can hold, in whatever order its keys are."""
    text = json.dumps(described, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def models_folder(digests: Mapping[str, str]) -> str:
    """Name the sub-folder of the models by what is in it: two contents never share a name."""
    return f"models-{digest_of(digests)[:16]}"


def is_models_folder(path: Path) -> bool:
    """Tell whether `path` is a sub-folder that a predictor was saved in, file by file."""
    named = _NAME.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()
    return named and models_folder(digests_in(path)) == path.name
