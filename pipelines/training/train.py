"""`forewarn train`: choose the training length, fit a predictor, calibrate and save it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from forewarn.evaluation.prediction.metrics.member_worth import measured_blend
from forewarn.evaluation.prediction.walk_forward.finished_windows import FinishedWindows
from forewarn.evaluation.prediction.walk_forward.fleet_survey import FleetSurvey
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import last_finished_window
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.features.errors import InputError
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.calibration import Calibration
from forewarn.models.prediction.model_catalogue import ModelCatalogue
from forewarn.models.prediction.model_names import model_kind
from forewarn.models.prediction.predictor import Predictor, PredictorFacts
from forewarn.models.prediction.trained_recipe import (
    MIN_POSITIVES,
    RecipeTrainer,
    StartingPoint,
    TrainedRecipe,
    TrainingCache,
)
from forewarn.pipelines.backtest.blend_section import blend_text
from forewarn.pipelines.backtest.score_frames import finished_table
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.config.prediction_tables import ListTable
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.rendering.templates import plural
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import Stages, TimeRemaining, note, progress_bar
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.registry.predictor_folder import save_predictor

__all__ = ["TrainedWalk", "train_predictor", "trained_walk"]

# Calibration uses this many finished test windows and the newer ones; one has too few failures.
_N_CALIBRATION_WINDOWS = 3


def train_predictor(
    job: Job, moment: int, folder: Path, start_from: Predictor | None = None
) -> Predictor:
    """Train the predictor as of `moment` and save it (`trained_walk`).

    Parameters
    ----------
    job : Job
    moment : int
        No later data is read.
    folder : Path
    start_from : Predictor, optional
        Predictor of another site, whose models vote together with the trained ones.

    Raises
    ------
    RecordsError, JobError
        If the records are invalid or hold too few known failures, or `start_from` has another
        feature plan or a later training cutoff.
    """
    walk, predictor, _ = trained_walk(job, moment, start_from=start_from)
    save_predictor(predictor, folder)
    protocol = replace(job.protocol, committee=walk.settings.committee)
    table = finished_table(walk, walk.truth, protocol)
    for text in [] if table is None else blend_text(measured_blend(table)):
        note(text)
    return predictor


class TrainedWalk(NamedTuple):
    """Result of a training.

    Attributes
    ----------
    walk : WalkForward
        Contains the finished windows.
    predictor : Predictor
    records : WindowedRecords
        As of the training.
    """

    walk: WalkForward
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
    """Train the predictor as of `moment`: read, select, fit and calibrate.

    Training spans are compared on test windows finished at `moment`, with recipes trained as of
    their starts. Probabilities are calibrated on these windows and on the known part of newer ones.
    The selected span is then fitted to what is known at `moment`. Data sets larger than memory are
    read one retraining at a time, in slices of GPUs.

    Parameters
    ----------
    job : Job
    moment : int
        No later data is read.
    cache : TrainingCache, optional
    span_in_use : Nanoseconds, optional
        Training span of the champion.
    stages : Stages, optional
    start_from : Predictor, optional
        See `train_predictor`.

    Raises
    ------
    RecordsError, JobError
        See `train_predictor`.
    """
    stages = stages or Stages()
    settings, start = _warm_start(start_from, job.walk_settings, moment)
    with stages("read records"):
        records = _read(job.store, settings, moment)
    trainer = RecipeTrainer(settings.recipe, cache, stages, start, job.catalogue)
    walk = records.walk(settings, trainer)
    walk.span_in_use = span_in_use
    earliest = records.fleet.first if start_from is None else _trained_at(start_from)
    starts = [window for window in records.surveyed_times if earliest <= window < moment]
    newest = last_finished_window(moment, every=settings.every, horizon=settings.recipe.horizon)
    with progress_bar(len(starts) + 1, "train", "training") as bar:
        _score_windows(walk, records, starts, newest, bar)
        bar.set_postfix_str(format_iso(moment)[:10])
        records.load_retraining(walk, moment)
        known = as_of(walk.records, walk.failures, moment, settings.reach)
        finished = walk.finished_at(moment, known)
        trained = _fit(walk, finished, moment, span_in_use or walk.span_in_use)
        bar.update()
    if trained is None:
        raise _refusal(walk, records, moment)
    predictor = Predictor(
        encoder=trained.encoder,
        models=trained.models,
        committee=settings.committee,
        calibration=_calibrate(walk, finished, trained),
        cascade_model=settings.recipe.cascade_model,
        facts=_facts(
            records,
            walk,
            trained,
            _failures_within(known, trained.training_span + settings.recipe.horizon, moment),
            moment,
            job.settings.list,
        ),
        packages=_packages(trained, settings.recipe.cascade_model, job.catalogue),
    )
    # Models are compared on whole windows; the newest one was scored for calibration only.
    walk.windows[:] = [window for window in walk.windows if window.start <= newest]
    walk.instances = records.survey.instances
    return TrainedWalk(walk, predictor, records)


def _warm_start(
    predictor: Predictor | None, settings: WalkForwardSettings, moment: int
) -> tuple[WalkForwardSettings, StartingPoint | None]:
    """Return the settings of a training, and the models of another site that vote in it."""
    settings = replace(settings, baselines=())
    if predictor is None:
        return settings, None
    start = _starting_point(predictor, settings.recipe.plan, moment)
    committee = replace(settings.committee, start=tuple(start.models))
    return replace(settings, committee=committee), start


def _read(store: RecordStore, settings: WalkForwardSettings, moment: int) -> WindowedRecords:
    """Survey the records for a training as of `moment`, and keep its files unchanged."""
    n_windows = max(_N_CALIBRATION_WINDOWS, settings.most_compared)
    past = settings.every * (n_windows + 1) + settings.recipe.horizon
    start = settings.reads_from(moment - past)

    def times(fleet: FleetSurvey) -> list[int]:
        return [*_window_starts(settings, moment, fleet.first, n_windows), moment]

    return WindowedRecords.from_store(store.pinned(start, moment), settings, times, start, moment)


def _score_windows(
    walk: WalkForward, records: WindowedRecords, starts: Sequence[int], newest: int, bar: tqdm[Any]
) -> None:
    """Train before each of the last test windows and score it; `newest` is finished."""
    settings = walk.settings
    compared = [start for start in starts if start <= newest][-settings.select_over :]
    left = TimeRemaining(len(starts) + 1, "trainings")
    for start in starts:
        bar.set_postfix_str(format_iso(start)[:10])
        records.load_retraining(walk, start)
        walk.retrain(start, (_strategy_at(settings, start in compared),))
        bar.update()
        left.step()


def _trained_at(predictor: Predictor) -> int:
    return parse_moment(predictor.facts.trained_at)


def _starting_point(predictor: Predictor, plan: FeaturePlan, moment: int) -> StartingPoint:
    """Return the models of another site; refuse a later cutoff or another feature plan."""
    if _trained_at(predictor) > moment:
        raise JobError(
            f"--start-from: the training cutoff is {predictor.facts.trained_at}, expected a time "
            f"before --at {format_iso(moment)}."
        )
    try:
        return StartingPoint.from_predictor(predictor, plan)
    except InputError as error:
        raise JobError(f"--start-from: {error}") from None


def _strategy_at(settings: WalkForwardSettings, compared: bool) -> Strategy:
    """Return the strategy before a window; spans are compared on the last windows only."""
    steady = settings.strategy is Strategy.STEADY
    return Strategy.SLIDING if steady and not compared else settings.strategy


def _window_starts(
    settings: WalkForwardSettings, moment: int, first: int, n_finished: int
) -> list[int]:
    """Return the starts of the last test windows with labels known at `moment`, oldest first.

    `n_finished` of them are finished, as far as the records go back; the newer ones in part.
    """
    every, horizon = settings.every, settings.recipe.horizon
    newest = moment - (horizon // every + 1) * every
    oldest = last_finished_window(moment, every=every, horizon=horizon) - (n_finished - 1) * every
    earliest = first + min(settings.training_spans) + horizon
    return [start for start in range(oldest, newest + 1, every) if start >= earliest]


def _fit(
    walk: WalkForward, finished: FinishedWindows, moment: int, span_in_use: Nanoseconds | None
) -> TrainedRecipe | None:
    """Select the training span by the finished windows and fit to it; None with few failures.

    If the selected span has too few known failures, the longest is used.
    """
    settings = walk.settings
    if settings.strategy is Strategy.EXPANDING:
        return walk.train_on_all(moment)
    chosen = finished.choices(span_in_use) | {Strategy.SLIDING: settings.longest}
    span = chosen[settings.strategy]
    trained = walk.train_on(moment, span)
    if trained is None and span != settings.longest:
        return walk.train_on(moment, settings.longest)
    return trained


def _calibrate(walk: WalkForward, finished: FinishedWindows, trained: TrainedRecipe) -> Calibration:
    """Fit the probabilities to the scores of the last test windows."""
    if not walk.windows:
        note(
            "the records end before the first test window: the longest length is used, and "
            "probabilities are corrected for the training balance only"
        )
    return finished.calibrate(walk.settings.strategy, trained.prior, trained.training_span)


def _refusal(walk: WalkForward, records: WindowedRecords, moment: int) -> JobError:
    """Return the error for too few failures."""
    settings, first = walk.settings, records.fleet.first
    expands = settings.strategy is Strategy.EXPANDING
    span = settings.expanding_span(moment, first) if expands else settings.longest
    n, n_negatives = walk.known_counts(moment, span)
    days = min(span, moment - first) / DAY
    return JobError(
        f"{records.store.folder}: found {plural(n, 'positive')} (instances with a failure within "
        f"the horizon) and {plural(n_negatives, 'negative')} in the {days:.3g} days of records "
        f"before {format_iso(moment)}, expected at least {MIN_POSITIVES} and 1. Wait for more, or "
        "use `--model builtin:rules`."
    )


def _failures_within(known: Timeline, reach: int, moment: int) -> int:
    """Count the known failures that the labels of a training span can refer to."""
    return int((known.failures.failed_at >= moment - reach).sum())


def _packages(
    trained: TrainedRecipe, cascade_model: str, catalogue: ModelCatalogue
) -> dict[str, str]:
    """Return package and version of the plug-in models of a recipe, by kind."""
    return catalogue.packages({model_kind(name, cascade_model) for name in trained.models})


def _facts(
    records: WindowedRecords,
    walk: WalkForward,
    trained: TrainedRecipe,
    n_failures: int,
    moment: int,
    table: ListTable,
) -> PredictorFacts:
    settings, recipe = walk.settings, walk.settings.recipe
    return PredictorFacts(
        trained_at=format_iso(moment),
        train_length_days=trained.training_span / DAY,
        days_of_records=round((moment - records.fleet.first) / DAY, 2),
        calibrated_on=tuple(format_iso(window.start) for window in walk.windows),
        prevalence=trained.prevalence,
        failures_known=n_failures,
        interval=recipe.plan.interval,
        step=recipe.step,
        horizon=recipe.horizon,
        k=settings.k,
        share=table.share,
        seed=recipe.seed,
        costs=None if table.costs is None else table.costs.to_dict(),
        columns=dict(records.store.names.pairs) or None,
        hyperparameters={name: dict(chosen) for name, chosen in recipe.hyperparameters.items()}
        or None,
    )
