"""Folder for finished parts of a backtest, so that an interrupted backtest can be resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.models.finite_json import finite_json
from forewarn.models.prediction.predictor_files import content_digest, digests_in
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["PROGRESS", "ProgressFolder"]

PROGRESS = ".progress"
_INPUTS_FILE, _DIGESTS_FILE = "made_of.json", "done.json"


@dataclass(frozen=True, slots=True)
class ProgressFolder:
    """Parts of a result; each is a folder with the digests of its files.

    A part is written under a temporary name and renamed when complete. A killed process therefore
    leaves no incomplete parts.

    Attributes
    ----------
    folder : Path
    """

    folder: Path

    @classmethod
    def open(cls, out: Path, made_of: Mapping[str, Any]) -> ProgressFolder:
        """Open the folder of a result; remove existing parts if their inputs differ.

        Parameters
        ----------
        out : Path
            Output folder of the result.
        made_of : mapping
            All inputs of the parts by name, JSON-serializable.
        """
        folder = out / PROGRESS
        digests = {name: content_digest(value) for name, value in made_of.items()}
        if folder.exists():
            before = _read(folder / _INPUTS_FILE)
            others = [name for name, digest in digests.items() if before.get(name) != digest]
            if not others:
                for path in folder.glob("*.tmp"):
                    _remove(path)
                return cls(folder)
            note(f"{folder}: was made from other {' and '.join(others)}; the backtest starts again")
            shutil.rmtree(folder)
        write_atomic(folder / _INPUTS_FILE, json.dumps(digests, indent=1).encode())
        return cls(folder)

    def path(self, name: str) -> Path:
        """Return the path of a part."""
        return self.folder / name

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return the facts of a complete part; write a note and return None if it is damaged."""
        path = self.path(name)
        if not path.exists():
            return None
        done = _read(path / _DIGESTS_FILE)
        digests = digests_in(path)
        digests.pop(_DIGESTS_FILE, None)
        facts = done.get("facts")
        if isinstance(facts, dict) and done.get("digest") == content_digest([facts, digests]):
            return facts
        note(f"{path}: is damaged and will be computed again")
        _remove(path)
        return None

    def keep(self, name: str, write: Callable[[Path], Mapping[str, Any]]) -> None:
        """Write a part: `write` fills a folder and returns facts to store with it."""
        temporary = self.path(f"{name}.tmp")
        _remove(temporary)
        temporary.mkdir(parents=True)
        facts = dict(write(temporary))
        done = {"facts": facts, "digest": content_digest([facts, digests_in(temporary)])}
        write_atomic(temporary / _DIGESTS_FILE, json.dumps(done, indent=1, sort_keys=True).encode())
        _remove(self.path(name))
        temporary.rename(self.path(name))

    def drop(self, pattern: str) -> None:
        """Remove the parts whose names match a pattern."""
        for path in self.folder.glob(pattern):
            _remove(path)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON object; return an empty dict if the file is missing or invalid."""
    try:
        content = finite_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
