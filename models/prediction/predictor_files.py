"""Files of trained models: a description with a digest, and the folder of the models it names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from forewarn.features.errors import InputError
from forewarn.models.finite_json import finite_json
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.model_catalogue import ModelCatalogue
from forewarn.models.prediction.model_names import model_kind

__all__ = [
    "DESCRIPTION",
    "PREDICTOR_FORMAT",
    "PredictorError",
    "content_digest",
    "digests_in",
    "is_models_folder",
    "load_described",
    "models_folder",
    "save_described",
    "save_models",
]

DESCRIPTION = "predictor.json"
# Format 1 did not store the names and the order of the columns. Format 2 ranked by the models
# alone.
PREDICTOR_FORMAT = 3
Loaded = TypeVar("Loaded")
_NAME = re.compile(r"models-[0-9a-f]{16}")


class PredictorError(InputError):
    """A folder that holds no predictor, one of another format, or a damaged one."""


def digests_in(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def content_digest(described: Any) -> str:
    """Return the SHA-256 of a JSON-serializable value, independent of the order of keys."""
    text = json.dumps(described, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def models_folder(digests: Mapping[str, str]) -> str:
    """Return the name of the models sub-folder, derived from its content."""
    return f"models-{content_digest(digests)[:16]}"


def is_models_folder(path: Path) -> bool:
    """Return whether `path` is a complete models sub-folder of a saved predictor."""
    named = _NAME.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()
    return named and models_folder(digests_in(path)) == path.name


def save_models(folder: Path, models: Mapping[str, FailureModel]) -> dict[str, str]:
    """Save each model to its own sub-folder; return the digests of all files."""
    for name, model in models.items():
        (folder / name).mkdir()
        model.save(folder / name)
    return digests_in(folder)


def save_described(
    folder: Path, models: Mapping[str, FailureModel], described: Mapping[str, Any]
) -> None:
    """Write models and their description into an existing, empty `folder`, in native formats.

    `predictor.json` holds the description, a digest of every file and one of itself. The models are
    in a sub-folder whose name is derived from their content.
    """
    temporary = folder / "models"
    temporary.mkdir()
    files = save_models(temporary, models)
    temporary.rename(folder / models_folder(files))
    whole = {**described, "format": PREDICTOR_FORMAT, "models": list(models), "files": files}
    text = json.dumps(whole | {"digest": content_digest(whole)}, indent=1, sort_keys=True)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def load_described(
    folder: Path,
    build: Callable[[dict[str, Any], dict[str, FailureModel]], Loaded],
    catalogue: ModelCatalogue,
) -> Loaded:
    """Load a description and its models (`save_described`) and return the result of `build`.

    Raises
    ------
    PredictorError
        If the folder holds no predictor, one of another format, or a damaged one, or if the
        catalogue lacks a plug-in model or has another version of its package.
    """
    path = folder / DESCRIPTION
    while True:
        if not path.is_file():
            raise PredictorError(
                f"{folder}: has no `{DESCRIPTION}`, expected a folder written by `forewarn train`."
            )
        text = path.read_bytes()
        try:
            return _build(text, path, build, catalogue)
        except PredictorError:
            # A training may have replaced the predictor meanwhile. In that case, read the new one.
            if path.is_file() and path.read_bytes() == text:
                raise


def _build(
    text: bytes,
    path: Path,
    build: Callable[[dict[str, Any], dict[str, FailureModel]], Loaded],
    catalogue: ModelCatalogue,
) -> Loaded:
    saved = _checked(text, path)
    try:
        folder = path.parent / models_folder(saved["files"])
        _check_files(folder, saved["files"])
        kinds = {name: model_kind(name, saved["cascade_model"]) for name in saved["models"]}
        _check_packages(path, saved.get("packages", {}), catalogue)
        models = {name: _load_model(catalogue, kind, folder / name) for name, kind in kinds.items()}
        return build(saved, models)
    except PredictorError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PredictorError(f"{path}: is not a complete predictor ({error!r}).") from None


def _checked(text: bytes, path: Path) -> dict[str, Any]:
    """Return the description if its format and digest are right."""
    try:
        saved = finite_json(text.decode())
        stored_format = saved["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise PredictorError(f"{path}: is not a complete predictor ({error!r}).") from None
    if stored_format != PREDICTOR_FORMAT:
        raise PredictorError(
            f"{path}: format is {stored_format!r}, expected {PREDICTOR_FORMAT}. Another version of "
            "forewarn saved it; train again."
        )
    if saved.pop("digest", None) != content_digest(saved):
        raise PredictorError(
            f"{path}: is damaged (its content does not match its digest); expected a file written "
            "by `forewarn train`."
        )
    return dict(saved)


def _check_files(folder: Path, expected: Mapping[str, str]) -> None:
    """Refuse missing or modified model files before any of them is read."""
    digests = digests_in(folder)
    for path in sorted(digests.keys() | expected.keys()):
        if digests.get(path) != expected.get(path):
            state = "is missing" if path not in digests else "is damaged or from another model"
            raise PredictorError(
                f"{folder / path}: {state}, expected a file written by `forewarn train`."
            )


def _check_packages(path: Path, expected: Mapping[str, str], catalogue: ModelCatalogue) -> None:
    """Refuse other versions of the packages that trained plug-in models."""
    available = catalogue.packages(expected)
    for name, package in expected.items():
        if name not in available:
            raise PredictorError(
                f"{path}: model `{name}` needs the package {package}, expected it installed and "
                f"`{name}` in `models.plugins` of the configuration."
            )
        if available[name] != package:
            raise PredictorError(
                f"{path}: model `{name}` was trained by {package}, found {available[name]}. "
                "Install that version, or train again."
            )


def _load_model(catalogue: ModelCatalogue, kind: str, folder: Path) -> FailureModel:
    try:
        return catalogue.load(kind, folder)
    except (
        Exception
    ) as error:  # the errors that Keras raises for a damaged archive are not documented
        detail = " ".join(str(error).split())[:160]
        raise PredictorError(
            f"{folder}: cannot be loaded as {kind} ({type(error).__name__}: {detail}), expected "
            "files written by `forewarn train`."
        ) from None
