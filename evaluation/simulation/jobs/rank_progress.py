"""Progress of each rank of a simulated job over time: seconds by activity, and bytes."""

from __future__ import annotations

import numpy as np

from forewarn.evaluation.simulation.jobs.job_timeline import Activity, JobTimeline
from forewarn.features.array_types import Float64Array

__all__ = ["activity_at", "cumulative_activity"]

_SECONDS = [activity for activity in Activity if activity < Activity.RDMA]


def cumulative_activity(timeline: JobTimeline, rank: int, moments: Float64Array) -> Float64Array:
    """Return the cumulative time of a rank in each activity at some times.

    Parameters
    ----------
    timeline : JobTimeline
    rank : int
    moments : ndarray of shape (n,)
        Seconds, ascending.

    Returns
    -------
    ndarray of shape (n, 13)
        Linear between two marks. A stuck rank continues its current activity.
    """
    marks, sums = timeline.history()
    now, spent = marks[:, rank], sums[:, rank]
    finite = np.isfinite(now)
    now, spent = now[finite], spent[finite]
    stuck = timeline.stuck_at[rank]
    if np.isfinite(stuck):
        later = max(float(moments[-1]), stuck) + 1.0
        final = timeline.spent[rank].copy()
        after = final.copy()
        after[timeline.stuck_in[rank]] += later - stuck
        now = np.concatenate([now, [stuck, later]])
        spent = np.concatenate([spent, [final, after]])
    columns = [np.interp(moments, now, spent[:, column]) for column in range(spent.shape[1])]
    return np.stack(columns, axis=1)


def activity_at(
    timeline: JobTimeline, rank: int, moment: float, rng: np.random.Generator
) -> tuple[Activity, bool]:
    """Return the activity of a rank at a time, and whether the rank is stuck in it.

    If it is not stuck, the activity is drawn by its share of the surrounding two seconds.
    """
    if timeline.stuck_at[rank] <= moment:
        return Activity(int(timeline.stuck_in[rank])), True
    around = cumulative_activity(timeline, rank, np.array([moment - 1.0, moment + 1.0]))
    shares = np.diff(around, axis=0)[0, : len(_SECONDS)].clip(0.0)
    if not shares.sum():
        return Activity.COMPUTE, False
    return _SECONDS[int(rng.choice(len(_SECONDS), p=shares / shares.sum()))], False
