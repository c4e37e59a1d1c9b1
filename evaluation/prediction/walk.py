"""The walk of a backtest through time: retrain, score what follows, choose by what is finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.finished_windows import FinishedWindows
from forewarn.evaluation.prediction.retraining_schedule import finished
from forewarn.evaluation.prediction.strategies import Strategy
from forewarn.evaluation.prediction.walk_settings import WalkSettings
from forewarn.evaluation.prediction.window_scores import WindowScores
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.instances import Instances, find_instances, label, untouched
from forewarn.features.records.failures import Failures
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.records.table import Records
from forewarn.features.records.timeline import Timeline, lay_out
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.calibration import Calibration
from forewarn.models.prediction.trained_recipe import RecipeTrainer, TrainedRecipe

__all__ = ["Walk", "scorable", "train_on_all"]

Floats = npt.NDArray[np.float64]


def scorable(records: Records, failures: Failures, settings: WalkSettings) -> Instances:
    """Return every instance that production would have scored, labelled from everything.

    A failure that nobody knew of did not keep a GPU from being scored.
    """
    recipe = settings.recipe
    instances = find_instances(
        lay_out(records, failures.as_seen()),
        window_records=recipe.plan.window_records,
        step_records=recipe.step_records,
        horizon=recipe.horizon,
    )
    truth = lay_out(records, failures)
    labels = label(truth, instances.gpu, instances.end, recipe.horizon)
    return replace(instances, label=labels)


def train_on_all(
    trainer: RecipeTrainer,
    settings: WalkSettings,
    records: Records,
    failures: Failures,
    moment: int,
) -> TrainedRecipe | None:
    """Train on all that is known at `moment`, the older weighing less; None: too few failures."""
    span = settings.whole_past(moment, records.first)
    timeline = as_of(records, failures, moment, settings.reach_of(span))
    names = (*settings.names, *settings.baselines)
    return trainer.fading(settings.half_life).train(timeline, moment, span, names)


@dataclass(slots=True)
class Walk:
    """The state of a walk: what was trained and scored so far.

    Attributes
    ----------
    settings : WalkSettings
    trainer : RecipeTrainer
        Of the recipe of the settings.
    records, failures
        Everything there is; only `as_of` hands any of it to a training.
    instances : Instances
        Found without the failures that nobody knew of (`scorable`), labelled from everything
        there is, for testing only.
    windows : list of WindowScores
        Oldest first.
    notes : list of str
        For the user.
    fixed : TrainedRecipe or None
        The first that was trained on the longest span.
    span_in_use : Nanoseconds or None
        Training span that `steady` uses; the longest until one was chosen.
    """

    settings: WalkSettings
    trainer: RecipeTrainer
    records: Records
    failures: Failures
    instances: Instances
    windows: list[WindowScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fixed: TrainedRecipe | None = None
    span_in_use: Nanoseconds | None = None

    @property
    def last_tested(self) -> int:
        """The last end of an instance whose horizon the records hold whole."""
        return self.records.last - self.settings.recipe.horizon

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
        trained: dict[Nanoseconds, TrainedRecipe] = {}
        recipes: dict[str, TrainedRecipe] = {}
        if set(strategies) != {Strategy.EXPANDING}:
            trained = self._train_spans(timeline, moment, strategies)
            # All strategies are judged on the same windows.
            if not trained:
                return None
            recipes |= self._spans_used(timeline, moment, trained)
        if Strategy.EXPANDING in strategies:
            recipe = self.train_on_all(moment)
            if recipe is None:
                return None
            recipes[Strategy.EXPANDING] = recipe
        return self._score(timeline, moment, trained, recipes)

    def train_on_all(self, moment: int) -> TrainedRecipe | None:
        """Train on all of the past before `moment`, the older weighing less."""
        return train_on_all(self.trainer, self.settings, self.records, self.failures, moment)

    def _train_spans(
        self, timeline: Timeline, moment: int, strategies: Sequence[str]
    ) -> dict[Nanoseconds, TrainedRecipe]:
        """Train on the spans that are compared; nothing if the longest has too few failures."""
        settings, longest = self.settings, self.settings.longest
        compares = not {Strategy.VARIABLE, Strategy.STEADY}.isdisjoint(strategies)
        chosen = {longest, *self.choices(timeline, moment).values()}
        trained: dict[Nanoseconds, TrainedRecipe] = {}
        for span in sorted(settings.training_spans if compares else [longest], reverse=True):
            baselines = settings.baselines if span in chosen else ()
            recipe = self.trainer.train(timeline, moment, span, (*settings.names, *baselines))
            if recipe is not None:
                trained[span] = recipe
        return trained if longest in trained else {}

    def _spans_used(
        self, timeline: Timeline, moment: int, trained: Mapping[Nanoseconds, TrainedRecipe]
    ) -> dict[str, TrainedRecipe]:
        """Return the recipe of every strategy that takes one of some spans."""
        longest = self.settings.longest
        self.fixed = self.fixed or trained[longest]
        chosen = {str(Strategy.SLIDING): longest} | self.choices(timeline, moment)
        used = {name: trained.get(span, trained[longest]) for name, span in chosen.items()}
        self.span_in_use = used[Strategy.STEADY].training_span
        return used | {str(Strategy.FIXED): self.fixed}

    def choices(self, timeline: Timeline, moment: int) -> dict[str, Nanoseconds]:
        """Return the training spans that `variable` and `steady` take, as known at `moment`."""
        return self.finished_at(moment, timeline).choices(self.span_in_use)

    def calibrate(
        self, strategy: str, timeline: Timeline, moment: int, prior: Calibration
    ) -> Calibration:
        """Fit probabilities to the last finished windows, out of time and as known at `moment`."""
        return self.finished_at(moment, timeline).calibrate(strategy, prior)

    def has_finished_window(self, moment: int) -> bool:
        """Tell whether probabilities could be fitted to anything at `moment`."""
        every, horizon = self.settings.every, self.settings.recipe.horizon
        starts = [window.start for window in self.windows]
        return any(finished(start, moment, every=every, horizon=horizon) for start in starts)

    def finished_at(self, moment: int, timeline: Timeline) -> FinishedWindows:
        """Return the windows that are finished at `moment`, with what was known of them then."""
        return FinishedWindows.at(moment, self.windows, self.settings, self.records, timeline)

    def _score(
        self,
        timeline: Timeline,
        moment: int,
        trained: Mapping[Nanoseconds, TrainedRecipe],
        recipes: Mapping[str, TrainedRecipe],
    ) -> WindowScores | None:
        """Score the test window with everything that was trained, and calibrate as of `moment`."""
        window = self._window(moment)
        if window is None:
            return None
        future = self.measured_in(moment, window.instances)
        distinct = {id(recipe): recipe for recipe in (*trained.values(), *recipes.values())}
        scored = {key: self._scores(recipe, *future) for key, recipe in distinct.items()}
        window.by_span |= {span: scored[id(recipe)] for span, recipe in trained.items()}
        for strategy, recipe in recipes.items():
            scores = scored[id(recipe)]
            blended = self.settings.committee.blend(scores)
            calibration = self.calibrate(strategy, timeline, moment, recipe.prior)
            probability = calibration.apply(blended)
            all_scores = scores | {"blend": blended, "probability": probability}
            window.by_strategy[strategy] = (recipe.training_span, all_scores)
        self.windows.append(window)
        return window

    def _window(self, moment: int) -> WindowScores | None:
        instances = self.instances.between(moment, moment + self.settings.every)
        gpu, end, recipe = instances.gpu, instances.end, self.settings.recipe
        clean = untouched(self.failures.episodes(), gpu, end, recipe.window_span)
        tested = (instances.label >= 0) & clean & (end <= self.last_tested)
        if not tested.any():
            return None
        hashes = sampling_hash(recipe.seed, self.records.serials, gpu, end)
        return WindowScores(moment, instances, hashes, tested)

    def measured_in(self, moment: int, instances: Instances) -> tuple[Timeline, Instances]:
        """Return a timeline that the instances of a test window can be measured in."""
        start, end = moment - self.settings.recipe.plan.reach, moment + self.settings.every
        rows = self.records.rows_between(start, end)
        timeline = lay_out(self.records.between(start, end), self.failures.as_seen())
        return timeline, instances.at_rows(np.searchsorted(rows, instances.row))

    def _scores(
        self, trained: TrainedRecipe, timeline: Timeline, instances: Instances
    ) -> dict[str, Floats]:
        stage = self.trainer.stage
        with stage("measure test windows"):
            values = trained.encoder.measures.values(timeline, instances)
        with stage("score"):
            return trained.scores(values)
