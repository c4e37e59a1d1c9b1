"""The rules by which a machine comes to be named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array
from forewarn.models.detection.machine_baseline import BaselineParams
from forewarn.models.detection.pairwise_distances import Distance

__all__ = ["CONFIDENT_SCORE", "CONTINUITY_SHARE", "DetectionRules", "paused_windows"]

Mode = Literal["forewarn", "minder", "peers"]

CONTINUITY_SHARE = 0.9  # of the windows of a continuity
CONFIDENT_SCORE = 2.0  # times its threshold: a weaker finding waits for what the other metrics show

_PAUSE_ACTIVITY_SHARE = 0.5  # of its usual activity: then the whole task pauses


@dataclass(frozen=True, slots=True)
class DetectionRules:
    """How a machine comes to be named.

    Attributes
    ----------
    window : int
        Samples.
    continuity : int
        Windows for which a machine has to stand out.
    block : int
        Windows whose median is kept of a machine's past.
    mode : {"forewarn", "minder", "peers"}
        The second follows the paper to the letter; the third is the least one can do, for studies.
    distance : {"euclidean", "manhattan", "chebyshev"}
        Of mode `minder`.
    own_past : bool
        Forgive what has always been so (mode `forewarn`).
    """

    window: int = 8
    continuity: int = 240
    block: int = 60
    mode: Mode = "forewarn"
    distance: Distance = "euclidean"
    own_past: bool = True

    @property
    def sure(self) -> tuple[bool, float]:
        """Strength from which on no other metric is looked at; the paper takes the first."""
        return (False, 0.0) if self.mode == "minder" else (True, CONFIDENT_SCORE)

    @property
    def share(self) -> float:
        """Of the windows of a continuity, those that have to stand out."""
        return 1.0 if self.mode == "minder" else CONTINUITY_SHARE

    @property
    def past(self) -> BaselineParams:
        """What is judged is compared with what was before a continuity and a guard gap."""
        return BaselineParams(self.block, -(-self.continuity // self.block) + 1)

    @property
    def still(self) -> int:
        """Ticks of one value from which on a sensor hangs, unless healthy ones do so, too."""
        return max(self.continuity // 2, 2 * self.window)

    @property
    def slowest(self) -> int:
        """Ticks between two samples of a metric that still tells enough in a continuity.

        Four at least have to agree, and what stands for one of them that was lost.
        """
        return max(self.continuity // 4, 1)

    @property
    def quiet(self) -> int:
        """Windows below the threshold that end a stretch above it."""
        return max(round((1.0 - self.share) * self.continuity / 2), 1)


def paused_windows(series: Float32Array | None, n_ticks: int, rules: DetectionRules) -> BoolArray:
    """Tell in which windows the whole task did next to nothing.

    Half of its machines have fallen below half of their usual activity, for longer than a
    continuity forgives anyway, which the steps of a rhythm do not. A pause that lasts as long as a
    continuity is none any more: what hangs has to be found.

    Parameters
    ----------
    series : ndarray of shape (n_machines, n_ticks) or None
        The metric of activity; None for none, and then nothing is a pause.
    n_ticks : int
    rules : Rules

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
    usual = float(np.median(activity[seen])) if seen.any() else 0.0
    if not usual > 0:
        return none
    low = activity < _PAUSE_ACTIVITY_SHARE * usual
    forgiven = round((1.0 - CONTINUITY_SHARE) * rules.continuity)
    pause = _in_long_runs(low, forgiven) & ~_in_long_runs(low, rules.continuity)
    touched = np.lib.stride_tricks.sliding_window_view(pause, rules.window)
    return np.asarray(touched.any(axis=1), dtype=bool)


def _in_long_runs(flags: BoolArray, longest: int) -> BoolArray:
    """Tell which places lie in a run of at least so many."""
    out = np.zeros(len(flags), dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        out[begin:end] = end - begin >= longest
    return out
