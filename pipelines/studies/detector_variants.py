"""Detectors compared in a study: forewarn's, Minder's, their ablations, and simple baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.records.record_table import DAY
from forewarn.models.detection.denoiser import LstmVae
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Denoiser, Detector, MetricModel
from forewarn.models.detection.detector_file import StoredDetector
from forewarn.models.detection.fitting.denoiser_training import fit_lstm_vae
from forewarn.models.detection.fitting.detector_training import DetectorTerms, with_thresholds
from forewarn.models.detection.fitting.spread_fitting import fit_healthy_spread, measure_task_spread
from forewarn.models.detection.fitting.threshold_fitting import (
    PeakScore,
    peak_scores,
    sample_windows,
)
from forewarn.models.detection.joint_score import JOINT
from forewarn.models.detection.pairwise_distances import Distance
from forewarn.models.detection.threshold import Threshold
from forewarn.models.detection.window_representations import Concatenated, WindowMeans, fit_moments
from forewarn.pipelines.detection.task_metrics import Pull
from forewarn.pipelines.studies.pull_means import PullMeans

__all__ = ["VARIANTS", "DetectorVariants"]

Pulls = Callable[[], Iterator[Pull]]

_EXTRA_METRICS = (
    MetricLimits("rdma_throughput", 0.0, 400.0),
    MetricLimits("memory_usage"),
    MetricLimits("gpu_temperature"),
    MetricLimits("disk_write", 0.0, 4000.0, log=True),
)
_N_FEWER_METRICS = 3
_PEER_THRESHOLD = 5.0  # median deviations
_MAX_UNLABELLED_SHARE = 0.1  # maximum share of tasks with an unlabelled fault
_N_TRAINING_WINDOWS = 40_000
VARIANTS = {
    "forewarn": "the fitted detector",
    "forewarn, denoised": "windows are denoised first, as in the paper",
    "forewarn, no baseline": "permanent deviations are not tolerated",
    "forewarn, no continuity": "one window is enough",
    "forewarn, no joint score": "each metric on its own",
    "forewarn, fewer metrics": "the first three",
    "forewarn, more metrics": "four further metrics of the paper",
    "minder": "the paper's rules: sums of distances, normal score, the same machine for 4 minutes",
    "minder, Manhattan": "another distance",
    "minder, Chebyshev": "another distance",
    "minder, no continuity": "one window is enough",
    "minder, RAW": "raw samples",
    "minder, CON": "denoised metrics concatenated",
    "minder, INT": "one denoiser for all metrics",
    "Mahalanobis": "moments of all metrics in a window, whitened",
    "peers": "median deviations from the median of all, above 5: nothing is fitted",
    "means": "normal score of the mean of a window, metric by metric",
    "pull means": "mean over the pull, minus the median of the group, above twice that of the fit",
}


@dataclass(slots=True)
class DetectorVariants:
    """Creates each variant from a fitted detector, with thresholds for the same false alarm rate.

    Attributes
    ----------
    fitted : Detector
        Result of `detect fit`.
    train : callable
        Opens the pulls that it was fitted to, one after the other.
    per_day : float
        False alarms per task and day.
    seed : int
    refit : bool
        Whether to fit the thresholds of the detector itself again.
    """

    fitted: Detector
    train: Pulls
    per_day: float
    seed: int
    refit: bool = False
    _models: list[MetricModel] = field(default_factory=list, init=False)

    @classmethod
    def from_stored(cls, stored: StoredDetector, train: Pulls, false_alarms: float | None) -> Self:
        """Return the variants of a stored detector, for its own false alarm rate or another one."""
        rate = stored.facts.false_alarms if false_alarms is None else false_alarms
        left_out = stored.facts.left_out

        def healthy() -> Iterator[Pull]:
            return (pull for pull in train() if pull.name not in left_out)

        return cls(stored.detector, healthy, rate, seed=0, refit=false_alarms is not None)

    def make(self, name: str) -> Detector | PullMeans:
        """Return a variant by its name in `VARIANTS`."""
        first, _, what = name.partition(", ")
        if first == "forewarn":
            return self._own_variant(what)
        paper = replace(self.fitted.rules, mode="minder")
        if first == "Mahalanobis":
            return self._together(paper, fit_moments(self._series(), paper.window))
        if first == "peers":
            fixed = Threshold(float(np.log(_PEER_THRESHOLD)), 0.0, 0.0, 0.05)
            plain = [replace(m, denoiser=None, threshold=fixed) for m in self.fitted.metrics]
            return Detector(replace(paper, mode="peers"), plain, self.fitted.activity)
        if first == "pull means":
            limits = tuple(model.limits[0] for model in self.fitted.metrics)
            return PullMeans.fit(self.fitted.rules, limits, (pull.task() for pull in self.train()))
        if first == "means":
            means = WindowMeans(paper.window)
            return self._with(paper, [replace(m, denoiser=means) for m in self.fitted.metrics])
        return self._paper_variant(paper, what)

    def _own_variant(self, what: str) -> Detector:
        rules, metrics = self.fitted.rules, list(self.fitted.metrics)
        if what == "":
            return self._with(rules, metrics) if self.refit else self.fitted
        if what == "no joint score":
            return replace(self.fitted, joint=None)
        if what == "fewer metrics":
            return self._with(rules, metrics[:_N_FEWER_METRICS])
        if what == "more metrics":
            more = [
                MetricModel((model,), None) for model in _EXTRA_METRICS if self._sent(model.name)
            ]
            return self._with(rules, [*metrics, *(self._usual(rules, model) for model in more)])
        if what == "denoised":
            return self._with(rules, [self._usual(rules, model) for model in self._denoised()])
        if what == "no baseline":
            return self._with(replace(rules, own_past=False), metrics)
        return self._with(replace(rules, continuity=1), metrics)

    def _paper_variant(self, rules: DetectionRules, what: str) -> Detector:
        if what == "RAW":
            return self._with(
                rules, [replace(model, denoiser=None) for model in self.fitted.metrics]
            )
        if what == "INT":
            return self._together(rules, self._integrated(rules.window))
        metrics = self._denoised()
        if what in ("Manhattan", "Chebyshev"):
            distance: Distance = "manhattan" if what == "Manhattan" else "chebyshev"
            return self._with(replace(rules, distance=distance), metrics)
        if what == "no continuity":
            return self._with(replace(rules, continuity=1), metrics)
        if what == "CON":
            denoisers = [m.denoiser for m in metrics if isinstance(m.denoiser, LstmVae)]
            return self._together(rules, Concatenated(denoisers))
        return self._with(rules, metrics)

    def _together(self, rules: DetectionRules, denoiser: Denoiser) -> Detector:
        """Return a detector that examines all metrics jointly."""
        limits = tuple(model.limits[0] for model in self.fitted.metrics)
        return self._with(rules, [MetricModel(limits, denoiser)])

    def _with(self, rules: DetectionRules, metrics: Sequence[MetricModel]) -> Detector:
        """Fit a threshold to each metric for its part of the false alarm rate."""
        detector = Detector(rules, (), self.fitted.activity)
        reached: dict[str, dict[str, PeakScore]] = {model.name: {} for model in metrics}
        for pull in self.train():
            peaks = peak_scores(detector, metrics, pull.task(), _pull_days(pull))
            for name, peak in peaks.items():
                reached.setdefault(name, {})[pull.name] = peak
        least = 1 if self.fitted.joint_names else len(reached.get(JOINT, ())) + 1
        terms = DetectorTerms(rules, None, self.per_day, joint_min_tasks=least)
        return with_thresholds(detector, metrics, reached, terms)

    def _usual(self, rules: DetectionRules, model: MetricModel) -> MetricModel:
        detector = Detector(rules, (), self.fitted.activity)
        groups = model.healthy.groups
        shown = (measure_task_spread(detector, model, pull.task()) for pull in self.train())
        known = [spread for spread in shown if spread is not None]
        return replace(
            model, healthy=fit_healthy_spread(known, groups, contamination=_MAX_UNLABELLED_SHARE)
        )

    def _sent(self, metric: str) -> bool:
        """Return whether any task has a metric."""
        return any(pull.series(metric) is not None for pull in self.train())

    def _denoised(self) -> list[MetricModel]:
        """Return the metrics with one denoiser each, as in mode `minder`; fitted once."""
        if not self._models:
            self._models = [self._with_denoiser(model) for model in self.fitted.metrics]
        return self._models

    def _with_denoiser(self, model: MetricModel) -> MetricModel:
        if model.denoiser is not None:
            return model
        windows = self._windows(model.limits, self.fitted.rules.window)
        return replace(model, denoiser=fit_lstm_vae(windows, seed=self.seed)[0])

    def _integrated(self, length: int) -> LstmVae:
        limits = tuple(model.limits[0] for model in self.fitted.metrics)
        denoiser, _ = fit_lstm_vae(self._windows(limits, length), seed=self.seed)
        return denoiser

    def _windows(self, limits: tuple[MetricLimits, ...], length: int) -> Float32Array:
        generator = np.random.default_rng(self.seed)
        parts = [
            sample_windows(
                _scaled_series(pull, limits), length, _N_TRAINING_WINDOWS // 60, generator
            )
            for pull in self.train()
        ]
        return np.concatenate(parts)

    def _series(self) -> list[Float32Array]:
        limits = tuple(model.limits[0] for model in self.fitted.metrics)
        return [_scaled_series(pull, limits)[:, :50, :900] for pull in self.train()]


def _pull_days(pull: Pull) -> float:
    return pull.grid.n_ticks * pull.grid.interval / DAY


def _scaled_series(pull: Pull, limits: Sequence[MetricLimits]) -> Float32Array:
    """Return the scaled series of some metrics, shape (metrics, machines, ticks)."""
    parts = []
    for metric in limits:
        series = pull.series(metric.name)
        shape = (len(pull.grid.machines), pull.grid.n_ticks)
        parts.append(np.full(shape, np.nan) if series is None else metric.scale(series))
    return np.stack(parts).astype(np.float32)
