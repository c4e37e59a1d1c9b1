"""Metric and kernel samples of a simulated job, derived from the activities of its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.simulation.jobs.job_timeline import Activity, JobTimeline
from forewarn.evaluation.simulation.jobs.rank_progress import cumulative_activity
from forewarn.features.array_types import Float64Array

__all__ = ["HISTORY_SECONDS", "kernel_samples", "metric_samples"]

_METRICS = (
    *("seconds", "rank", "rdma_tx_bytes", "rdma_rx_bytes", "nvlink_bytes"),
    *("gpu_utilization", "sm_activity"),
)
_KERNEL = (
    *("seconds", "rank", "activity", "d_seconds", "runq_wait_ms", "syscalls"),
    *("cuda_call_ms", "verbs_completions"),
)
HISTORY_SECONDS = 900.0  # seconds covered by both
_INTERVAL = 10.0  # seconds between kernel samples
_LOST_SHARE = 0.01  # share of lost metric samples
# Share of each activity that a rank spends in uninterruptible sleep.
_SLEEPS = {Activity.SLEEP: 1.0, Activity.SAVE: 0.2, Activity.LOAD: 0.02}
_CHECKPOINT_WRITE_SECONDS = 30.0  # seconds in state D of writing a checkpoint of 2 GB
_CALLS = {Activity.LOAD: 400.0, Activity.SAVE: 900.0, Activity.COMPUTE: 60.0, Activity.PAUSE: 20.0}


def _moments(
    timeline: JobTimeline, cadence: float, history: float = HISTORY_SECONDS
) -> Float64Array:
    first = max(0.0, timeline.plan.end - history)
    return np.arange(first, timeline.plan.end, cadence)


def metric_samples(
    timeline: JobTimeline, history: float = HISTORY_SECONDS
) -> Mapping[str, npt.NDArray[Any]]:
    """Return the columns of the part `metrics`: seconds, rank, counters, utilisation, SM activity.

    One in a hundred samples of each rank is lost.

    Parameters
    ----------
    timeline : JobTimeline
    history : float
        How far back from the end the samples reach, seconds.
    """
    plan = timeline.plan
    rng = np.random.default_rng([plan.seed, 19])
    moments = _moments(timeline, plan.cadence, history)
    blocks = [_rank_metrics(timeline, rank, moments, rng) for rank in range(plan.layout.n_ranks)]
    joined = np.concatenate(blocks)
    joined = joined[rng.random(len(joined)) >= _LOST_SHARE]
    return {name: joined[:, column] for column, name in enumerate(_METRICS)}


def _rank_metrics(
    timeline: JobTimeline, rank: int, moments: Float64Array, rng: np.random.Generator
) -> Float64Array:
    before = np.concatenate([[moments[0] - timeline.plan.cadence], moments])
    spent = cumulative_activity(timeline, rank, before)
    shares = np.diff(spent, axis=0)[:, : Activity.RDMA] / timeline.plan.cadence
    computing = shares[:, Activity.COMPUTE] + shares[:, Activity.EVALUATE]
    waiting = shares[:, Activity.WAIT]
    device = shares[:, Activity.DEVICE]
    n = len(moments)
    busy = (computing + waiting + device).clip(0.0, 1.0)
    works = 0.97 if timeline.plan.shows_work else 0.1
    activity = computing * rng.normal(0.75, 0.03, n) + waiting * 0.12 + device * works
    is_alone = len(timeline.plan.skew) == 1  # a job on one machine sends nothing by RDMA
    rdma = spent[1:, Activity.RDMA] * (0.0 if is_alone else 1.0)
    return np.stack(
        [
            moments + timeline.plan.skew[rank // timeline.plan.layout.per_machine],
            np.full(n, float(rank)),
            1e9 + rdma,
            2e9 + rdma * 0.98,
            5e9 + spent[1:, Activity.NVLINK],
            np.round(100 * busy),
            activity.clip(0.0, 1.0),
        ],
        axis=1,
    )


def kernel_samples(
    timeline: JobTimeline, history: float = HISTORY_SECONDS
) -> Mapping[str, npt.NDArray[Any]]:
    """Return the columns of the part `kernel`; the state is the number of an `Activity`.

    Parameters
    ----------
    timeline : JobTimeline
    history : float
        How far back from the end the samples reach, seconds.
    """
    plan = timeline.plan
    rng = np.random.default_rng([plan.seed, 23])
    moments = _moments(timeline, _INTERVAL, history)
    blocks = [
        _rank_kernel_samples(timeline, rank, moments, rng) for rank in range(plan.layout.n_ranks)
    ]
    joined = np.concatenate(blocks)
    return {name: joined[:, column] for column, name in enumerate(_KERNEL)}


def _rank_kernel_samples(
    timeline: JobTimeline, rank: int, moments: Float64Array, rng: np.random.Generator
) -> Float64Array:
    spent = cumulative_activity(timeline, rank, np.concatenate([[moments[0] - _INTERVAL], moments]))
    seconds = np.diff(spent, axis=0)
    n = len(moments)
    runs = (~np.isin(np.argmax(seconds[:, : Activity.RDMA], axis=1), _IDLE_ACTIVITIES)).astype(
        float
    )
    sleeping = sum(share * seconds[:, activity] for activity, share in _SLEEPS.items())
    if timeline.plan.fault == "machine" and timeline.plan.shows_work:
        sleeping = sleeping + seconds[:, Activity.DEVICE]
    if timeline.plan.saves_in_d:
        sleeping = sleeping + (1.0 - _SLEEPS[Activity.SAVE]) * seconds[:, Activity.SAVE]
    queue = runs * rng.lognormal(np.log(4.0), 0.5, n)
    calls = 50.0 + sum(rate * seconds[:, activity] for activity, rate in _CALLS.items())
    calls = runs * calls * rng.lognormal(0.0, 0.1, n)
    if timeline.plan.saves_in_d:
        written = np.diff(np.floor(spent[:, Activity.SAVE] / _CHECKPOINT_WRITE_SECONDS))
        calls = np.where(seconds[:, Activity.SAVE] > _INTERVAL / 2, written, calls)
    if timeline.plan.fault == "machine" and timeline.plan.shows_work:
        calls = np.where(seconds[:, Activity.DEVICE] > 0.9 * _INTERVAL, 0.0, calls)
    if timeline.plan.fault == "slow" and rank == timeline.plan.rank:
        late = moments >= timeline.plan.since
        queue = queue + late * (timeline.plan.cause == "cpu") * 1000 * timeline.plan.share
        calls = calls * np.where(late & (timeline.plan.cause == "calls"), 5.0, 1.0)
    return np.stack(
        [
            moments + timeline.plan.skew[rank // timeline.plan.layout.per_machine],
            np.full(n, float(rank)),
            np.argmax(seconds[:, : Activity.RDMA], axis=1).astype(float),
            np.minimum(sleeping, _INTERVAL),
            queue,
            np.round(calls),
            runs * rng.lognormal(np.log(30.0), 0.3, n),
            np.round(seconds[:, Activity.RDMA] / 1e6),
        ],
        axis=1,
    )


_IDLE_ACTIVITIES = (int(Activity.SLEEP), int(Activity.STOPPED), int(Activity.GONE))
