"""`forewarn train`: choose the length, fit the predictor as of a moment, calibrate, save."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from forewarn.evaluation.prediction.fleet_survey import FleetSurvey
from forewarn.evaluation.prediction.retraining_schedule import last_finished
from forewarn.evaluation.prediction.strategies import Strategy
from forewarn.evaluation.prediction.walk import Walk
from forewarn.evaluation.prediction.walk_settings import WalkSettings
from forewarn.features.errors import InputError
from forewarn.features.prediction.as_of import as_of
from forewarn.features.records.timeline import Timeline
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.models.prediction.starting_point import StartingPoint
from forewarn.models.prediction.trained_recipe import (
    FEWEST_POSITIVES,
    RecipeTrainer,
    TrainedRecipe,
    TrainingCache,
)
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.rendering.templates import plural
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import Stages, TimeLeft, note, progress_bar
from forewarn.pipelines.runtime.timestamps import iso, parse_moment
from forewarn.pipelines.storage.predictor_folder import save_predictor

__all__ = ["TrainedWalk", "train_predictor", "trained_walk"]

# Probabilities are fitted to so many finished test windows and newer ones: one holds too few
# failures.
_FINISHED_WINDOWS = 3


def train_predictor(
    job: Job, moment: int, folder: Path, start_from: Predictor | None = None
) -> Predictor:
    """Train the whole predictor as of `moment` and save it (`trained_walk`).

    Parameters
    ----------
    job : Job
    moment : int
        Nothing from then on is read.
    folder : Path
    start_from : Predictor, optional
        Of another site, whose models vote beside those that are trained.

    Raises
    ------
    RecordsError, JobError
        If the records break the contract or hold too few known failures, or the predictor to
        start from measures something else or was trained later.
    """
    predictor = trained_walk(job, moment, start_from=start_from).predictor
    save_predictor(predictor, folder)
    return predictor


class TrainedWalk(NamedTuple):
    """What a training leaves.

    Attributes
    ----------
    walk : Walk
        With the finished windows.
    predictor : Predictor
    records : WindowedRecords
        As they were at the moment of the training.
    """

    walk: Walk
    predictor: Predictor
    records: WindowedRecords


def trained_walk(
    job: Job,
    moment: int,
    *,
    cache: TrainingCache | None = None,
    span_in_use: Nanoseconds | None = None,
    stages: Stages | None = None,
    start_from: Predictor | None = None,
) -> TrainedWalk:
    """Walk through the last finished windows, and train the whole predictor as of `moment`.

    The training spans are compared on test windows that were finished at `moment`, with recipes
    trained as of their starts, and the probabilities calibrated on these and on what is known of
    newer ones; then the winner is fitted to what is known at `moment`. Of many records one
    retraining is read at a time, slice by slice of GPUs.

    Parameters
    ----------
    job : Job
    moment : int
        Nothing from then on is read.
    cache : TrainingCache, optional
    span_in_use : Nanoseconds, optional
        Training span of the champion.
    stages : Stages, optional
    start_from : Predictor, optional
        See `train_predictor`.

    Raises
    ------
    RecordsError, JobError
        As `train_predictor`.
    """
    settings, stages = replace(job.walk_settings, baselines=()), stages or Stages()
    begin = None if start_from is None else _starting_point(start_from, job, moment)
    if begin is not None:
        committee = replace(settings.committee, start=tuple(begin.models))
        settings = replace(settings, committee=committee)
    with stages("read records"):
        records = _read(job, settings, moment)
    starts = [start for start in records.surveyed_times if start < moment]
    if start_from is not None:
        starts = [start for start in starts if start >= _trained_at(start_from)]
    trainer = RecipeTrainer(settings.recipe, cache, stages, begin)
    walk = records.walk(settings, trainer)
    walk.span_in_use = span_in_use
    newest = last_finished(moment, every=settings.every, horizon=settings.recipe.horizon)
    compared = [start for start in starts if start <= newest][-settings.select_over :]
    left = TimeLeft(len(starts) + 1, "trainings")
    with progress_bar(len(starts) + 1, "train", "training") as bar:
        for start in starts:
            bar.set_postfix_str(iso(start)[:10])
            records.move(walk, start)
            walk.retrain(start, (_strategy_at(settings, start in compared),))
            bar.update()
            left.step()
        bar.set_postfix_str(iso(moment)[:10])
        records.move(walk, moment)
        predictor = _fit(walk, records, moment, span_in_use or walk.span_in_use)
        bar.update()
    # Whoever compares models does so on whole windows; the newest was for the calibration alone.
    walk.windows[:] = [window for window in walk.windows if window.start <= newest]
    walk.instances = records.survey.instances
    return TrainedWalk(walk, predictor, records)


def _read(job: Job, settings: WalkSettings, moment: int) -> WindowedRecords:
    """Survey what a training as of `moment` reads, and hold its files as they are."""
    n_windows = max(_FINISHED_WINDOWS, settings.most_compared)
    past = settings.every * (n_windows + 1) + settings.recipe.horizon
    start = settings.reads_from(moment - past)

    def times(fleet: FleetSurvey) -> list[int]:
        return [*_window_starts(settings, moment, fleet.first, n_windows), moment]

    held = replace(job, store=job.store.held(start, moment))
    return WindowedRecords.of(held, times, start, moment)


def _trained_at(predictor: Predictor) -> int:
    return parse_moment(predictor.facts["trained_at"])


def _starting_point(predictor: Predictor, job: Job, moment: int) -> StartingPoint:
    """Return what to start from; refuse what knows of later or measures something else."""
    if _trained_at(predictor) > moment:
        raise JobError(
            f"--start-from: was trained to {predictor.facts['trained_at']}, expected a time before "
            f"--at {iso(moment)}."
        )
    try:
        return StartingPoint.of(predictor, job.walk_settings.recipe.plan)
    except InputError as error:
        raise JobError(f"--start-from: {error}") from None


def _strategy_at(settings: WalkSettings, compared: bool) -> Strategy:
    """Return what is trained before a window; the spans are compared on the last ones only."""
    steady = settings.strategy is Strategy.STEADY
    return Strategy.SLIDING if steady and not compared else settings.strategy


def _window_starts(settings: WalkSettings, moment: int, first: int, n_finished: int) -> list[int]:
    """Return the starts of the last test windows with labels known at `moment`, oldest first.

    So many of them are finished, as far as the records go back; the newer ones in part.
    """
    every, horizon = settings.every, settings.recipe.horizon
    newest = moment - (horizon // every + 1) * every
    oldest = last_finished(moment, every=every, horizon=horizon) - (n_finished - 1) * every
    earliest = first + min(settings.training_spans) + horizon
    return [start for start in range(oldest, newest + 1, every) if start >= earliest]


def _fit(
    walk: Walk, records: WindowedRecords, moment: int, span_in_use: Nanoseconds | None
) -> Predictor:
    """Fit the chosen training span as of `moment`, with the calibration of the windows."""
    settings = walk.settings
    timeline = as_of(walk.records, walk.failures, moment, settings.reach)
    finished = walk.finished_at(moment, timeline)
    if settings.strategy is Strategy.EXPANDING:
        trained = walk.train_on_all(moment)
    else:
        chosen = finished.choices(span_in_use) | {Strategy.SLIDING: settings.longest}
        trained = _train(walk, moment, chosen[settings.strategy])
    if trained is None:
        raise _refusal(walk, records, moment)
    if not walk.windows:
        note(
            "the records end before the first test window does: the longest length is taken, and "
            "probabilities are corrected for the training balance alone"
        )
    return Predictor(
        encoder=trained.encoder,
        models=trained.models,
        committee=settings.committee,
        calibration=finished.calibrate(settings.strategy, trained.prior, trained.training_span),
        cascade_model=settings.recipe.cascade_model,
        facts=_facts(records, walk, trained, timeline, moment),
    )


def _train(walk: Walk, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
    """Train on a span, or on the longest where too few failures are known in it."""
    trained, longest = walk.train_on(moment, training_span), walk.settings.longest
    if trained is None and training_span != longest:
        return walk.train_on(moment, longest)
    return trained


def _refusal(walk: Walk, records: WindowedRecords, moment: int) -> JobError:
    """Say how many failures a past has that are too few."""
    settings, first = walk.settings, records.fleet.first
    expands = settings.strategy is Strategy.EXPANDING
    span = settings.whole_past(moment, first) if expands else settings.longest
    n, n_negatives = walk.known_counts(moment, span)
    days = min(span, moment - first) / DAY
    return JobError(
        f"{records.job.store.folder}: found {plural(n, 'positive')} (instances that a failure "
        f"follows within the horizon) and {plural(n_negatives, 'negative')} in the "
        f"{days:.3g} days of records before {iso(moment)}, expected at least {FEWEST_POSITIVES} "
        "and 1: wait for more, or use `--model builtin:rules`."
    )


def _facts(
    records: WindowedRecords, walk: Walk, trained: TrainedRecipe, timeline: Timeline, moment: int
) -> dict[str, Any]:
    settings = records.job.settings
    costs = settings.list.costs
    return {
        "trained_at": iso(moment),
        "train_length_days": trained.training_span / DAY,
        "days_of_records": round((moment - records.fleet.first) / DAY, 2),
        "calibrated_on": [iso(window.start) for window in walk.windows],
        "prevalence": trained.prevalence,
        "failures_known": len(timeline.failures),
        "interval": settings.records.interval,
        "step": settings.step,
        "horizon": settings.horizon,
        "k": settings.evaluation.k,
        "share": settings.list.share,
        "seed": settings.training.seed,
    } | ({} if costs is None else {"costs": costs.to_dict()})
