"""Finished test windows: the basis for choosing the training span and for calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from forewarn.evaluation.prediction.metrics.ranking_metrics import flag_precision
from forewarn.evaluation.prediction.walk_forward.negative_sampling import negative_sampling_mask
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import (
    PooledFlags,
    best_length,
    is_finished,
    steady_length,
)
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.array_types import BoolArray, Float64Array, Int8Array, Int64Array
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.record_table import MACHINE, Records
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.calibration import Calibration, fit_calibration

__all__ = ["N_CALIBRATION_WINDOWS", "FinishedWindows", "span_similarity"]

SampleFlags = tuple[Int64Array, BoolArray]

N_CALIBRATION_WINDOWS = 5
# Chosen among 2, 3, 4 and 6 on simulated fleets; the differences were small.
_SIMILARITY_POWER = 4


def span_similarity(training_span: Nanoseconds, other: Nanoseconds) -> float:
    """Return how similar the scores of models trained on two spans are, as a weight.

    A model with more training failures ranks better and has other score levels. A calibration
    fitted to the scores of models with shorter spans has too small a slope and too high
    probabilities.

    Returns
    -------
    float
        In (0, 1]; 1 for equal spans, 1/16 for half of one.

    Examples
    --------
    >>> span_similarity(Nanoseconds(20), Nanoseconds(10))
    0.0625
    """
    ratio = min(training_span, other) / max(training_span, other)
    return float(ratio**_SIMILARITY_POWER)


@dataclass(frozen=True, slots=True)
class FinishedWindows:
    """Test windows whose labels were all known at a moment, and the others, oldest first.

    Attributes
    ----------
    settings : WalkForwardSettings
    records : Records
        Fleet that defines the numbers of GPUs and machines.
    timeline : Timeline
        As of the moment.
    windows : list of WindowScores
    unfinished : list of WindowScores
        The other windows, of which some labels may be known.
    """

    settings: WalkForwardSettings
    records: Records
    timeline: Timeline
    windows: list[WindowScores]
    unfinished: list[WindowScores]

    @classmethod
    def as_of(
        cls,
        moment: int,
        windows: Sequence[WindowScores],
        settings: WalkForwardSettings,
        records: Records,
        timeline: Timeline,
    ) -> FinishedWindows:
        """Divide windows into those finished at `moment` and the others."""
        every, horizon = settings.every, settings.recipe.horizon
        parts: dict[bool, list[WindowScores]] = {True: [], False: []}
        for window in windows:
            done = is_finished(window.start, moment, every=every, horizon=horizon)
            parts[done].append(window)
        return cls(settings, records, timeline, parts[True], parts[False])

    def choices(self, span_in_use: Nanoseconds | None) -> dict[str, Nanoseconds]:
        """Return the training spans of `variable` and `steady`."""
        # A window without positives cannot compare spans.
        with_failures = (
            (window, labels)
            for window in reversed(self.windows)
            if ((labels := self._labels(window)) == 1).any()
        )
        pooled = list(islice(with_failures, self.settings.select_over))
        precision = self._precisions(*pooled[0]) if pooled else None
        best = best_length(self.settings.training_spans, precision)
        steady = best
        if self.settings.select_over > 1:
            steady = self._steady_span(pooled, span_in_use or self.settings.longest)
        return {Strategy.VARIABLE: best, Strategy.STEADY: steady}

    def calibrate(
        self, strategy: str, prior: Calibration, training_span: Nanoseconds
    ) -> Calibration:
        """Fit probabilities out of time, to all labels of the last windows known at the moment.

        An instance counts once its own horizon is over, even if its window is not finished. The
        newest models, which resemble the scoring model most, therefore contribute as well.

        Parameters
        ----------
        strategy : str
        prior : Calibration
        training_span : Nanoseconds
            Span of the model whose scores will be calibrated.
        """
        windows = (*self.windows[-N_CALIBRATION_WINDOWS:], *self.unfinished)
        parts = [self._evidence(window, strategy, training_span) for window in windows]
        if not any((labels == 1).any() for _, labels, _ in parts):
            return prior
        scores, labels, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return fit_calibration(scores, labels, start=prior, weights=weights)

    def _evidence(
        self, window: WindowScores, strategy: str, training_span: Nanoseconds
    ) -> tuple[Float64Array, Int8Array, Float64Array]:
        """Return scores, labels and weights of the instances of a window with known labels."""
        labels, recipe = self._labels(window), self.settings.recipe
        span, scores = window.by_strategy[strategy]
        known = labels >= 0
        # A failure causes as many positives as instances fit into a horizon. Together they weigh as
        # one.
        weight = min(1.0, recipe.step / recipe.horizon) * span_similarity(span, training_span)
        return scores["blend"][known], labels[known], np.full(int(known.sum()), weight)

    def _labels(self, window: WindowScores) -> Int8Array:
        return window.known_labels(self.timeline, self.settings.recipe)

    def _precisions(
        self, window: WindowScores, labels: Int8Array
    ) -> dict[Nanoseconds, float | None]:
        """Return the precision of each training span on a window's 1:8 set."""
        return {
            span: flag_precision(labels[rows], flags)
            for span, (rows, flags) in self._flags(window, labels).items()
        }

    def _steady_span(
        self, pooled: Sequence[tuple[WindowScores, Int8Array]], span_in_use: Nanoseconds
    ) -> Nanoseconds:
        """Return the training span that was better over several windows, or the one in use."""
        settings, machine = self.settings, self.records.texts.get(MACHINE)
        return steady_length(
            settings.training_spans,
            span_in_use,
            self._pooled_flags(pooled),
            n_machines=len(self.records.serials if machine is None else machine.texts) + 1,
            seed=settings.recipe.seed,
        )

    def _pooled_flags(
        self, pooled: Sequence[tuple[WindowScores, Int8Array]]
    ) -> dict[Nanoseconds, PooledFlags]:
        """Return the flagged instances of each training span that was scored in all windows."""
        spans = [
            span
            for span in self.settings.training_spans
            if pooled and all(span in window.by_span for window, _ in pooled)
        ]
        parts: dict[Nanoseconds, list[PooledFlags]] = {span: [] for span in spans}
        for window, labels in pooled:
            for span, (rows, flags) in self._flags(window, labels).items():
                if span in parts:
                    parts[span].append(self._flagged(window, labels, rows[flags]))
        return {
            span: PooledFlags(
                np.concatenate([part.hit for part in span_parts]),
                np.concatenate([part.machine for part in span_parts]),
            )
            for span, span_parts in parts.items()
        }

    def _flagged(self, window: WindowScores, labels: Int8Array, rows: Int64Array) -> PooledFlags:
        machine = window.instances.gpu if window.machine is None else window.machine
        return PooledFlags(labels[rows] == 1, machine[rows].astype(np.int64))

    def _flags(self, window: WindowScores, labels: Int8Array) -> dict[Nanoseconds, SampleFlags]:
        """Return the rows of a window's 1:8 set, and which of them each training span flags."""
        settings = self.settings
        sampled = negative_sampling_mask(labels, window.hashes, settings.negatives_per_positive)
        rows = np.flatnonzero(sampled)
        order = np.arange(len(rows))
        flags = {}
        for span in window.by_span:
            of_rows = window.scores_at(span, rows)
            span_flags = settings.committee.flags(settings.select_by, of_rows, settings.k, order)
            flags[span] = (rows, span_flags)
        return flags
