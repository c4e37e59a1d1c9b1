"""The walk of a backtest through time: retrain, score what follows, choose by what is finished."""

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
    label,
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
    """Records that are read slice by slice of GPUs, as they stood at one moment or another."""

    def past(
        self, moment: int, reach: Nanoseconds, spans: Sequence[Nanoseconds]
    ) -> tuple[Fleet, TrainingCandidates]:
        """Return the fleet as it stood at `moment`, `reach` back, and what can train on spans."""
        ...

    def future(
        self, moment: int, instances: Instances
    ) -> tuple[Fleet, Instances, Int64Array | None]:
        """Return a fleet that the instances of a test window can be measured in.

        Returns
        -------
        Fleet
        Instances
            The same, numbered as that fleet numbers GPUs and rows.
        ndarray of shape (n,), int64, or None
            The number of the machine that each was in, -1 unknown; None if no record names one.
        """
        ...


def find_scorable_instances(
    records: Records, failures: Failures, settings: WalkForwardSettings
) -> Instances:
    """Return every instance that production would have scored, labelled from everything.

    A failure that nobody knew of did not keep a GPU from being scored.
    """
    recipe = settings.recipe
    instances = find_instances(
        build_timeline(records, failures.as_seen()),
        window_records=recipe.plan.window_records,
        step_records=recipe.step_records,
        horizon=recipe.horizon,
    )
    truth = build_timeline(records, failures)
    labels = label(truth, instances.gpu, instances.end, recipe.horizon)
    return replace(instances, label=labels)


@dataclass(slots=True)
class WalkForward:
    """The state of a walk: what was trained and scored so far.

    Attributes
    ----------
    settings : WalkSettings
    trainer : RecipeTrainer
        Of the recipe of the settings.
    records, failures
        Everything there is; only `as_of` hands any of it to a training.
    instances : Instances
        Found without the failures that nobody knew of (`find_scorable_instances`), labelled from everything
        there is, for testing only.
    windows : list of WindowScores
        Oldest first.
    notes : list of str
        For the user.
    fixed : TrainedRecipe or None
        The first that was trained on the longest span.
    span_in_use : Nanoseconds or None
        Training span that `steady` uses; the longest until one was chosen.
    extent : tuple of (int, int) or None
        First and last record of all, if `records` are those of one retraining (`move_to`).
    sliced : SlicedRecords or None
        Where `records` are only the last of each GPU before a retraining: reads what it needs.
    compared : callable or None
        Returns the rows of a test window that training spans are compared on: those that no
        strategy takes get only the models that decide, and are scored there only; strategies that
        were not asked for are not scored. None: everything is trained and scored.
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
        """Go on with the records of another retraining, and the instances of its test window.

        GPUs and machines have the same numbers in all of them.
        """
        self.records, self.instances, self.sliced = records, instances, sliced

    @property
    def truth(self) -> Timeline:
        """The records that are looked at, and all failures: labels are made from them."""
        return build_timeline(self.records, self.failures)

    @property
    def last_tested(self) -> int:
        """The last end of an instance whose horizon the records hold whole."""
        last = self.records.last if self.extent is None else self.extent[1]
        return last - self.settings.recipe.horizon

    @property
    def unseen_from(self) -> int | None:
        """The first end of an instance that is not tested since the records end; None: none is."""
        ends = self.instances.end
        later = ends[ends > self.last_tested]
        return int(later.min()) if len(later) else None

    def retrain(self, moment: int, strategies: Sequence[str]) -> WindowScores | None:
        """Train as of `moment` and score the instances that end in [moment, moment + every).

        Returns
        -------
        WindowScores or None
            None if the retraining was skipped, or nothing with a known label follows.
        """
        timeline = as_of(self.records, self.failures, moment, self.settings.reach)
        known = self.finished_at(moment, timeline)
        trained: dict[Nanoseconds, TrainedRecipe] = {}
        recipes: dict[str, TrainedRecipe] = {}
        if set(strategies) != {Strategy.EXPANDING}:
            trained = self._train_spans(known, moment, strategies)
            # All strategies are judged on the same windows.
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
        """Train on all of the past before `moment`, the older weighing less; None: too few fail."""
        settings = self.settings
        span = settings.whole_past(moment, self.extent[0] if self.extent else self.records.first)
        fleet, candidates = self._past(moment, settings.reach_of(span), [span])
        names = (*settings.names, *settings.baselines)
        trainer = self.trainer.fading(settings.half_life)
        return trainer.train(fleet, moment, span, names, candidates)

    def train_on(self, moment: int, span: Nanoseconds) -> TrainedRecipe | None:
        """Train on one span before `moment`, without baselines; None: too few fail."""
        fleet, candidates = self._past(moment, self.settings.reach, [span])
        return self.trainer.train(fleet, moment, span, self.settings.names, candidates)

    def known_counts(self, moment: int, span: Nanoseconds) -> KnownCounts:
        """Return how many labels of a span a training as of `moment` knows."""
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
        """Return the fleet as it stood at `moment`, and what can train if it is found already."""
        if self.sliced is None:
            return timeline or as_of(self.records, self.failures, moment, reach), None
        with self.trainer.stage("read records"):
            return self.sliced.past(moment, reach, spans)

    def _train_spans(
        self, known: FinishedWindows, moment: int, strategies: Sequence[str]
    ) -> dict[Nanoseconds, TrainedRecipe]:
        """Train on the spans that are compared; nothing if the longest has too few failures."""
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
        """Return the recipe of every strategy that takes one of some spans."""
        longest = self.settings.longest
        self.fixed = self.fixed or trained[longest]
        chosen = {str(Strategy.SLIDING): longest} | known.choices(self.span_in_use)
        used = {name: trained.get(span, trained[longest]) for name, span in chosen.items()}
        self.span_in_use = used[Strategy.STEADY].training_span
        return used | {str(Strategy.FIXED): self.fixed}

    def has_known_labels(self, moment: int) -> bool:
        """Tell whether probabilities could be fitted to anything at `moment`."""
        known = moment - self.settings.recipe.horizon
        return any((window.instances.end < known).any() for window in self.windows)

    def forget(self, moment: int) -> None:
        """Drop the windows that no choice and no calibration from `moment` on looks at."""
        every, horizon = self.settings.every, self.settings.recipe.horizon
        done = [
            w for w in self.windows if is_finished(w.start, moment, every=every, horizon=horizon)
        ]
        failing = [window for window in done if (window.instances.label == 1).any()]
        # Two more than are pooled: a window may lose its failures to others that are known later.
        needed = {
            id(w)
            for w in (*done[-N_CALIBRATION_WINDOWS:], *failing[-self.settings.select_over - 2 :])
        }
        old = {id(window) for window in done} - needed
        self.windows[:] = [window for window in self.windows if id(window) not in old]

    def finished_at(self, moment: int, timeline: Timeline) -> FinishedWindows:
        """Return the windows by whether they are finished at `moment`, as they were known then."""
        return FinishedWindows.as_of(moment, self.windows, self.settings, self.records, timeline)

    def _score(
        self,
        known: FinishedWindows,
        moment: int,
        trained: Mapping[Nanoseconds, TrainedRecipe],
        recipes: Mapping[str, TrainedRecipe],
    ) -> WindowScores | None:
        """Score the test window with everything that was trained, and calibrate as of `moment`."""
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
        """Return by recipe the rows that it scored, None for all, and their scores.

        Those that are used score all rows, the others those that are compared.
        """
        scorers = {id(recipe): RecipeRows(recipe, None) for recipe in used}
        for recipe in trained:
            scorers.setdefault(id(recipe), RecipeRows(recipe, window.compared))
        fleet, instances = self.measured(window)
        plan, stage = self.settings.recipe.plan, self.trainer.stage
        scores = score_window(plan, fleet, instances, list(scorers.values()), stage)
        return {
            key: (of.rows, values)
            for (key, of), values in zip(scorers.items(), scores, strict=True)
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
        """Return what a test window is measured in; slices say in which machine each GPU was."""
        if self.sliced is None:
            return self.measured_in(window.start, window.instances)
        with self.trainer.stage("read records"):
            fleet, instances, machine = self.sliced.future(window.start, window.instances)
        window.machine = machine
        return fleet, instances

    def measured_in(self, moment: int, instances: Instances) -> tuple[Timeline, Instances]:
        """Return a timeline that the instances of a test window can be measured in."""
        start, end = moment - self.settings.recipe.plan.reach, moment + self.settings.every
        rows = self.records.rows_between(start, end)
        timeline = build_timeline(self.records.between(start, end), self.failures.as_seen())
        return timeline, instances.at_rows(np.searchsorted(rows, instances.row))
