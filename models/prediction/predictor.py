"""The whole predictor: encoder, models, committees and calibration, saved as one folder."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.errors import InputError
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.inputs import InstanceValues
from forewarn.models.finite_json import finite_json
from forewarn.models.prediction.builtin_rules import rule_scores
from forewarn.models.prediction.calibration import Calibration
from forewarn.models.prediction.catalogue import load_model
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.model_names import kind_of
from forewarn.models.prediction.predictor_files import (
    DESCRIPTION,
    digest_of,
    digests_in,
    models_folder,
)
from forewarn.models.prediction.protocol import FailureModel

__all__ = ["PREDICTOR_FORMAT", "Predictor", "PredictorError"]

Floats = npt.NDArray[np.float64]
# 1 did not hold the names and the order of its columns: what it scored was not what it had learned.
# 2 ranked by the models alone.
PREDICTOR_FORMAT = 3


class PredictorError(InputError):
    """A folder that holds no predictor, one of another format, or a damaged one."""


@dataclass(frozen=True)
class Predictor:
    """The result of a training, and all that a scoring needs.

    Attributes
    ----------
    encoder : Encoder
    models : dict of FailureModel
        By the name of their score.
    committee : Committee
    calibration : Calibration
        From the blend of the parallel members to a probability at true prevalence.
    cascade_model : str
        Kind of the model behind the score `cascade_first`.
    facts : dict
        What a scoring and a reader need besides: trained_at, step, horizon, share, k, ...
    """

    encoder: Encoder
    models: dict[str, FailureModel]
    committee: Committee
    calibration: Calibration
    cascade_model: str
    facts: dict[str, Any] = field(default_factory=dict)

    def scores(self, values: InstanceValues) -> dict[str, Floats]:
        """Return the score of every model, of the rules, and their blend, of n instances."""
        inputs = self.encoder.encode(values)
        scores = {name: model.score(inputs) for name, model in self.models.items()}
        scores["rules"] = rule_scores(values, self.encoder.measures.plan)
        return scores | {"blend": self.committee.blend(scores)}

    @property
    def version(self) -> str:
        """Name of exactly this predictor: the day it was trained to and a digest of what it is."""
        described = json.dumps(self._described(self._digests), sort_keys=True)
        digest = hashlib.blake2b(described.encode(), digest_size=4)
        return f"{str(self.facts.get('trained_at', ''))[:10]}-{digest.hexdigest()}"

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Digests of the files of all models."""
        with tempfile.TemporaryDirectory() as folder:
            return self._save_models(Path(folder))

    def _save_models(self, folder: Path) -> dict[str, str]:
        for name, model in self.models.items():
            (folder / name).mkdir()
            model.save(folder / name)
        return digests_in(folder)

    def _described(self, digests: Mapping[str, str]) -> dict[str, Any]:
        return {
            "format": PREDICTOR_FORMAT,
            "encoder": self.encoder.to_dict(),
            "models": list(self.models),
            "files": dict(digests),
            "parallel": list(self.committee.parallel),
            "cascade": [list(stage) for stage in self.committee.cascade],
            "rules": self.committee.rules,
            "calibration": self.calibration.to_dict(),
            "cascade_model": self.cascade_model,
            "facts": self.facts,
        } | self._votes()

    def _votes(self) -> dict[str, Any]:
        """Return who else votes; what nobody asked for is not written, as before it was known."""
        votes = {"start": list(self.committee.start), "linear": self.committee.linear}
        return {name: value for name, value in votes.items() if value}

    def save(self, folder: Path) -> None:
        """Write everything into an existing, empty `folder`, in native formats.

        `predictor.json` says what there is, with a digest of every file and one of itself; the
        models are in a sub-folder whose name tells what is in it.
        """
        models = folder / "models"
        models.mkdir()
        digests = self._save_models(models)
        models.rename(folder / models_folder(digests))
        described = self._described(digests)
        described["digest"] = digest_of(described)
        text = json.dumps(described, indent=1, sort_keys=True, allow_nan=False)
        (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        PredictorError
            If the folder holds no predictor, one of another format, or a damaged one.
        """
        path = folder / DESCRIPTION
        while True:
            if not path.is_file():
                raise PredictorError(f"{folder}: holds no `{DESCRIPTION}` of `forewarn train`.")
            text = path.read_bytes()
            try:
                return cls._of_text(text, path)
            except PredictorError:
                # A training may have put a new predictor in its place meanwhile: then read that.
                if path.is_file() and path.read_bytes() == text:
                    raise

    @classmethod
    def _of_text(cls, text: bytes, path: Path) -> Self:
        saved = _checked(text, path)
        try:
            digests = saved["files"]
            models = path.parent / models_folder(digests)
            _check_files(models, digests)
            loaded = cls(
                encoder=Encoder.from_dict(saved["encoder"]),
                models=_load_models(models, saved["models"], saved["cascade_model"]),
                committee=Committee(
                    tuple(saved["parallel"]),
                    tuple((name, share) for name, share in saved["cascade"]),
                    float(saved["rules"]),
                    tuple(saved.get("start", ())),
                    float(saved.get("linear", 0.0)),
                ),
                calibration=Calibration.from_dict(saved["calibration"]),
                cascade_model=saved["cascade_model"],
                facts=saved["facts"],
            )
        except PredictorError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PredictorError(f"{path}: is no whole predictor ({error!r}).") from None
        # Known from the file: the models need not be written again to name the version.
        loaded.__dict__["_digests"] = digests
        return loaded


def _checked(text: bytes, path: Path) -> dict[str, Any]:
    """Return a description of this format that is what was saved."""
    try:
        saved = finite_json(text.decode())
        stored_format = saved["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise PredictorError(f"{path}: is no whole predictor ({error!r}).") from None
    if stored_format != PREDICTOR_FORMAT:
        raise PredictorError(
            f"{path}: format is {stored_format!r}, expected {PREDICTOR_FORMAT}: another version of "
            "forewarn saved it, train again."
        )
    if saved.pop("digest", None) != digest_of(saved):
        raise PredictorError(
            f"{path}: is no whole predictor (found another content than its digest says, expected "
            "what `forewarn train` wrote)."
        )
    return dict(saved)


def _check_files(folder: Path, expected: Mapping[str, str]) -> None:
    """Refuse model files that are not those that were saved, before reading one."""
    digests = digests_in(folder)
    for path in sorted(digests.keys() | expected.keys()):
        if digests.get(path) != expected.get(path):
            state = "is not there" if path not in digests else "is damaged or of another model"
            raise PredictorError(f"{folder / path}: {state}, expected what `forewarn train` wrote.")


def _load_models(folder: Path, names: list[str], cascade_model: str) -> dict[str, FailureModel]:
    return {name: _load_model(kind_of(name, cascade_model), folder / name) for name in names}


def _load_model(kind: str, folder: Path) -> FailureModel:
    try:
        return load_model(kind, folder)
    except Exception as error:  # what a damaged archive makes Keras raise is written nowhere
        detail = " ".join(str(error).split())[:160]
        raise PredictorError(
            f"{folder}: is no {kind} that can score ({type(error).__name__}: {detail}), expected "
            "what `forewarn train` wrote."
        ) from None
