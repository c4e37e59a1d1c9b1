"""The whole predictor: encoder, models, committees and calibration, saved as one folder."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.encoder import Encoder
from forewarn.features.inputs import InstanceValues
from forewarn.models.calibration import Calibration
from forewarn.models.committee import CASCADE_FIRST, Committee
from forewarn.models.ensembles import blend
from forewarn.models.protocol import FailureModel
from forewarn.models.registry import load_model

__all__ = ["Predictor"]

Floats = npt.NDArray[np.float64]
_FILE = "predictor.json"
_FORMAT = 1


@dataclass(frozen=True)
class Predictor:
    """What a training gives and a scoring needs.

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
        """Return the score of every model, and their blend, of n measured instances."""
        inputs = self.encoder.encode(values)
        scores = {name: model.score(inputs) for name, model in self.models.items()}
        return scores | {"blend": self.blend(scores)}

    def blend(self, scores: Mapping[str, Floats]) -> Floats:
        """Return the mean of the parallel members on the scale of log odds."""
        return blend({name: scores[name] for name in self.committee.parallel})

    @property
    def version(self) -> str:
        """Name of exactly this predictor: the day it was trained to and a digest of what it is."""
        digest = hashlib.blake2b(self._described(self._digests).encode(), digest_size=4)
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
        return _digests_in(folder, self.models)

    def _described(self, digests: Mapping[str, str]) -> str:
        described = {
            "format": _FORMAT,
            "encoder": self.encoder.to_dict(),
            "models": list(self.models),
            "digests": digests,
            "parallel": list(self.committee.parallel),
            "cascade": [list(stage) for stage in self.committee.cascade],
            "calibration": self.calibration.to_dict(),
            "cascade_model": self.cascade_model,
            "facts": self.facts,
        }
        return json.dumps(described, indent=1, sort_keys=True) + "\n"

    def save(self, folder: Path) -> None:
        """Write everything into an existing `folder`, in native formats."""
        described = self._described(self._save_models(folder))
        (folder / _FILE).write_text(described, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            If the folder holds no predictor, one of another format, or a damaged one.
        """
        path = folder / _FILE
        if not path.is_file():
            raise ValueError(f"{folder}: holds no `{_FILE}` as `forewarn train` writes it.")
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            if saved["format"] != _FORMAT:
                raise ValueError(f"{path}: format is {saved['format']!r}, expected {_FORMAT}.")
            _check_digests(folder, saved["models"], saved["digests"])
            loaded = cls(
                encoder=Encoder.from_dict(saved["encoder"]),
                models=_load_models(folder, saved["models"], saved["cascade_model"]),
                committee=Committee(
                    tuple(saved["parallel"]),
                    tuple((name, share) for name, share in saved["cascade"]),
                ),
                calibration=Calibration.from_dict(saved["calibration"]),
                cascade_model=saved["cascade_model"],
                facts=saved["facts"],
            )
        except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: is no whole predictor ({error!r}).") from None
        # Known from the file: the models need not be written again to name the version.
        loaded.__dict__["_digests"] = saved["digests"]
        return loaded


def _digests_in(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the digest of every file of the named models, by its path in the folder."""
    paths = sorted(path for name in names for path in (folder / name).rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.blake2b(
            path.read_bytes(), digest_size=16
        ).hexdigest()
        for path in paths
    }


def _check_digests(folder: Path, names: Iterable[str], expected: Mapping[str, str]) -> None:
    """Refuse a folder whose model files are not those that were saved, before reading one."""
    found = _digests_in(folder, names)
    for path in sorted(found.keys() | expected.keys()):
        if found.get(path) != expected.get(path):
            state = "is not there" if path not in found else "is damaged or of another model"
            raise ValueError(f"{folder / path}: {state}, expected what `forewarn train` wrote.")


def _load_models(folder: Path, names: list[str], cascade_model: str) -> dict[str, FailureModel]:
    kinds = {name: cascade_model if name == CASCADE_FIRST else name for name in names}
    return {name: load_model(kind, folder / name) for name, kind in kinds.items()}
