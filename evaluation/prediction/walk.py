"""The walk of a backtest through time: retrain, score what follows, choose by what is finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.length_selection import Flagged, steady_length
from forewarn.evaluation.prediction.ranking import flag_precision
from forewarn.evaluation.prediction.retraining_schedule import best_length, finished
from forewarn.evaluation.prediction.test_set import sampled_mask
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.inputs import InstanceValues
from forewarn.features.prediction.instances import (
    UNKNOWN,
    Instances,
    find_instances,
    label,
    seen_whole,
    untouched,
)
from forewarn.features.records.failures import Failures
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.records.table import MACHINE, Records
from forewarn.features.records.timeline import Timeline, lay_out
from forewarn.models.prediction.builtin_rules import rule_scores
from forewarn.models.prediction.calibration import Calibration, fit_calibration, prior_correction
from forewarn.models.prediction.catalogue import BASELINE_NAMES
from forewarn.models.prediction.ensembles import CASCADE_FIRST, Committee, blend
from forewarn.models.prediction.protocol import FailureModel
from forewarn.models.prediction.training_set import (
    Recipe,
    TrainingSet,
    build_training_set,
    fit_models,
    known,
)

__all__ = [
    "FEWEST_POSITIVES",
    "Trained",
    "TrainingCache",
    "Walk",
    "WalkSettings",
    "WindowScores",
    "as_of",
    "scorable",
]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Stage = Callable[[str], AbstractContextManager[None]]

FEWEST_POSITIVES = 5
_CALIBRATED_ON = 5


@dataclass(frozen=True, slots=True)
class WalkSettings:
    """What a walk compares, and how.

    Attributes
    ----------
    recipe : Recipe
    committee : Committee
    models : tuple of str
    lengths : tuple of int
        Training lengths in nanoseconds.
    every : int
        Nanoseconds from one retraining to the next.
    step : int
        Records between two instances of a GPU.
    k, negatives_per_positive : float
        Of the 1:8 test sets.
    select_by : str
        Method whose precision chooses the length.
    baselines : tuple of str
        Trained beside, for comparison.
    select_over : int
        Finished windows that the strategy `steady` pools to choose the length; 1 is the paper's
        rule, which `variable` always follows.
    """

    recipe: Recipe
    committee: Committee
    models: tuple[str, ...]
    lengths: tuple[int, ...]
    every: int
    step: int
    k: float
    negatives_per_positive: float
    select_by: str
    baselines: tuple[str, ...] = BASELINE_NAMES
    select_over: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Scores that committees and selection need."""
        return (*self.models, CASCADE_FIRST)

    @property
    def reach(self) -> int:
        """Nanoseconds of records that a training reads before t."""
        return self.recipe.horizon + max(self.lengths) + self.recipe.plan.reach


@dataclass(frozen=True, slots=True)
class Trained:
    """One recipe trained as of t on one length."""

    length: int
    encoder: Encoder
    models: dict[str, FailureModel]
    balance: float
    prevalence: float

    def scores(self, values: InstanceValues) -> dict[str, Floats]:
        """Return all scores of measured instances, those of the built-in rules too."""
        inputs = self.encoder.encode(values)
        scores = {name: model.score(inputs) for name, model in self.models.items()}
        return scores | {"rules": rule_scores(values, self.encoder.measures.plan)}

    @property
    def prior(self) -> Calibration:
        """What undoes the balance of the training set."""
        return prior_correction(self.balance, self.prevalence)


class TrainingCache(Protocol):
    """What was trained before and need not be trained again."""

    def recall(self, moment: int, length: int) -> Trained | None:
        """Return what was trained as of a moment on a length, if it was kept."""
        ...

    def keep(self, moment: int, trained: Trained) -> None:
        """Keep what was trained as of a moment."""
        ...


@dataclass(slots=True)
class WindowScores:
    """A test window: what would have been scored in it and, by training length, the scores.

    Attributes
    ----------
    start : int
    instances : Instances
        All that nobody knew to be failed, whatever was learned of them afterwards.
    hashes : ndarray of shape (n,)
        For sampling.
    tested : ndarray of shape (n,), bool
        In the end known to be instances, with a known label and a horizon that was seen whole.
    by_length, by_strategy : dict
    """

    start: int
    instances: Instances
    hashes: npt.NDArray[np.uint64]
    tested: npt.NDArray[np.bool_]
    by_length: dict[int, dict[str, Floats]] = field(default_factory=dict)
    by_strategy: dict[str, tuple[int, dict[str, Floats]]] = field(default_factory=dict)


def as_of(records: Records, failures: Failures, moment: int, reach: int) -> Timeline:
    """Return the timeline as it stood at `moment`: no record and no knowledge from then on."""
    seen = records.between(moment - reach, moment)
    return lay_out(seen, failures.known_before(moment))


def scorable(records: Records, failures: Failures, terms: WalkSettings) -> Instances:
    """Return every instance that production would have scored, labelled from everything.

    A failure that nobody knew of did not keep a GPU from being scored.
    """
    found = find_instances(
        lay_out(records, failures.as_seen()),
        length=terms.recipe.plan.window_records,
        step=terms.step,
        horizon=terms.recipe.horizon,
    )
    truth = lay_out(records, failures)
    return replace(found, label=label(truth, found.gpu, found.end, terms.recipe.horizon))


def _no_stage(_: str) -> AbstractContextManager[None]:
    from contextlib import nullcontext

    return nullcontext()


@dataclass(slots=True)
class Walk:
    """The state of a walk: what was trained and scored so far.

    Attributes
    ----------
    terms : WalkSettings
    records, failures
        Everything there is; only `as_of` hands any of it to a training.
    instances : Instances
        Found without the failures that nobody knew of (`scorable`), labelled from everything
        there is, for testing only.
    stage : callable
        Names what is being done, for whoever measures time.
    memory : TrainingCache or None
    current : int or None
        Length that `steady` uses; the longest until one was chosen.
    """

    terms: WalkSettings
    records: Records
    failures: Failures
    instances: Instances
    stage: Stage = _no_stage
    windows: list[WindowScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fixed: Trained | None = None
    memory: TrainingCache | None = None
    current: int | None = None

    @property
    def last_tested(self) -> int:
        """The last end of an instance whose horizon the records hold whole."""
        return self.records.last - self.terms.recipe.horizon

    @property
    def unseen_from(self) -> int | None:
        """The first end of an instance that is not tested since the records end; None: none is."""
        ends = self.instances.end
        later = ends[ends > self.last_tested]
        return int(later.min()) if len(later) else None

    def train(
        self, timeline: Timeline, moment: int, length: int, names: Sequence[str]
    ) -> Trained | None:
        """Train one length as of `moment`; None if too few positives are known."""
        kept = None if self.memory is None else self.memory.recall(moment, length)
        if kept is not None:
            return kept
        terms = self.terms
        horizon = terms.recipe.horizon
        with self.stage("training sets"):
            found = find_instances(
                timeline, length=terms.recipe.plan.window_records, step=terms.step, horizon=horizon
            )
            chosen = known(found, moment, length, horizon)
            positives = int((chosen.label == 1).sum())
            if positives < FEWEST_POSITIVES or positives == len(chosen):
                return None
            encoder, training = build_training_set(terms.recipe, timeline, chosen)
        models = self._fit(names, training)
        # What the loss saw: the positives count for more in it than in the training set.
        positive = training.balance * terms.recipe.positive_weight
        balance = positive / (positive + 1.0 - training.balance)
        trained = Trained(length, encoder, models, balance, training.prevalence)
        if self.memory is not None:
            self.memory.keep(moment, trained)
        return trained

    def _fit(self, names: Sequence[str], training: TrainingSet) -> dict[str, FailureModel]:
        models: dict[str, FailureModel] = {}
        for name in names:
            with self.stage(f"fit {name}"):
                models |= fit_models(self.terms.recipe, [name], training)
        return models

    def retrain(self, moment: int, strategies: Sequence[str]) -> WindowScores | None:
        """Train as of `moment` and score the instances that end in [moment, moment + every).

        Returns
        -------
        WindowScores or None
            None if the retraining was skipped, or nothing with a known label follows.
        """
        terms = self.terms
        timeline = as_of(self.records, self.failures, moment, terms.reach)
        longest = max(terms.lengths)
        chosen = {"sliding": longest} | self.choices(timeline, moment)
        compared = {"variable", "steady"} & set(strategies)
        trained: dict[int, Trained] = {}
        for length in sorted(terms.lengths if compared else [longest], reverse=True):
            baselines = terms.baselines if length in chosen.values() else ()
            one = self.train(timeline, moment, length, (*terms.names, *baselines))
            if one is not None:
                trained[length] = one
        if longest not in trained:
            return None
        self.fixed = self.fixed or trained[longest]
        used = {name: one if one in trained else longest for name, one in chosen.items()}
        self.current = used["steady"]
        return self._score(timeline, moment, trained, used)

    def choices(self, timeline: Timeline, moment: int) -> dict[str, int]:
        """Return the lengths that `variable` and `steady` take, as known at `moment`."""
        # A window with nothing to find says nothing about who finds.
        told = (
            (window, labels)
            for window in reversed(self.windows)
            if self._finished(window, moment)
            and ((labels := self._labels(window, timeline)) == 1).any()
        )
        pooled = list(islice(told, self.terms.select_over))
        precision = self._precisions(*pooled[0]) if pooled else None
        best = best_length(self.terms.lengths, precision)
        steady = self._choose_steadily(pooled) if self.terms.select_over > 1 else best
        return {"variable": best, "steady": steady}

    def _choose_steadily(self, told: Sequence[tuple[WindowScores, Labels]]) -> int:
        """Return the length that was better over several windows, or that in use."""
        terms, machine = self.terms, self.records.texts.get(MACHINE)
        lengths = [n for n in terms.lengths if all(n in window.by_length for window, _ in told)]
        parts: dict[int, list[Flagged]] = {length: [] for length in lengths if told}
        for window, labels in told:
            for length, (rows, flags) in self._flags(window, labels).items():
                if length in parts:
                    mine = window.instances.take(rows[flags])
                    codes = mine.gpu if machine is None else self.records.codes(MACHINE, mine.row)
                    parts[length].append(Flagged(labels[rows[flags]] == 1, codes.astype(np.int64)))
        pooled = {
            length: Flagged(
                np.concatenate([one.hit for one in some]),
                np.concatenate([one.machine for one in some]),
            )
            for length, some in parts.items()
        }
        return steady_length(
            terms.lengths,
            self.current or max(terms.lengths),
            pooled,
            n_machines=len(self.records.serials if machine is None else machine.texts) + 1,
            seed=terms.recipe.seed,
        )

    def _labels(self, window: WindowScores, timeline: Timeline) -> npt.NDArray[np.int8]:
        """Return the labels of a window's instances as far as the timeline knows, else -1."""
        plan, found = self.terms.recipe.plan, window.instances
        horizon = self.terms.recipe.horizon
        labels = label(timeline, found.gpu, found.end, horizon)
        reach = (plan.window_records - 1) * plan.interval
        clean = untouched(timeline.failures, found.gpu, found.end, reach)
        # A finished window may still lack records: those that collect them may be late.
        clean &= seen_whole(timeline, found.end, horizon)
        return np.where(clean, labels, UNKNOWN).astype(np.int8)

    def has_finished_window(self, moment: int) -> bool:
        """Tell whether probabilities could be fitted to anything at `moment`."""
        return any(self._finished(window, moment) for window in self.windows)

    def _finished(self, window: WindowScores, moment: int) -> bool:
        horizon = self.terms.recipe.horizon
        return finished(window.start, moment, every=self.terms.every, horizon=horizon)

    def _precisions(
        self, window: WindowScores, labels: npt.NDArray[np.int8]
    ) -> dict[int, float | None]:
        """Return the precision of each length on a window's 1:8 set, by labels known so far."""
        return {
            length: flag_precision(labels[rows], flags)
            for length, (rows, flags) in self._flags(window, labels).items()
        }

    def _flags(
        self, window: WindowScores, labels: Labels
    ) -> dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]]:
        """Return the rows of a window's 1:8 set, and what each length flags of them."""
        terms = self.terms
        rows = np.flatnonzero(sampled_mask(labels, window.hashes, terms.negatives_per_positive))
        order = np.arange(len(rows))
        return {
            length: (
                rows,
                terms.committee.flags(
                    terms.select_by,
                    {name: values[rows] for name, values in scores.items()},
                    terms.k,
                    order,
                ),
            )
            for length, scores in window.by_length.items()
        }

    def _score(
        self,
        timeline: Timeline,
        moment: int,
        trained: Mapping[int, Trained],
        lengths: Mapping[str, int],
    ) -> WindowScores | None:
        """Score the test window with everything that was trained, and calibrate as of `moment`."""
        window = self._window(moment)
        if window is None or self.fixed is None:
            return None
        future = self.measured_in(moment, window.instances)
        for length, one in trained.items():
            window.by_length[length] = self._scores(one, *future)
        used = {name: (length, window.by_length[length]) for name, length in lengths.items()}
        fixed = trained.get(self.fixed.length)
        same = window.by_length[self.fixed.length] if fixed is self.fixed else None
        used["fixed"] = (self.fixed.length, same or self._scores(self.fixed, *future))
        models = {name: trained[length] for name, length in lengths.items()} | {"fixed": self.fixed}
        for strategy, (length, scores) in used.items():
            scores = scores | {"blend": self._blend(scores)}
            calibration = self.calibrate(strategy, timeline, moment, models[strategy].prior)
            window.by_strategy[strategy] = (
                length,
                scores | {"probability": calibration.apply(scores["blend"])},
            )
        self.windows.append(window)
        return window

    def _window(self, moment: int) -> WindowScores | None:
        mine = self.instances.between(moment, moment + self.terms.every)
        plan = self.terms.recipe.plan
        reach = (plan.window_records - 1) * plan.interval
        clean = untouched(self.failures.episodes(), mine.gpu, mine.end, reach)
        tested = (mine.label >= 0) & clean & (mine.end <= self.last_tested)
        if not tested.any():
            return None
        hashes = sampling_hash(self.terms.recipe.seed, self.records.serials, mine.gpu, mine.end)
        return WindowScores(moment, mine, hashes, tested)

    def measured_in(self, moment: int, instances: Instances) -> tuple[Timeline, Instances]:
        """Return a timeline that the instances of a test window can be measured in."""
        start, end = moment - self.terms.recipe.plan.reach, moment + self.terms.every
        rows = self.records.rows_between(start, end)
        timeline = lay_out(self.records.between(start, end), self.failures.as_seen())
        return timeline, instances.at_rows(np.searchsorted(rows, instances.row))

    def _scores(
        self, trained: Trained, timeline: Timeline, instances: Instances
    ) -> dict[str, Floats]:
        with self.stage("measure test windows"):
            values = trained.encoder.measures.values(timeline, instances)
        with self.stage("score"):
            return trained.scores(values)

    def _blend(self, scores: Mapping[str, Floats]) -> Floats:
        return blend({name: scores[name] for name in self.terms.committee.parallel})

    def calibrate(
        self, strategy: str, timeline: Timeline, moment: int, prior: Calibration
    ) -> Calibration:
        """Fit probabilities to the last finished windows, out of time and as known at `moment`."""
        done = [window for window in self.windows if self._finished(window, moment)]
        pooled, labels = [], []
        for window in done[-_CALIBRATED_ON:]:
            found = self._labels(window, timeline)
            pooled.append(window.by_strategy[strategy][1]["blend"][found >= 0])
            labels.append(found[found >= 0])
        if not pooled or not (np.concatenate(labels) == 1).any():
            return prior
        scores = np.concatenate(pooled)
        # A failure makes as many positives as instances fit into a horizon: together one evidence.
        recipe = self.terms.recipe
        evidence = np.full(len(scores), min(1.0, recipe.step / recipe.horizon))
        return fit_calibration(scores, np.concatenate(labels), start=prior, weights=evidence)
