"""A predictor's folder, in which a new predictor replaces the old one atomically."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.models.prediction.predictor import Predictor
from forewarn.models.prediction.predictor_files import DESCRIPTION, digests_in, is_models_folder
from forewarn.pipelines.storage.files.file_lock import locked

__all__ = ["save_predictor"]

_TEMPORARY, _LOCK = ".predictor.tmp", ".predictor.lock"


def save_predictor(predictor: Predictor, folder: Path) -> None:
    """Save a predictor in `folder` in place of the stored one.

    The switch is one rename of `predictor.json`, which names the sub-folder of the models written
    before. A process killed at any point leaves a complete predictor, the old or the new one; the
    next save removes stale files. Only `predictor.json` and sub-folders of models are touched.

    Parameters
    ----------
    predictor : Predictor
    folder : Path
        Created if needed.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / _LOCK, "another saving"), _temporary(folder) as temporary:
            predictor.save(temporary)
            _put_in_place(temporary, folder)
    finally:
        for path in made:
            if path.exists() and not any(path.iterdir()):
                path.rmdir()


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Yield an empty sub-folder, without stale files of a killed process."""
    path = folder / _TEMPORARY
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _put_in_place(temporary: Path, folder: Path) -> None:
    (models,) = (path for path in temporary.iterdir() if path.is_dir())
    final = folder / models.name
    if not _same(models, final):
        if final.exists():
            final.rename(temporary / "damaged")
        models.rename(final)
    (temporary / DESCRIPTION).replace(folder / DESCRIPTION)
    for number, path in enumerate(folder.iterdir()):
        if path != final and is_models_folder(path):
            path.rename(temporary / f"left-{number}")


def _same(models: Path, other: Path) -> bool:
    return other.is_dir() and digests_in(other) == digests_in(models)
