"""What a site's first training starts from: the models of another site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from forewarn.features.errors import InputError
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.plan import Plan
from forewarn.models.prediction.model_names import START
from forewarn.models.prediction.predictor import Predictor
from forewarn.models.prediction.protocol import FailureModel

__all__ = ["StartingPoint"]


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """An encoder and models that have learned from other failures.

    They stay as they are and vote beside the models that learn here. To go on fitting them was
    tried: on few failures they lose more of what they knew than they learn.

    Attributes
    ----------
    encoder : Encoder
        Also of the models that learn here, so that all see the same inputs.
    models : mapping of str to FailureModel
        By the names under which they are kept beside the others.
    """

    encoder: Encoder
    models: Mapping[str, FailureModel]

    @classmethod
    def of(cls, predictor: Predictor, plan: Plan) -> Self:
        """Take the members of a predictor's parallel model, for a training by `plan`.

        Raises
        ------
        InputError
            If the predictor measures something else.
        """
        theirs, ours = predictor.encoder.measures.plan.to_dict(), plan.to_dict()
        for name, expected in ours.items():
            if theirs[name] != expected:
                raise InputError(f"measures {name} {theirs[name]}, expected {expected}.")
        members = predictor.committee.parallel
        return cls(predictor.encoder, {START + name: predictor.models[name] for name in members})
