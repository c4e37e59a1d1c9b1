"""`forewarn train`: choose the length, fit the predictor as of a moment, calibrate, save."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from forewarn.evaluation.schedule import last_finished
from forewarn.evaluation.walk import FEWEST_POSITIVES, Memory, Trained, Walk, as_of, scorable
from forewarn.features.records import DAY
from forewarn.features.timeline import Timeline
from forewarn.models.predictor import Predictor
from forewarn.pipelines.job import Job, JobError
from forewarn.pipelines.moments import iso
from forewarn.pipelines.predictor_folder import save_predictor
from forewarn.pipelines.stages import Stages, note, progress_bar

__all__ = ["train_predictor", "trained_walk"]

# Probabilities are fitted to so many finished test windows: one holds too few failures.
_FINISHED_WINDOWS = 3


def train_predictor(job: Job, moment: int, folder: Path) -> Predictor:
    """Train the whole predictor as of `moment` and save it (`trained_walk`).

    Parameters
    ----------
    job : Job
    moment : int
        Nothing from then on is read.
    folder : Path

    Raises
    ------
    RecordsError, JobError
        If the records break the contract or hold too few known failures.
    """
    _, predictor = trained_walk(job, moment)
    save_predictor(predictor, folder)
    return predictor


def trained_walk(
    job: Job,
    moment: int,
    *,
    memory: Memory | None = None,
    current: int | None = None,
    stages: Stages | None = None,
) -> tuple[Walk, Predictor]:
    """Walk through the last finished windows, and train the whole predictor as of `moment`.

    The lengths are compared, and the probabilities calibrated, on test windows that were finished
    at `moment`, with recipes trained as of their starts; then the winner is fitted to what is
    known at `moment`.

    Parameters
    ----------
    job : Job
    moment : int
        Nothing from then on is read.
    memory : Memory, optional
        What was trained before.
    current : int, optional
        Length in use.
    stages : Stages, optional

    Raises
    ------
    RecordsError, JobError
        If the records break the contract or hold too few known failures.
    """
    job = replace(job, terms=replace(job.terms, baselines=()))
    terms, stages = job.terms, stages or Stages()
    windows = max(_FINISHED_WINDOWS, terms.select_over)
    past = terms.every * (windows + 1) + terms.recipe.horizon
    with stages("read records"):
        records, failures = job.store.read_known(moment - terms.reach - past, moment)
    instances = scorable(records, failures, terms)
    walk = Walk(terms, records, failures, instances, stage=stages, memory=memory, current=current)
    starts = _finished_starts(job, moment, records.first, windows)
    with progress_bar(len(starts) + 1, "train", "training") as bar:
        for start in starts:
            bar.set_postfix_str(iso(start)[:10])
            compared = start in starts[-terms.select_over :]
            walk.retrain(start, ("steady",) if compared else ("sliding",))
            bar.update()
        bar.set_postfix_str(iso(moment)[:10])
        walk.current = current or walk.current
        predictor = _fit(walk, job, moment)
        bar.update()
    return walk, predictor


def _finished_starts(job: Job, moment: int, first: int, windows: int) -> list[int]:
    """Return the starts of the last test windows that are finished at `moment`, oldest first."""
    terms = job.terms
    newest = last_finished(moment, every=terms.every, horizon=terms.recipe.horizon)
    starts = [newest - i * terms.every for i in range(windows)]
    earliest = first + min(terms.lengths) + terms.recipe.horizon
    return sorted(start for start in starts if start >= earliest)


def _fit(walk: Walk, job: Job, moment: int) -> Predictor:
    """Fit the chosen length as of `moment`, with the calibration of finished windows."""
    terms = walk.terms
    timeline = as_of(walk.records, walk.failures, moment, terms.reach)
    length = walk.choices(timeline, moment)["steady"]
    trained = walk.train(timeline, moment, length, terms.names)
    if trained is None and length != max(terms.lengths):
        length = max(terms.lengths)
        trained = walk.train(timeline, moment, length, terms.names)
    if trained is None:
        raise JobError(
            f"{job.store.folder}: fewer than {FEWEST_POSITIVES} positives known in the "
            f"{length / DAY:g} days before {iso(moment)} (instances with a failure within the "
            "horizon), or no negatives; expected more failures, or use `--model builtin:rules`."
        )
    if not walk.windows:
        note(
            "too few records for a finished test window: the longest length is taken, and "
            "probabilities are corrected for the training balance only"
        )
    calibration = walk.calibrate("steady", timeline, moment, trained.prior)
    return Predictor(
        encoder=trained.encoder,
        models=trained.models,
        committee=terms.committee,
        calibration=calibration,
        cascade_model=terms.recipe.cascade_model,
        facts=_facts(walk, job, trained, timeline, moment),
    )


def _facts(
    walk: Walk, job: Job, trained: Trained, timeline: Timeline, moment: int
) -> dict[str, Any]:
    settings = job.settings
    return {
        "trained_at": iso(moment),
        "train_length_days": trained.length / DAY,
        "calibrated_on": [iso(window.start) for window in walk.windows],
        "prevalence": trained.prevalence,
        "failures_known": len(timeline.failures),
        "interval": settings.records.interval,
        "step": settings.step,
        "horizon": settings.horizon,
        "k": settings.evaluation.k,
        "share": settings.list.share,
        "seed": settings.training.seed,
    }
