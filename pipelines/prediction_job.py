"""What a training or a backtest works with: settings, store, plan, recipe, committee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forewarn.evaluation.prediction.backtest_figures import Protocol
from forewarn.evaluation.prediction.walk import WalkSettings
from forewarn.features.errors import InputError
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.training_set import Recipe
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.storage.record_store import RecordStore

__all__ = ["Job", "JobError", "open_job", "open_store"]


class JobError(InputError):
    """A job that cannot be done with what it was given; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One configuration applied to one folder of records.

    Attributes
    ----------
    settings : Settings
    store : RecordStore
    terms : WalkSettings
    notes : tuple of str
        What a user should know of how they fit together.
    """

    settings: Settings
    store: RecordStore
    terms: WalkSettings
    notes: tuple[str, ...]

    @property
    def protocol(self) -> Protocol:
        """How scores are judged."""
        return Protocol(
            committee=self.terms.committee,
            k=self.settings.evaluation.k,
            threshold=self.settings.evaluation.threshold,
            share=self.settings.list.share,
            step=self.settings.step,
            horizon=self.settings.horizon,
            seed=self.settings.training.seed,
        )


def open_store(records: Path, settings: Settings) -> RecordStore:
    """Return the store of a folder of records, read as the settings say."""
    features = settings.features
    return RecordStore(records, features.kinds, settings.records.interval, features.peers)


def open_job(records: Path, settings: Settings, models: Sequence[str] | None = None) -> Job:
    """Check that records and settings fit together.

    Parameters
    ----------
    records : Path
    settings : Settings
    models : sequence of str, optional
        Models to train; by default those that the ensembles name.

    Raises
    ------
    RecordsError, SettingsError, JobError
        If they do not.
    """
    store = open_store(records, settings)
    plan, fitting = settings.plan(store.columns())
    notes = list(fitting)
    if not store.has_failures():
        raise JobError(
            f"{records}: nothing says which GPUs failed, expected a column `failure` or "
            "failures.parquet."
        )
    ensembles, training = settings.ensembles, settings.training
    named = (*ensembles.parallel, *(name for name, _ in ensembles.cascade))
    chosen = tuple(dict.fromkeys(models or named))
    committee = Committee.of_models(chosen, ensembles.parallel, ensembles.cascade)
    if set(named) - set(chosen):
        left = ", ".join(sorted(set(named) - set(chosen)))
        notes.append(f"left out of the ensembles, since not run: {left}")
    select_by = training.select_by
    if select_by not in ("parallel", "cascade", *chosen):
        notes.append(f"the length is chosen by the parallel model: {select_by} is not run")
        select_by = "parallel"
    recipe = Recipe(
        plan=plan,
        step=settings.step,
        horizon=settings.horizon,
        cascade_model=next((n for n, _ in ensembles.cascade if n in chosen), chosen[0]),
        negatives_per_positive=training.negatives_per_positive,
        positive_weight=training.positive_weight,
        cascade_positive_weight=training.cascade_positive_weight,
        seed=training.seed,
    )
    terms = WalkSettings(
        recipe=recipe,
        committee=committee,
        models=chosen,
        lengths=training.lengths,
        every=training.retrain_every,
        step=settings.windows.step,
        k=settings.evaluation.k,
        negatives_per_positive=settings.evaluation.negatives_per_positive,
        select_by=select_by,
        select_over=training.select_over,
    )
    return Job(settings, store, terms, tuple(notes))
