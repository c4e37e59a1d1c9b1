"""Recipes in the registry: what was trained as of a moment and need not be trained again."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from importlib.metadata import version

from mlflow.exceptions import MlflowException

from forewarn.evaluation.schedule import last_finished
from forewarn.evaluation.walk import Trained, Walk, as_of, scorable
from forewarn.features.records import DAY
from forewarn.models.predictor import PREDICTOR_FORMAT, Predictor
from forewarn.pipelines.job import Job
from forewarn.pipelines.leftovers import scratch_folder, sweep_scratch
from forewarn.pipelines.moments import iso
from forewarn.pipelines.registry import Registry, digest_of
from forewarn.pipelines.stages import note

__all__ = ["Recipes", "train_recipe"]


def train_recipe(job: Job, moment: int, length: int, registry: Registry) -> str:
    """Train a length as of the start of the last window that is finished at `moment`; keep it.

    Returns
    -------
    str
        What was done, in words. A length that is there, or that too few failures are known for, is
        no error: the retraining that recalls it sees to that.
    """
    terms = job.terms
    start = last_finished(moment, every=terms.every, horizon=terms.recipe.horizon)
    tags = {"forewarn.kind": "ahead", "forewarn.at": str(start), "forewarn.length": str(length)}
    sweep_scratch()
    registry.abandon(tags)
    with registry.run(f"{iso(start)[:10]}, ahead", tags) as run:
        recipes = Recipes(registry, job, run)
        records, failures = job.store.read_known(start - terms.reach, start)
        walk = Walk(terms, records, failures, scorable(records, failures, terms), memory=recipes)
        walk.train(as_of(records, failures, start, terms.reach), start, length, terms.names)
    what = "recalled" if recipes.recalled else "trained" if recipes.trained else "too few failures"
    return f"{length / DAY:g} days as of {iso(start)}: {what}"


@dataclass(slots=True)
class Recipes:
    """The memory of a walk (`evaluation.walk.Memory`): one run for each moment and length.

    Attributes
    ----------
    registry : Registry
    job : Job
    parent : str
        Run of the retraining under which new ones are kept.
    recalled, trained : int
        How many came from earlier retrainings, and how many are new.
    """

    registry: Registry
    job: Job
    parent: str
    recalled: int = 0
    trained: int = 0

    @property
    def digest(self) -> str:
        """Names the recipe: what else than records, moment and length decides what is trained."""
        terms = self.job.terms
        recipe = json.loads(json.dumps(dataclasses.asdict(terms.recipe), default=list))
        made_by = [version("forewarn"), PREDICTOR_FORMAT]
        return digest_of([recipe, terms.names, terms.committee.parallel, *made_by])

    def _tags(self, moment: int, length: int) -> dict[str, str]:
        return {
            "forewarn.kind": "recipe",
            "forewarn.at": str(moment),
            "forewarn.length": str(length),
            "forewarn.recipe": self.digest,
        }

    def recall(self, moment: int, length: int) -> Trained | None:
        """Return what an earlier retraining, or an interrupted one, trained."""
        for run in self.registry.find(self._tags(moment, length)):
            trained = self._read(run.info.run_id, moment, length)
            if trained is not None:
                self.recalled += 1
                return trained
        return None

    def _read(self, run: str, moment: int, length: int) -> Trained | None:
        """Return the recipe of a run; None, said in a note, where its files are not whole."""
        try:
            with self.registry.attached(run, "recipe") as folder:
                kept = Predictor.load(folder)
            shares = [float(kept.facts[name]) for name in ("balance", "prevalence")]
            if not all(math.isfinite(share) for share in shares):
                raise ValueError("`balance` or `prevalence` is no number")
        except (ValueError, TypeError, LookupError, OSError, MlflowException) as error:
            self.registry.end(run, "FAILED")  # so that nobody tries it again
            reason = " ".join(str(error).split())[:160]
            what = f"{length / DAY:g} days as of {iso(moment)}"
            note(f"kept recipe of {what} cannot be used and is trained anew: {reason}")
            return None
        return Trained(length, kept.encoder, kept.models, *shares)

    def keep(self, moment: int, trained: Trained) -> None:
        """Keep what was trained: the run counts when it is finished."""
        name = f"{iso(moment)[:10]}, {trained.length / DAY:g} days"
        tags = self._tags(moment, trained.length)
        facts = {
            "trained_at": iso(moment),
            "train_length_days": trained.length / DAY,
            "balance": trained.balance,
            "prevalence": trained.prevalence,
        }
        terms = self.job.terms
        kept = Predictor(
            trained.encoder,
            trained.models,
            terms.committee,
            trained.prior,
            terms.recipe.cascade_model,
            facts,
        )
        with self.registry.run(name, tags, self.parent) as run:
            self.registry.log(run, params=facts)
            with scratch_folder() as folder:
                kept.save(folder)
                self.registry.attach(run, folder, "recipe")
        self.trained += 1
