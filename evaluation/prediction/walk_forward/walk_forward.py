"""Walk-forward backtest: retrain, score the window that follows, and choose by finished windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from forewarn.evaluation.prediction.walk_forward.finished_windows import (
    N_CALIBRATION_WINDOWS,
    FinishedWindows,
)
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import is_finished
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import (
    RecipeRows,
    WindowScores,
    score_window,
)
from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.instances import (
    Instances,
    find_instances,
    label_instances,
    window_without_failures,
)
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Fleet, Timeline, build_timeline
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.records.record_table import MACHINE, Records
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.trained_recipe import RecipeTrainer, TrainedRecipe
from forewarn.models.prediction.training_candidates import KnownCounts, TrainingCandidates

__all__ = ["SlicedRecords", "WalkForward", "find_scorable_instances"]


class SlicedRecords(Protocol):
    """Records read in slices of GPUs, as of any moment."""

    def past(
        self, moment: int, reach: Nanoseconds, spans: Sequence[Nanoseconds]
    ) -> tuple[Fleet, TrainingCandidates]:
        """Return the fleet as of `moment`, `reach` back, and the training candidates."""
        ...

    def feature_fleet(
        self, moment: int, instances: Instances
    ) -> tuple[Fleet, Instances, Int64Array | None]:
        """Return a fleet for computing the features of a test window.

        Returns
        -------
        Fleet
        Instances
            The same instances with the GPU and row numbers of that fleet.
        ndarray of shape (n,), int64, or None
            Number of each instance's machine, -1 unknown; None if no record has one.
        """
        ...


def find_scorable_instances(
    records: Records, failures: Failures, settings: WalkForwardSettings
) -> Instances:
    """Return every instance that production would have scored, labelled with full knowledge.

    A failure that was unknown at the time did not exclude a GPU from scoring.
    """
    recipe = settings.recipe
    instances = find_instances(
        build_timeline(records, failures.as_observed()),
        window_records=recipe.plan.window_records,
        step_records=recipe.step_records,
        horizon=recipe.horizon,
    )
    truth = build_timeline(records, failures)
    labels = label_instances(truth, instances.gpu, instances.end, recipe.horizon)
    return replace(instances, label=labels)


@dataclass(slots=True)
class WalkForward:
    """State of a walk-forward backtest: trained models and scored windows.

    Attributes
    ----------
    settings : WalkForwardSettings
    trainer : RecipeTrainer
        Trainer of the recipe of the settings.
    records, failures
        All data; only `as_of` passes any of it to a training.
    instances : Instances
        Found without failures that were unknown at the time (`find_scorable_instances`). Labelled
        with full knowledge, for testing only.
    windows : list of WindowScores
        Oldest first.
    notes : list of str
        Notes for the user.
    fixed : TrainedRecipe or None
        The first one trained on the longest span.
    span_in_use : Nanoseconds or None
        Training span of `steady`; None (the longest) until one was chosen.
    extent : tuple of (int, int) or None
        First and last record of the data set, if `records` belong to one retraining (`move_to`).
    sliced : SlicedRecords or None
        Reads what is needed, if `records` hold only the last one of each GPU before a retraining.
    compared : callable or None
        Returns the rows of a test window on which training spans are compared. Spans that no
        strategy uses are then trained without models that do not affect the choice and scored on
        these rows only, and strategies that were not requested are not scored. None: train and
        score everything.
    """

    settings: WalkForwardSettings
    trainer: RecipeTrainer
    records: Records
    failures: Failures
    instances: Instances
    windows: list[WindowScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fixed: TrainedRecipe | None = None
    span_in_use: Nanoseconds | None = None
    extent: tuple[int, int] | None = None
    compared: Callable[[WindowScores], Int64Array] | None = None
    sliced: SlicedRecords | None = None

    def move_to(
        self, records: Records, instances: Instances, sliced: SlicedRecords | None = None
    ) -> None:
        """Continue with the records of another retraining and the instances of its test window.

        GPU and machine numbers are the same for all retrainings.
        """
        self.records, self.instances, self.sliced = records, instances, sliced

    @property
    def truth(self) -> Timeline:
        """The current records with all failures, from which labels are computed."""
        return build_timeline(self.records, self.failures)

    @property
    def last_tested(self) -> int:
        """Last end of an instance whose horizon lies within the records."""
        last = self.records.last if self.extent is None else self.extent[1]
        return last - self.settings.recipe.horizon

    @property
    def unseen_from(self) -> int | None:
        """First end of an instance left untested because its horizon exceeds the records."""
        ends = self.instances.end
        later = ends[ends > self.last_tested]
        return int(later.min()) if len(later) else None

    def retrain(self, moment: int, strategies: Sequence[str]) -> WindowScores | None:
        """Train as of `moment` and score the instances that end in [moment, moment + every).

        Returns
        -------
        WindowScores or None
            None if the retraining was skipped, or no instance with a known label follows.
        """
        timeline = as_of(self.records, self.failures, moment, self.settings.reach)
        known = self.finished_at(moment, timeline)
        trained: dict[Nanoseconds, TrainedRecipe] = {}
        recipes: dict[str, TrainedRecipe] = {}
        if set(strategies) != {Strategy.EXPANDING}:
            trained = self._train_spans(known, moment, strategies)
            # All strategies are evaluated on the same windows.
            if not trained:
                return None
            recipes |= self._spans_used(known, trained)
        if Strategy.EXPANDING in strategies:
            recipe = self.train_on_all(moment)
            if recipe is None:
                return None
            recipes[Strategy.EXPANDING] = recipe
        if self.compared is not None:
            recipes = {name: recipe for name, recipe in recipes.items() if name in strategies}
        return self._score(known, moment, trained, recipes)

    def train_on_all(self, moment: int) -> TrainedRecipe | None:
        """Train on the whole past before `moment` with age weighting; None with few failures."""
        settings = self.settings
        span = settings.expanding_span(
            moment, self.extent[0] if self.extent else self.records.first
        )
        fleet, candidates = self._past(moment, settings.reach_of(span), [span])
        names = (*settings.names, *settings.baselines)
        trainer = self.trainer.age_weighted(settings.half_life)
        return trainer.train(fleet, moment, span, names, candidates)

    def train_on(self, moment: int, span: Nanoseconds) -> TrainedRecipe | None:
        """Train on one span before `moment`, without baselines; None with too few failures."""
        fleet, candidates = self._past(moment, self.settings.reach, [span])
        return self.trainer.train(fleet, moment, span, self.settings.names, candidates)

    def known_counts(self, moment: int, span: Nanoseconds) -> KnownCounts:
        """Return the number of known labels in a span for a training as of `moment`."""
        spans = [span]
        fleet, candidates = self._past(moment, self.settings.reach_of(span), spans)
        candidates = candidates or self.settings.recipe.candidates(fleet, moment, spans)
        return candidates.counts[span]

    def _past(
        self,
        moment: int,
        reach: Nanoseconds,
        spans: Sequence[Nanoseconds],
        timeline: Timeline | None = None,
    ) -> tuple[Fleet, TrainingCandidates | None]:
        """Return the fleet as of `moment`, and the training candidates if already known."""
        if self.sliced is None:
            return timeline or as_of(self.records, self.failures, moment, reach), None
        with self.trainer.stage("read records"):
            return self.sliced.past(moment, reach, spans)

    def _train_spans(
        self, known: FinishedWindows, moment: int, strategies: Sequence[str]
    ) -> dict[Nanoseconds, TrainedRecipe]:
        """Train on the compared spans; return nothing if the longest has too few failures."""
        settings, longest = self.settings, self.settings.longest
        compares = not {Strategy.VARIABLE, Strategy.STEADY}.isdisjoint(strategies)
        chosen = {longest, *known.choices(self.span_in_use).values()}
        names: dict[Nanoseconds, tuple[str, ...]] = {}
        for span in sorted(settings.training_spans if compares else [longest], reverse=True):
            names[span] = settings.names if self.compared is None else settings.choosing_names
            if span in chosen:
                names[span] = (*settings.names, *settings.baselines)
        fleet, candidates = self._past(moment, settings.reach, list(names), known.timeline)
        recipes = self.trainer.train_spans(fleet, moment, names, candidates)
        trained = {recipe.training_span: recipe for recipe in recipes}
        return trained if longest in trained else {}

    def _spans_used(
        self, known: FinishedWindows, trained: Mapping[Nanoseconds, TrainedRecipe]
    ) -> dict[str, TrainedRecipe]:
        """Return the recipe of every strategy that uses one of the trained spans."""
        longest = self.settings.longest
        self.fixed = self.fixed or trained[longest]
        chosen = {str(Strategy.SLIDING): longest} | known.choices(self.span_in_use)
        used = {name: trained.get(span, trained[longest]) for name, span in chosen.items()}
        self.span_in_use = used[Strategy.STEADY].training_span
        return used | {str(Strategy.FIXED): self.fixed}

    def has_known_labels(self, moment: int) -> bool:
        """Return whether there are labels to calibrate probabilities with at `moment`."""
        known = moment - self.settings.recipe.horizon
        return any((window.instances.end < known).any() for window in self.windows)

    def drop_unused_windows(self, moment: int) -> None:
        """Drop the windows that no span choice and no calibration from `moment` on uses."""
        every, horizon = self.settings.every, self.settings.recipe.horizon
        done = [
            w for w in self.windows if is_finished(w.start, moment, every=every, horizon=horizon)
        ]
        failing = [window for window in done if (window.instances.label == 1).any()]
        # Keep two more than are pooled: later knowledge may remove the positives of a window.
        needed = {
            id(w)
            for w in (*done[-N_CALIBRATION_WINDOWS:], *failing[-self.settings.select_over - 2 :])
        }
        old = {id(window) for window in done} - needed
        self.windows[:] = [window for window in self.windows if id(window) not in old]

    def finished_at(self, moment: int, timeline: Timeline) -> FinishedWindows:
        """Return the windows finished at `moment` and the others, as known then."""
        return FinishedWindows.as_of(moment, self.windows, self.settings, self.records, timeline)

    def _score(
        self,
        known: FinishedWindows,
        moment: int,
        trained: Mapping[Nanoseconds, TrainedRecipe],
        recipes: Mapping[str, TrainedRecipe],
    ) -> WindowScores | None:
        """Score the test window with all trained recipes and calibrate as of `moment`."""
        window = self._window(moment)
        if window is None:
            return None
        if self.compared is not None:
            window.compared = self.compared(window)
        scored = self._scored(window, trained.values(), recipes.values())
        for span, recipe in trained.items():
            rows, values = scored[id(recipe)]
            if rows is None and window.compared is not None:
                values = {name: scores[window.compared] for name, scores in values.items()}
            window.by_span[span] = values
        for strategy, recipe in recipes.items():
            scores = scored[id(recipe)][1]
            blended = self.settings.committee.blend(scores)
            calibration = known.calibrate(strategy, recipe.prior, recipe.training_span)
            probability = calibration.apply(blended)
            all_scores = scores | {"blend": blended, "probability": probability}
            window.by_strategy[strategy] = (recipe.training_span, all_scores)
        self.windows.append(window)
        return window

    def _scored(
        self,
        window: WindowScores,
        trained: Iterable[TrainedRecipe],
        used: Iterable[TrainedRecipe],
    ) -> dict[int, tuple[Int64Array | None, dict[str, Float64Array]]]:
        """Return the rows scored by each recipe (None for all), and the scores.

        Recipes used by a strategy score all rows, the others only the compared rows.
        """
        scorers = {id(recipe): RecipeRows(recipe, None) for recipe in used}
        for recipe in trained:
            scorers.setdefault(id(recipe), RecipeRows(recipe, window.compared))
        fleet, instances = self.measured(window)
        plan, stage = self.settings.recipe.plan, self.trainer.stage
        scores = score_window(plan, fleet, instances, list(scorers.values()), stage)
        return {
            key: (scorer.rows, values)
            for (key, scorer), values in zip(scorers.items(), scores, strict=True)
        }

    def _window(self, moment: int) -> WindowScores | None:
        instances = self.instances.between(moment, moment + self.settings.every)
        gpu, end, recipe = instances.gpu, instances.end, self.settings.recipe
        clean = window_without_failures(self.failures.episodes(), gpu, end, recipe.window_span)
        tested = (instances.label >= 0) & clean & (end <= self.last_tested)
        if not tested.any():
            return None
        hashes = sampling_hash(recipe.seed, self.records.serials, gpu, end)
        machine = None
        if self.sliced is None and MACHINE in self.records.texts:
            machine = self.records.codes(MACHINE, instances.row).astype(np.int64)
        return WindowScores(moment, instances, hashes, tested, machine=machine)

    def measured(self, window: WindowScores) -> tuple[Fleet, Instances]:
        """Return a fleet for computing the features of a test window; store its machines."""
        if self.sliced is None:
            return self.measured_in(window.start, window.instances)
        with self.trainer.stage("read records"):
            fleet, instances, machine = self.sliced.feature_fleet(window.start, window.instances)
        window.machine = machine
        return fleet, instances

    def measured_in(self, moment: int, instances: Instances) -> tuple[Timeline, Instances]:
        """Return a timeline for computing the features of the instances of a test window."""
        start, end = moment - self.settings.recipe.plan.reach, moment + self.settings.every
        rows = self.records.rows_between(start, end)
        timeline = build_timeline(self.records.between(start, end), self.failures.as_observed())
        return timeline, instances.at_rows(np.searchsorted(rows, instances.row))
