"""Settings, records, training recipe and ensembles of a training or backtest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.model_catalogue import ModelCatalogue
from forewarn.models.prediction.training_set import Recipe
from forewarn.pipelines.config.model_plugins import check_models
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["Job", "open_job", "open_store"]

# The strategy `variable` compares lengths on the last `select_over` windows, one by default.
_STRATEGIES = {
    "variable": Strategy.STEADY,
    "sliding": Strategy.SLIDING,
    "expanding": Strategy.EXPANDING,
}


@dataclass(frozen=True, slots=True)
class Job:
    """One configuration applied to one folder of records.

    Attributes
    ----------
    settings : Settings
    store : RecordStore
    walk_settings : WalkForwardSettings
    notes : tuple of str
        Notes for the user about settings that were adapted to the records.
    catalogue : ModelCatalogue
    """

    settings: Settings
    store: RecordStore
    walk_settings: WalkForwardSettings
    notes: tuple[str, ...]
    catalogue: ModelCatalogue

    @property
    def configured(self) -> Strategy:
        """The strategy that `train` and `retrain` follow, by the paper's name if it has one."""
        walked = self.walk_settings
        paper = walked.strategy is Strategy.STEADY and walked.select_over == 1
        return Strategy.VARIABLE if paper else walked.strategy

    @property
    def protocol(self) -> EvaluationProtocol:
        """The protocol by which scores are evaluated."""
        return EvaluationProtocol(
            committee=self.walk_settings.committee,
            k=self.settings.evaluation.k,
            threshold=self.settings.evaluation.threshold,
            share=self.settings.list.share,
            step=self.walk_settings.recipe.step,
            horizon=self.walk_settings.recipe.horizon,
            seed=self.settings.training.seed,
        )


def open_store(records: Location, settings: Settings) -> RecordStore:
    """Return the store of a folder of records, configured by the settings."""
    features = settings.features
    return RecordStore(
        records,
        features.kinds,
        Nanoseconds(settings.records.interval),
        features.peers,
        settings.records.names,
    )


def open_job(records: Location, settings: Settings, models: Sequence[str] | None = None) -> Job:
    """Open a job and check that records and settings fit together.

    Parameters
    ----------
    records : Path or RemotePath
    settings : Settings
    models : sequence of str, optional
        Models to train; by default those of the ensembles.

    Raises
    ------
    RecordsError, SettingsError, JobError
        If they do not fit together.
    """
    ensembles, catalogue = settings.ensembles, settings.models.catalogue
    ensemble_models = (*ensembles.parallel, *(name for name, _ in ensembles.cascade))
    chosen = tuple(dict.fromkeys(models or ensemble_models))
    _check_models(settings, catalogue, chosen)
    store = open_store(records, settings)
    plan, fitting = settings.plan(store.columns())
    if not store.has_failures():
        raise JobError(
            f"{records}: nothing tells which GPUs failed, expected a column `failure` or "
            "failures.parquet."
        )
    select_by, selection_notes = _select_by(settings, chosen, ensemble_models)
    half_life = settings.training.half_life * max(settings.training.lengths)
    walk_settings = WalkForwardSettings(
        recipe=_recipe(settings, plan, chosen, catalogue),
        committee=_committee(settings, plan, chosen),
        models=chosen,
        training_spans=tuple(map(Nanoseconds, settings.training.lengths)),
        every=Nanoseconds(settings.training.retrain_every),
        k=settings.evaluation.k,
        negatives_per_positive=settings.evaluation.negatives_per_positive,
        select_by=select_by,
        strategy=_STRATEGIES[settings.training.strategy],
        select_over=settings.training.select_over,
        half_life=Nanoseconds(round(half_life)) if half_life else None,
    )
    return Job(settings, store, walk_settings, (*fitting, *selection_notes), catalogue)


def _check_models(settings: Settings, catalogue: ModelCatalogue, chosen: Sequence[str]) -> None:
    """Refuse models that are not installed, and hyperparameters that they do not have.

    Raises
    ------
    JobError, PluginError
        If there is one.
    """
    for name in chosen:
        if name not in settings.models.names:
            raise JobError(
                f"--models: found {name!r}, expected names of {','.join(settings.models.names)}."
            )
    check_models(chosen, settings.models.hyperparameters, catalogue)


def _select_by(
    settings: Settings, chosen: Sequence[str], ensemble_models: Sequence[str]
) -> tuple[str, list[str]]:
    """Return the method that selects the training length, and notes for the user."""
    notes, select_by = [], settings.training.select_by
    if left_out := set(ensemble_models) - set(chosen):
        notes.append(f"excluded from the ensembles because not run: {', '.join(sorted(left_out))}")
    if select_by not in ("parallel", "cascade", *chosen):
        notes.append(f"the parallel ensemble selects the length: {select_by} is not run")
        select_by = "parallel"
    return select_by, notes


def _committee(settings: Settings, plan: FeaturePlan, chosen: Sequence[str]) -> Committee:
    """Return the configured ensembles; the built-in rules take part only if there are Xids.

    The rules know nothing about other devices and would add noise to the models.
    """
    ensembles = settings.ensembles
    rules = ensembles.rules if "xid" in plan.kinds.code else 0.0
    votes = rules, ensembles.linear
    return Committee.from_models(chosen, ensembles.parallel, ensembles.cascade, *votes)


def _recipe(
    settings: Settings, plan: FeaturePlan, chosen: Sequence[str], catalogue: ModelCatalogue
) -> Recipe:
    training, cascade = settings.training, settings.ensembles.cascade
    return Recipe(
        plan=plan,
        step=settings.step,
        horizon=settings.horizon,
        cascade_model=next((name for name, _ in cascade if name in chosen), chosen[0]),
        negatives_per_positive=training.negatives_per_positive,
        positive_weight=training.positive_weight,
        cascade_positive_weight=training.cascade_positive_weight,
        seed=training.seed,
        tree_negatives=training.tree_negatives,
        max_instances=training.max_instances,
        hyperparameters=settings.models.hyperparameters,
        packages=catalogue.packages(chosen),
    )
