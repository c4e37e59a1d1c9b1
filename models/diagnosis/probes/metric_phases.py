"""Training steps inferred from metrics: they end the first step of a job that logs no steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.probes.metrics_probe import inter_rank_traffic
from forewarn.models.diagnosis.probes.phases import Phase

__all__ = ["work_phases"]

_MIN_WORK_MINUTES = 3  # consecutive
_MIN_BUSY_UTILIZATION = 50.0
_BACKGROUND_TRAFFIC_RATIO = 1e-3  # of the usual rate; keep-alive traffic is below it
_MAJORITY = 0.5


def work_phases(samples: RankSamples, n_ranks: int) -> list[Phase]:
    """Return times by which steps had been made: the ends of 3 consecutive minutes of work.

    In each of these minutes most ranks exchanged bytes while most GPUs were busy. Loading data
    moves bytes but leaves GPUs idle, compiling moves none, and tuning kernels keeps one GPU busy
    without traffic.

    Parameters
    ----------
    samples : RankSamples
        Channels as for `metrics_probe`.
    n_ranks : int
        Number of ranks of the job.
    """
    if "gpu_utilization" not in samples.values or not len(samples.rank):
        return []
    rates, _ = inter_rank_traffic(samples)
    rate, busy = rates.values["rate"], samples.values["gpu_utilization"] >= _MIN_BUSY_UTILIZATION
    least = (
        _BACKGROUND_TRAFFIC_RATIO * np.quantile(rate[rate > 0], 0.9) if (rate > 0).any() else np.inf
    )
    moving = _majority_minutes(rates, rate > least, n_ranks)
    working = np.intersect1d(moving, _majority_minutes(samples, busy, n_ranks))
    runs = np.split(working, np.flatnonzero(np.diff(working) != 1) + 1)
    ends = [
        int(run[_MIN_WORK_MINUTES - 1] + 1) * MINUTE
        for run in runs
        if len(run) >= _MIN_WORK_MINUTES
    ]
    return [Phase("first step", end, end) for end in ends]


def _majority_minutes(
    samples: RankSamples, chosen: npt.NDArray[np.bool_], n_ranks: int
) -> npt.NDArray[np.int64]:
    """Return the minutes since 1970 in which most ranks have a chosen sample."""
    spans = (samples.time[chosen] - 1) // MINUTE  # a sample covers the time before it
    width = int(samples.rank.max(initial=0)) + 1
    pairs = np.unique(spans * width + samples.rank[chosen])
    minutes, counts = np.unique(pairs // width, return_counts=True)
    return minutes[counts > _MAJORITY * n_ranks]
