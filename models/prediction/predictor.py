"""The whole predictor: encoder, models, committees and calibration, saved as one folder."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict, dataclass
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
from forewarn.models.prediction.predictor_files import (
    PREDICTOR_FORMAT,
    load_described,
    save_described,
    save_models,
)

__all__ = ["Predictor", "PredictorFacts"]


@dataclass(frozen=True, slots=True)
class PredictorFacts:
    """What a scoring and a reader need besides the models.

    Attributes
    ----------
    trained_at : str
        ISO 8601: nothing from then on was read.
    calibrated_on : tuple of str
        Starts of the test windows.
    prevalence : float
        Share of positives among the instances that were known.
    interval, step, horizon : int
        Nanoseconds between two records, between two instances, and after an instance.
    k, share : float
        Of what an ensemble flags, and of the fleet on a daily list.
    costs : dict or None
        Prices of the site, as JSON holds them.
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

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; what is not known is left out."""
        facts = asdict(self) | {"calibrated_on": list(self.calibrated_on)}
        return {name: facts[name] for name in sorted(facts) if facts[name] is not None}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        return cls(**{**saved, "calibrated_on": tuple(saved["calibrated_on"])})


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
    facts : PredictorFacts
    """

    encoder: Encoder
    models: dict[str, FailureModel]
    committee: Committee
    calibration: Calibration
    cascade_model: str
    facts: PredictorFacts

    def scores(self, values: InstanceValues) -> dict[str, Float64Array]:
        """Return the score of every model, of the rules, and their blend, of n instances."""
        inputs = self.encoder.encode(values)
        scores = {name: model.score(inputs) for name, model in self.models.items()}
        scores["rules"] = rule_scores(values, self.encoder.measures.plan)
        return scores | {"blend": self.committee.blend(scores)}

    @property
    def version(self) -> str:
        """Name of exactly this predictor: the day it was trained to and a digest of what it is."""
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
        """Return who else votes; what nobody asked for is not written, as before it was known."""
        votes = {"start": list(self.committee.start), "linear": self.committee.linear}
        return {name: value for name, value in votes.items() if value}

    def save(self, folder: Path) -> None:
        """Write everything into an existing, empty `folder` (`save_described`)."""
        save_described(folder, self.models, self._described())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        PredictorError
            If the folder holds no predictor, one of another format, or a damaged one.
        """
        return load_described(folder, cls._of_saved)

    @classmethod
    def _of_saved(cls, saved: dict[str, Any], models: dict[str, FailureModel]) -> Self:
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
        )
        # Known from the file: the models need not be written again to name the version.
        loaded.__dict__["_digests"] = saved["files"]
        return loaded
