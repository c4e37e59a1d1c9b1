"""`forewarn tune`: search hyperparameters on finished windows, and judge them on later ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from forewarn.evaluation.bootstrap import Interval, bootstrap_weights, percentile_interval
from forewarn.evaluation.prediction.metrics.ranking_metrics import (
    average_precision,
    average_precision_draws,
)
from forewarn.evaluation.prediction.metrics.window_average_precision import mean_draws
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import last_finished_window
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.array_types import Float64Array, Int8Array, Int64Array
from forewarn.features.time_units import SECONDS_PER_MINUTE
from forewarn.models.prediction.hyperparameters import Hyperparameter, hyperparameters_of
from forewarn.models.prediction.model_catalogue import ModelCatalogue
from forewarn.models.prediction.trained_recipe import RecipeTrainer
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.runtime.timestamps import format_iso

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = [
    "HISTORY",
    "Candidate",
    "Tuning",
    "TuningBudget",
    "candidate_settings",
    "tune",
    "window_starts",
]

HISTORY = "features.history"
_RANDOM_TRIALS = 10  # before the sampler models what was seen
_DIGITS = 3  # of a searched number; more would only look exact

Candidate = Mapping[str, Hyperparameter]
"""Values by `MODEL.NAME`; `features.history` holds spans separated by commas."""


@dataclass(frozen=True, slots=True)
class TuningBudget:
    """What a search may cost.

    Attributes
    ----------
    trials : int
        Candidates, the default included.
    minutes : float
        No trial starts later.
    windows : int
        Finished windows for choosing, and as many later ones for judging.
    """

    trials: int
    minutes: float
    windows: int


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of a search.

    Attributes
    ----------
    default, chosen : mapping
        Values of the configuration, and of the best trial.
    trials : tuple of (float, mapping)
        Average precision on the windows for choosing, and values, in the order of the trials.
    choosing, judging : tuple of int
        Starts of the test windows.
    default_precision, chosen_precision : float
        Average precision on the windows for judging.
    interval : (float, float) or None
        Paired bootstrap interval of the difference, over machines.
    """

    default: Candidate
    chosen: Candidate
    trials: tuple[tuple[float, Candidate], ...]
    choosing: tuple[int, ...]
    judging: tuple[int, ...]
    default_precision: float
    chosen_precision: float
    interval: Interval | None

    @property
    def difference(self) -> float:
        """Gain in average precision on the windows for judging."""
        return self.chosen_precision - self.default_precision

    @property
    def pays(self) -> bool:
        """Whether the gain is above 0 with its whole interval."""
        return self.interval is not None and self.interval[0] > 0.0


def tune(
    job: Job, moment: int, budget: TuningBudget, clock: Callable[[], float] = time.monotonic
) -> Tuning:
    """Search the hyperparameters of the models of a job, and the history of its features.

    Two spans of test windows lie before `moment`. Trials see the earlier one only, in records that
    end, and failures that are known, where the later span starts. The later span compares the best
    trial with the configuration once.

    Parameters
    ----------
    job : Job
    moment : int
        No later data is read.
    budget : TuningBudget
    clock : callable
        Returns seconds.

    Raises
    ------
    JobError, RecordsError
        If the records hold too few windows with failures, or nothing can be searched.
    """
    judging = window_starts(job.walk_settings, moment, budget.windows)
    choosing = window_starts(job.walk_settings, judging[0], budget.windows)
    space, default = _search_space(job)
    later = _FinishedWindows.read(job, judging, moment)
    before = later.scored(default)  # first, so that windows without a failure are refused at once
    default_precision = _mean_precision(later, before)
    past = _FinishedWindows.read(job, choosing, judging[0])
    trials = _search(past, space, default, job, budget, clock)
    best = max(trials, key=lambda trial: trial[0])[1]
    after = later.scored(best)
    precisions = default_precision, _mean_precision(later, after)
    interval = _paired_interval(before, after, job.walk_settings.recipe.seed)
    return Tuning(default, best, tuple(trials), choosing, judging, *precisions, interval)


def window_starts(settings: WalkForwardSettings, moment: int, n: int) -> tuple[int, ...]:
    """Return the starts of the last `n` test windows finished at `moment`, oldest first."""
    every = settings.every
    newest = last_finished_window(moment, every=every, horizon=settings.recipe.horizon)
    return tuple(newest - every * back for back in reversed(range(n)))


def _search_space(job: Job) -> tuple[dict[str, BaseDistribution], dict[str, Hyperparameter]]:
    """Return what is searched, and the values of the configuration."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    space: dict[str, BaseDistribution] = {}
    default: dict[str, Hyperparameter] = {}
    for model in (*job.walk_settings.models, *job.walk_settings.voters):  # that rank the list
        configured = job.walk_settings.recipe.hyperparameters.get(model, {})
        for name, declared in hyperparameters_of(job.catalogue.class_of(model)).items():
            limits = declared.limits
            if limits is None or limits.search is None:
                continue
            low, high = limits.search
            key = f"{model}.{name}"
            default[key] = configured.get(name, declared.default)
            space[key] = (
                IntDistribution(int(low), int(high), log=limits.log)
                if declared.kind is int
                else FloatDistribution(low, high, log=limits.log)
            )
    history = job.walk_settings.recipe.plan.history
    if history:
        default[HISTORY] = _joined(history)
        space[HISTORY] = CategoricalDistribution([_joined(h) for h in _histories(history)])
    if not space:
        raise JobError("nothing to tune: no model has a hyperparameter with a range to search.")
    return space, default


def _histories(history: Sequence[int]) -> list[tuple[int, ...]]:
    """Return shorter histories, the configured one, and one that is longer."""
    shorter = [tuple(history[:n]) for n in range(len(history) + 1)]
    return [*shorter, (*history, 2 * history[-1])]


def _joined(history: Sequence[int]) -> str:
    return ",".join(map(str, history))


def candidate_settings(settings: WalkForwardSettings, candidate: Candidate) -> WalkForwardSettings:
    """Return the settings of a walk-forward backtest with the values of a candidate."""
    recipe = settings.recipe
    values = {name: dict(chosen) for name, chosen in recipe.hyperparameters.items()}
    for key, value in candidate.items():
        model, _, name = key.partition(".")
        if key == HISTORY:
            history = tuple(int(span) for span in str(value).split(",") if span)
            recipe = replace(recipe, plan=replace(recipe.plan, history=history))
        else:
            values.setdefault(model, {})[name] = value
    return replace(
        settings,
        recipe=replace(recipe, hyperparameters=values),
        committee=replace(settings.committee, cascade=()),  # it does not rank the list
        baselines=(),
    )


@dataclass(frozen=True, slots=True)
class _ScoredWindow:
    """Scores that rank the list on the tested instances of a window, with their labels."""

    labels: Int8Array
    scores: Float64Array
    machine: Int64Array

    @classmethod
    def from_window(cls, window: WindowScores, strategy: str) -> _ScoredWindow:
        rows, instances = window.tested, window.instances
        machine = instances.gpu if window.machine is None else window.machine + 1  # -1: unknown
        scores = window.by_strategy[strategy][1]["blend"]
        return cls(instances.label[rows], scores[rows], machine[rows].astype(np.int64))


@dataclass(frozen=True, slots=True)
class _FinishedWindows:
    """Test windows, in records that end where all of their labels are known."""

    settings: WalkForwardSettings
    records: WindowedRecords
    catalogue: ModelCatalogue
    starts: tuple[int, ...]

    @classmethod
    def read(cls, job: Job, starts: tuple[int, ...], moment: int) -> _FinishedWindows:
        """Read the records before `moment`, as far back as any candidate needs them."""
        history = job.walk_settings.recipe.plan.history
        longest = _joined(_histories(history)[-1] if history else ())
        widest = candidate_settings(job.walk_settings, {HISTORY: longest})
        start = widest.reads_from(starts[0])
        store = job.store.pinned(start, moment)
        records = WindowedRecords.from_store(store, widest, lambda _: [*starts], start, moment)
        return cls(job.walk_settings, records, job.catalogue, starts)

    def scored(self, candidate: Candidate) -> list[_ScoredWindow]:
        """Train before each window with the values of a candidate, and score it."""
        settings = candidate_settings(self.settings, candidate)
        expands = settings.strategy is Strategy.EXPANDING
        strategy = Strategy.EXPANDING if expands else Strategy.SLIDING
        walk = self.records.walk(settings, RecipeTrainer(settings.recipe, catalogue=self.catalogue))
        scored = []
        for start in self.starts:
            self.records.load_retraining(walk, start)
            window = walk.retrain(start, (strategy,))
            if window is not None and (window.instances.label[window.tested] == 1).any():
                scored.append(_ScoredWindow.from_window(window, strategy))
        self.records.release(walk)
        return scored


def _mean_precision(windows: _FinishedWindows, scored: Sequence[_ScoredWindow]) -> float:
    """Return the mean average precision; refuse windows without a failure."""
    precisions = [average_precision(window.labels, window.scores) for window in scored]
    known = [precision for precision in precisions if precision is not None]
    if not known:
        first, last = (format_iso(windows.starts[end])[:10] for end in (0, -1))
        raise JobError(
            f"no test window from {first} to {last} can be scored: too few failures before or in "
            "it. Use a later --at, or more --windows."
        )
    return float(np.mean(known))


def _search(
    past: _FinishedWindows,
    space: Mapping[str, BaseDistribution],
    default: Candidate,
    job: Job,
    budget: TuningBudget,
    clock: Callable[[], float],
) -> list[tuple[float, Candidate]]:
    """Score the default and what the sampler suggests, until the budget is spent."""
    from optuna import create_study, logging
    from optuna.samplers import TPESampler

    logging.set_verbosity(logging.WARNING)
    seed = job.walk_settings.recipe.seed
    sampler = TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS)
    study = create_study(direction="maximize", sampler=sampler)
    end, trials = clock() + budget.minutes * SECONDS_PER_MINUTE, []
    with progress_bar(budget.trials, "tune", "trial") as bar:
        for number in range(budget.trials):
            if number and clock() >= end:
                note(f"{budget.minutes:g} minutes are over after {number} trials")
                break
            trial = study.ask(dict(space)) if number else None
            candidate = default if trial is None else _rounded(trial.params)
            precision = _mean_precision(past, past.scored(candidate))
            if trial is not None:
                study.tell(trial, precision)
            trials.append((precision, candidate))
            bar.set_postfix_str(f"best {max(trials, key=lambda pair: pair[0])[0]:.3f}")
            bar.update()
    return trials


def _rounded(values: Mapping[str, Any]) -> dict[str, Hyperparameter]:
    """Round searched numbers: what is judged is what the file holds.

    >>> _rounded({"gbdt.learning_rate": 0.0443037, "gbdt.num_leaves": 33})
    {'gbdt.learning_rate': 0.0443, 'gbdt.num_leaves': 33}
    """
    return {
        name: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
        for name, value in values.items()
    }


def _paired_interval(
    before: Sequence[_ScoredWindow], after: Sequence[_ScoredWindow], seed: int
) -> Interval | None:
    """Return the interval of the difference; both sides use the same draws of machines."""
    n_machines = 1 + max(int(window.machine.max()) for window in (*before, *after))
    weights = bootstrap_weights(n_machines, seed=seed)
    means = [
        mean_draws(
            np.stack(
                [average_precision_draws(w.labels, w.scores, w.machine, weights) for w in windows]
            )
        )
        for windows in (before, after)
    ]
    return percentile_interval(means[1] - means[0])
