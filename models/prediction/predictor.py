"""The predictor: encoder, models, committee and calibration, saved as one folder."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from forewarn.features.array_types import Float64Array
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.models.prediction.builtin_rules import rule_scores
from forewarn.models.prediction.calibration import Calibration
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.model_catalogue import BUILTIN, ModelCatalogue
from forewarn.models.prediction.predictor_files import (
    PREDICTOR_FORMAT,
    load_described,
    save_described,
    save_models,
)

__all__ = ["Predictor", "PredictorFacts"]


@dataclass(frozen=True, slots=True)
class PredictorFacts:
    """Facts about a training that scoring and reports need in addition to the models.

    Attributes
    ----------
    trained_at : str
        Training cutoff, ISO 8601: no data from then on was read.
    calibrated_on : tuple of str
        Starts of the test windows.
    prevalence : float
        Share of positives among the instances with known labels.
    failures_known : int
        Failures in the training span that were known at the training.
    interval, step, horizon : int
        Nanoseconds between two records, between two instances, and after an instance.
    k, share : float
        Share that an ensemble flags, and share of the fleet on a daily list.
    costs : dict or None
        Action costs of the site, as in JSON.
    columns : dict or None
        Names of the columns in the records of the training, by our names.
    hyperparameters : dict or None
        Those that differ from the default, by model.
    """

    trained_at: str
    train_length_days: float
    days_of_records: float
    calibrated_on: tuple[str, ...]
    prevalence: float
    failures_known: int
    interval: int
    step: int
    horizon: int
    k: float
    share: float
    seed: int
    costs: dict[str, object] | None = None
    columns: dict[str, str] | None = None
    hyperparameters: dict[str, dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict without unknown values."""
        facts = asdict(self) | {"calibrated_on": list(self.calibrated_on)}
        return {name: facts[name] for name in sorted(facts) if facts[name] is not None}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """Read a dict from `to_dict`."""
        return cls(**{**saved, "calibrated_on": tuple(saved["calibrated_on"])})


@dataclass(frozen=True)
class Predictor:
    """The result of a training, with everything that scoring needs.

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
    facts : PredictorFacts
    packages : mapping of str to str
        Package and version of the plug-in models, by kind. Other versions do not load them.
    """

    encoder: Encoder
    models: dict[str, FailureModel]
    committee: Committee
    calibration: Calibration
    cascade_model: str
    facts: PredictorFacts
    packages: Mapping[str, str] = field(default_factory=dict)

    def scores(self, values: InstanceValues) -> dict[str, Float64Array]:
        """Return the scores of all models and of the rules, and their blend, for n instances."""
        inputs = self.encoder.encode(values)
        scores = {name: model.score(inputs) for name, model in self.models.items()}
        scores["rules"] = rule_scores(values, self.encoder.measures.plan)
        return scores | {"blend": self.committee.blend(scores)}

    @property
    def version(self) -> str:
        """Unique name of this predictor: date of its training cutoff and digest of its content."""
        models = {"format": PREDICTOR_FORMAT, "models": list(self.models), "files": self._digests}
        described = json.dumps(self._described() | models, sort_keys=True)
        digest = hashlib.blake2b(described.encode(), digest_size=4)
        return f"{self.facts.trained_at[:10]}-{digest.hexdigest()}"

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Digests of the files of all models."""
        with tempfile.TemporaryDirectory() as folder:
            return save_models(Path(folder), self.models)

    def _described(self) -> dict[str, Any]:
        return {
            "encoder": self.encoder.to_dict(),
            "parallel": list(self.committee.parallel),
            "cascade": [list(stage) for stage in self.committee.cascade],
            "rules": self.committee.rules,
            "calibration": self.calibration.to_dict(),
            "cascade_model": self.cascade_model,
            "facts": self.facts.to_dict(),
        } | self._votes()

    def _votes(self) -> dict[str, Any]:
        """Return further voters and packages; unused ones are omitted, as in older files."""
        votes: dict[str, Any] = {
            "start": list(self.committee.start),
            "linear": self.committee.linear,
            "packages": dict(self.packages),
        }
        return {name: value for name, value in votes.items() if value}

    def save(self, folder: Path) -> None:
        """Write everything into an existing, empty `folder` (`save_described`)."""
        save_described(folder, self.models, self._described())

    @classmethod
    def load(cls, folder: Path, catalogue: ModelCatalogue = BUILTIN) -> Self:
        """Read the files that `save` wrote.

        Raises
        ------
        PredictorError
            See `load_described`.
        """
        return load_described(folder, cls._from_saved, catalogue)

    @classmethod
    def _from_saved(cls, saved: dict[str, Any], models: dict[str, FailureModel]) -> Self:
        loaded = cls(
            encoder=Encoder.from_dict(saved["encoder"]),
            models=models,
            committee=Committee(
                tuple(saved["parallel"]),
                tuple((name, share) for name, share in saved["cascade"]),
                float(saved["rules"]),
                tuple(saved.get("start", ())),
                float(saved.get("linear", 0.0)),
            ),
            calibration=Calibration.from_dict(saved["calibration"]),
            cascade_model=saved["cascade_model"],
            facts=PredictorFacts.from_dict(saved["facts"]),
            packages=saved.get("packages", {}),
        )
        # The file contains the digests, so naming the version does not require writing the models
        # again.
        loaded.__dict__["_digests"] = saved["files"]
        return loaded
