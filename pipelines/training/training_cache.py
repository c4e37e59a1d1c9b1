"""Cache of trained recipes in the model registry."""

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
from forewarn.pipelines.storage.registry.registered_version import length_tag

__all__ = ["RecipeCache", "train_recipe"]


def train_recipe(
    store: RecordStore,
    settings: WalkForwardSettings,
    moment: int,
    training_span: Nanoseconds,
    registry: Registry,
) -> str:
    """Train a span as of the start of the last window finished at `moment`, and store it.

    For the strategy `expanding`, train on the whole past instead.

    Returns
    -------
    str
        Result as text. A cached span, or one with too few known failures, is not an error: the
        retraining that recalls it handles both.
    """
    start = last_finished_window(moment, every=settings.every, horizon=settings.recipe.horizon)
    tags = _tags("ahead", start, training_span)
    remove_stale_scratch()
    registry.abandon(tags)
    with registry.run(f"train ahead {format_iso(start)[:10]}", tags) as run:
        cache = RecipeCache(registry, settings, run)
        trainer = RecipeTrainer(settings.recipe, cache, catalogue=registry.catalogue)
        span, names = training_span, settings.names
        first = settings.reads_from(start)
        expands = settings.strategy is Strategy.EXPANDING
        most = settings.expanding_span(start, 0) if expands else span
        fleet = store.read_fleet(
            first, start, settings.recipe.candidate_selector(first, start, [most])
        )
        candidates = fleet.selection
        if expands:  # the length of the past is known only after reading it
            span = settings.expanding_span(start, fleet.first)
            candidates = replace(candidates, counts={span: candidates.counts[most]})
            names = (*settings.names, *settings.baselines)
            trainer = trainer.age_weighted(settings.half_life)
        trainer.train(fleet, start, span, names, candidates)
    what = "recalled" if cache.recalled else "trained" if cache.trained else "too few failures"
    return f"{training_span / DAY:g} days as of {format_iso(start)}: {what}"


def _tags(kind: str, moment: int, training_span: Nanoseconds) -> dict[str, str]:
    return {
        "forewarn.kind": kind,
        "forewarn.at": format_iso(moment),
        "forewarn.length": length_tag(training_span),
    }


@dataclass(slots=True)
class RecipeCache:
    """Trained recipes in the registry, with one run per moment and training span.

    Attributes
    ----------
    registry : Registry
    settings : WalkForwardSettings
    parent : str
        Run of the retraining under which new ones are stored.
    recalled, trained : int
        Number of recipes from earlier retrainings, and of new ones.
    """

    registry: Registry
    settings: WalkForwardSettings
    parent: str
    recalled: int = 0
    trained: int = 0

    @property
    def digest(self) -> str:
        """Digest of all inputs of a recipe except records, moment and training span."""
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
        """Return the recipe that an earlier or interrupted retraining trained, or None."""
        for run in self.registry.find(self._tags(moment, training_span)):
            trained = self._read(run.info.run_id, moment, training_span)
            if trained is not None:
                self.recalled += 1
                return trained
        return None

    def _read(self, run: str, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
        """Return the recipe of a run; write a note and return None if its files are damaged."""
        try:
            with self.registry.attached(run, "recipe") as folder:
                return load_recipe(folder, training_span, self.registry.catalogue)
        except (ValueError, TypeError, LookupError, OSError, MlflowException) as error:
            self.registry.end(run, "FAILED")  # prevents further attempts
            reason = " ".join(str(error).split())[:160]
            what = f"{training_span / DAY:g} days as of {format_iso(moment)}"
            note(f"cached recipe of {what} cannot be used and will be retrained: {reason}")
            return None

    def age_weighted(self) -> RecipeCache:
        """Return itself: the digest already covers age weighting."""
        return self

    def keep(self, moment: int, trained: TrainedRecipe) -> None:
        """Store a recipe; its run counts once it is finished."""
        name = f"recipe {format_iso(moment)[:10]}, {trained.training_span / DAY:.3g} days"
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
