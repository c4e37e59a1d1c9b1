"""The parameters that decide when a machine is reported as faulty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array
from forewarn.models.detection.machine_baseline import BaselineParams
from forewarn.models.detection.pairwise_distances import Distance

__all__ = ["CONFIDENT_SCORE", "CONTINUITY_SHARE", "DetectionRules", "paused_windows"]

Mode = Literal["forewarn", "minder", "peers"]

CONTINUITY_SHARE = 0.9  # share of the samples of a continuity
CONFIDENT_SCORE = 2.0  # times the threshold: below it the other metrics are examined too

_PAUSE_ACTIVITY_SHARE = 0.5  # share of the usual activity below which the whole task is paused


@dataclass(frozen=True, slots=True)
class DetectionRules:
    """When a machine is reported as faulty.

    Attributes
    ----------
    window : int
        Samples per window.
    continuity : int
        Samples from the first to the last deviating one; windows in mode `minder`.
    block : int
        Windows per block of the machine baseline.
    mode : {"forewarn", "minder", "peers"}
        `minder` follows the paper exactly; `peers` is the simplest baseline, for studies.
    distance : {"euclidean", "manhattan", "chebyshev"}
        Distance used in mode `minder`.
    own_past : bool
        Tolerate deviations that a machine has always had (mode `forewarn`).
    period : int
        Samples of the job's rhythm; 0 without one.
    """

    window: int = 8
    continuity: int = 240
    block: int = 60
    mode: Mode = "forewarn"
    distance: Distance = "euclidean"
    own_past: bool = True
    period: int = 0

    def with_period(self, period: int) -> DetectionRules:
        """Return the rules for a job with a rhythm: windows are whole periods.

        Within a step, machines differ at some moments only, and the rest of the step would break
        off every deviation.
        """
        return replace(self, window=period, period=period)

    @property
    def period_range(self) -> tuple[int, int]:
        """Shortest and longest rhythm that matters: longer than a window, not a continuity."""
        return self.window + 1, self.continuity // 2

    @property
    def stop_strength(self) -> tuple[bool, float]:
        """Strength at which no further metric is examined; `minder` stops at the first finding."""
        return (False, 0.0) if self.mode == "minder" else (True, CONFIDENT_SCORE)

    @property
    def continuity_share(self) -> float:
        """Share of a continuity that has to exceed the threshold."""
        return 1.0 if self.mode == "minder" else CONTINUITY_SHARE

    @property
    def baseline(self) -> BaselineParams:
        """Baseline parameters: the baseline ends one continuity and a guard gap earlier."""
        return BaselineParams(self.block, -(-(self.continuity + self.window) // self.block) + 1)

    @property
    def baseline_window(self) -> int:
        """Samples per window of the baseline: at most half a block, or one period.

        A short excursion raises all windows that touch it. Longer windows would carry it into
        several blocks, and a machine that is back to normal would differ from its baseline.
        """
        return self.period or min(self.window, max(self.block // 2, 1))

    @property
    def frozen_ticks(self) -> int:
        """Ticks of one value after which a sensor is frozen, unless healthy sensors do the same."""
        return max(self.continuity // 2, 2 * self.window)

    @property
    def max_sample_ticks(self) -> int:
        """Largest number of ticks between two samples of a usable metric.

        A continuity needs at least four samples, so that one lost sample does not decide it.
        """
        return max(self.continuity // 4, 1)

    @property
    def recovery_samples(self) -> int:
        """Samples below the threshold that end a deviation."""
        return max(round((1.0 - self.continuity_share) * self.continuity / 2), 1)


def paused_windows(series: Float32Array | None, n_ticks: int, rules: DetectionRules) -> BoolArray:
    """Tell in which windows the whole task was nearly inactive.

    Half of the machines are below half of their usual activity, for longer than the part of a
    continuity that need not pass; the steps of a training loop are shorter, or their period is
    known. A pause as long as a continuity is not skipped: a hanging task has to be detected.

    Parameters
    ----------
    series : ndarray of shape (n_machines, n_ticks) or None
        The activity metric; without it no window is a pause.
    n_ticks : int
    rules : DetectionRules

    Returns
    -------
    ndarray of shape (n_windows,), bool
    """
    n_windows = max(n_ticks - rules.window + 1, 0)
    none = np.zeros(n_windows, dtype=bool)
    if series is None or not n_windows:
        return none
    sent = np.isfinite(series)
    seen = sent.any(axis=0)
    activity = np.full(n_ticks, np.inf)
    activity[seen] = np.nanmedian(np.where(sent, series, np.nan)[:, seen], axis=0)
    median = float(np.median(activity[seen])) if seen.any() else 0.0
    if not median > 0:
        return none
    low = activity < _PAUSE_ACTIVITY_SHARE * median
    tolerated = max(round((1.0 - CONTINUITY_SHARE) * rules.continuity), rules.period)
    pause = _in_long_runs(low, tolerated) & ~_in_long_runs(low, rules.continuity)
    touched = np.lib.stride_tricks.sliding_window_view(pause, rules.window)
    return np.asarray(touched.any(axis=1), dtype=bool)


def _in_long_runs(flags: BoolArray, longest: int) -> BoolArray:
    """Tell which entries lie in a run of at least `longest` true values."""
    out = np.zeros(len(flags), dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        out[begin:end] = end - begin >= longest
    return out
