"""That steps are made, by metrics alone: a job that tells of no step is not compiling for good."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.models.diagnosis.probes.metrics_probe import traffic
from forewarn.models.diagnosis.probes.phases import Phase

__all__ = ["work_phases"]

_MINUTE = 60 * 10**9
_LASTS = 3  # minutes of work, one after another
_BUSY = 50.0  # % of GPU utilisation
_BACKGROUND = 1e-3  # of the usual rate: a link that is kept alive moves no gradients
_MOST = 0.5  # of the ranks


def work_phases(samples: RankSamples, n_ranks: int) -> list[Phase]:
    """Return moments by which steps had been made: 3 minutes of work had passed.

    In each of them most ranks moved bytes between each other while most GPUs were busy. To load
    data moves bytes and leaves GPUs idle, to compile moves none, and to tune kernels keeps a GPU
    busy and its links silent.

    Parameters
    ----------
    samples : RankSamples
        Channels as for `metrics_probe`.
    n_ranks : int
        Of the job.
    """
    if "gpu_utilization" not in samples.values or not len(samples.rank):
        return []
    rates, _ = traffic(samples)
    rate, busy = rates.values["rate"], samples.values["gpu_utilization"] >= _BUSY
    least = _BACKGROUND * np.quantile(rate[rate > 0], 0.9) if (rate > 0).any() else np.inf
    moving = _minutes(rates, rate > least, n_ranks)
    working = np.intersect1d(moving, _minutes(samples, busy, n_ranks))
    runs = np.split(working, np.flatnonzero(np.diff(working) != 1) + 1)
    ends = [int(run[_LASTS - 1] + 1) * _MINUTE for run in runs if len(run) >= _LASTS]
    return [Phase("first step", end, end) for end in ends]


def _minutes(
    samples: RankSamples, chosen: npt.NDArray[np.bool_], n_ranks: int
) -> npt.NDArray[np.int64]:
    """Return the minutes since 1970 in which most ranks have a sample that is chosen."""
    spans = (samples.time[chosen] - 1) // _MINUTE  # a sample tells of what was before it
    width = int(samples.rank.max(initial=0)) + 1
    pairs = np.unique(spans * width + samples.rank[chosen])
    minutes, counts = np.unique(pairs // width, return_counts=True)
    return minutes[counts > _MOST * n_ranks]
