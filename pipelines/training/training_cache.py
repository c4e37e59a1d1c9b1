"""Trained recipes in the registry, so that none is trained twice."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from importlib.metadata import version

from mlflow.exceptions import MlflowException

from forewarn.evaluation.prediction.walk_forward.retraining_schedule import last_finished_window
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.predictor_files import PREDICTOR_FORMAT
from forewarn.models.prediction.trained_recipe import RecipeTrainer, TrainedRecipe
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.stale_temporary_files import (
    remove_stale_scratch,
    scratch_folder,
)
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.registry.mlflow_experiment import digest_of
from forewarn.pipelines.storage.registry.model_registry import Registry
from forewarn.pipelines.storage.registry.recipe_folder import load_recipe, save_recipe

__all__ = ["RecipeCache", "train_recipe"]


def train_recipe(
    store: RecordStore,
    settings: WalkForwardSettings,
    moment: int,
    training_span: Nanoseconds,
    registry: Registry,
) -> str:
    """Train a span as of the start of the last window that is finished at `moment`; keep it.

    Where the configuration's strategy is `expanding`, all of the past is trained on instead.

    Returns
    -------
    str
        What was done, in words. A span that is kept already, or that too few failures are known
        for, is no error: the retraining that recalls it sees to that.
    """
    start = last_finished_window(moment, every=settings.every, horizon=settings.recipe.horizon)
    tags = _tags("ahead", start, training_span)
    remove_stale_scratch()
    registry.abandon(tags)
    with registry.run(f"{format_iso(start)[:10]}, ahead", tags) as run:
        cache = RecipeCache(registry, settings, run)
        trainer = RecipeTrainer(settings.recipe, cache)
        span, names = training_span, settings.names
        first = settings.reads_from(start)
        expands = settings.strategy is Strategy.EXPANDING
        most = settings.whole_past(start, 0) if expands else span
        fleet = store.read_fleet(
            first, start, settings.recipe.candidate_selector(first, start, [most])
        )
        candidates = fleet.selection
        if expands:  # how long the past is, is known when it was read
            span = settings.whole_past(start, fleet.first)
            candidates = replace(candidates, counts={span: candidates.counts[most]})
            names = (*settings.names, *settings.baselines)
            trainer = trainer.fading(settings.half_life)
        trainer.train(fleet, start, span, names, candidates)
    what = "recalled" if cache.recalled else "trained" if cache.trained else "too few failures"
    return f"{training_span / DAY:g} days as of {format_iso(start)}: {what}"


def _tags(kind: str, moment: int, training_span: Nanoseconds) -> dict[str, str]:
    return {
        "forewarn.kind": kind,
        "forewarn.at": str(moment),
        "forewarn.length": str(training_span),
    }


@dataclass(slots=True)
class RecipeCache:
    """Trained recipes in the registry: one run for each moment and training span.

    Attributes
    ----------
    registry : Registry
    settings : WalkSettings
    parent : str
        Run of the retraining under which new ones are kept.
    recalled, trained : int
        How many came from earlier retrainings, and how many are new.
    """

    registry: Registry
    settings: WalkForwardSettings
    parent: str
    recalled: int = 0
    trained: int = 0

    @property
    def digest(self) -> str:
        """Digest of all that decides what is trained, but for records, moment and training span."""
        settings = self.settings
        recipe = json.loads(json.dumps(dataclasses.asdict(settings.recipe), default=list))
        made_by = [version("forewarn"), PREDICTOR_FORMAT]
        voters = settings.committee
        committee = [voters.parallel, voters.rules, voters.linear]
        trained_by = [settings.strategy, settings.half_life]
        return digest_of([recipe, settings.names, *committee, *trained_by, *made_by])

    def _tags(self, moment: int, training_span: Nanoseconds) -> dict[str, str]:
        return _tags("recipe", moment, training_span) | {"forewarn.recipe": self.digest}

    def recall(self, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
        """Return what an earlier retraining, or an interrupted one, trained."""
        for run in self.registry.find(self._tags(moment, training_span)):
            trained = self._read(run.info.run_id, moment, training_span)
            if trained is not None:
                self.recalled += 1
                return trained
        return None

    def _read(self, run: str, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
        """Return the recipe of a run; None, with a note, where its files are not whole."""
        try:
            with self.registry.attached(run, "recipe") as folder:
                return load_recipe(folder, training_span)
        except (ValueError, TypeError, LookupError, OSError, MlflowException) as error:
            self.registry.end(run, "FAILED")  # so that nobody tries it again
            reason = " ".join(str(error).split())[:160]
            what = f"{training_span / DAY:g} days as of {format_iso(moment)}"
            note(f"kept recipe of {what} cannot be used and is trained anew: {reason}")
            return None

    def fading(self) -> RecipeCache:
        """Return itself: what is kept is told apart by the whole configuration."""
        return self

    def keep(self, moment: int, trained: TrainedRecipe) -> None:
        """Keep what was trained: the run counts when it is finished."""
        name = f"{format_iso(moment)[:10]}, {trained.training_span / DAY:g} days"
        tags = self._tags(moment, trained.training_span)
        facts = {
            "trained_at": format_iso(moment),
            "train_length_days": trained.training_span / DAY,
            "balance": trained.balance,
            "prevalence": trained.prevalence,
        }
        with self.registry.run(name, tags, self.parent) as run:
            self.registry.log(run, params=facts)
            with scratch_folder() as folder:
                save_recipe(folder, trained, self.settings.recipe.cascade_model)
                self.registry.attach(run, folder, "recipe")
        self.trained += 1
