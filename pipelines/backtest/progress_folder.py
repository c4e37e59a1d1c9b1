"""What a backtest has finished, kept beside its results until all of it is done."""

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
    """Parts of a result, each a folder with the digests of its files.

    A part is written under a temporary name and takes its own when it is whole, so that a process
    that is killed leaves parts that are whole, or none.

    Attributes
    ----------
    folder : Path
    """

    folder: Path

    @classmethod
    def open(cls, out: Path, made_of: Mapping[str, Any]) -> ProgressFolder:
        """Return the folder of a result; parts that are made of something else are removed.

        Parameters
        ----------
        out : Path
            Where the result will be.
        made_of : mapping
            All that decides what the parts are, as JSON can hold it; a part by its name.
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
            note(f"{folder}: is of other {' and '.join(others)}, so the backtest begins anew")
            shutil.rmtree(folder)
        write_atomic(folder / _INPUTS_FILE, json.dumps(digests, indent=1).encode())
        return cls(folder)

    def path(self, name: str) -> Path:
        """Return where a part is."""
        return self.folder / name

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return the facts of a part that is whole; None, with a note, of one that is damaged."""
        path = self.path(name)
        if not path.exists():
            return None
        done = _read(path / _DIGESTS_FILE)
        digests = digests_in(path)
        digests.pop(_DIGESTS_FILE, None)
        facts = done.get("facts")
        if isinstance(facts, dict) and done.get("digest") == content_digest([facts, digests]):
            return facts
        note(f"{path}: is damaged, and is made anew")
        _remove(path)
        return None

    def keep(self, name: str, write: Callable[[Path], Mapping[str, Any]]) -> None:
        """Write a part: `write` fills a folder and returns the facts to keep beside it."""
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
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    """Return what a JSON file holds; an empty dict where it is missing or no whole one."""
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
