"""Exits of the processes of a crashed simulated job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forewarn.evaluation.simulation.jobs.job_plan import TIMEOUT_SECONDS
from forewarn.evaluation.simulation.jobs.job_timeline import JobTimeline

__all__ = ["ProcessExit", "process_exits"]

_KILLED, _TERMINATED, _ABORTED, _FAILED = -9, -15, -6, 1
_GRACE_SECONDS = 5.0  # until a launcher ends the other ranks
_NOTICED_SHARE = 0.3  # of the ranks notice the loss of a peer before that


class ProcessExit(NamedTuple):
    """The end of a process.

    Attributes
    ----------
    rank, code : int
        The code is negative after a signal, as in Python.
    seconds : float
        Since the start of the job.
    """

    rank: int
    code: int
    seconds: float

    @property
    def is_own(self) -> bool:
        """Whether the process ended by itself; the launcher ended the others."""
        return self.code != _TERMINATED


def process_exits(timeline: JobTimeline) -> list[ProcessExit]:
    """Return the exits of all ranks up to the end of the job; empty while it runs."""
    plan = timeline.plan
    if plan.kind != "crash" or not np.isfinite(timeline.stuck_at[plan.rank]):
        return []
    end = _end_by_timeout if plan.fault == "timeout" else _end_by_loss
    exits = [end(timeline, rank) for rank in range(plan.layout.n_ranks)]
    return [each for each in exits if each.seconds <= plan.end]


def _end_by_loss(timeline: JobTimeline, rank: int) -> ProcessExit:
    plan = timeline.plan
    rng = np.random.default_rng([plan.seed, rank, 29])
    at = float(timeline.stuck_at[plan.rank])
    if rank == plan.rank:
        return ProcessExit(rank, _KILLED if plan.fault == "sigkill" else _FAILED, at + 0.2)
    if rng.random() < _NOTICED_SHARE:
        return ProcessExit(rank, _FAILED, at + float(rng.uniform(1.0, 5.0)))
    return ProcessExit(rank, _TERMINATED, at + _GRACE_SECONDS + float(rng.uniform(0.5, 5.0)))


def _end_by_timeout(timeline: JobTimeline, rank: int) -> ProcessExit:
    """Let the ranks that waited longest abort; the launcher ends the others, and the cause."""
    plan = timeline.plan
    rng = np.random.default_rng([plan.seed, rank, 29])
    waits = np.delete(timeline.stuck_at, plan.rank)
    first = float(waits.min()) + TIMEOUT_SECONDS
    own = float(timeline.stuck_at[rank]) + TIMEOUT_SECONDS + float(rng.uniform(0.01, 0.5))
    if rank != plan.rank and own < first + _GRACE_SECONDS:
        return ProcessExit(rank, _FAILED if plan.is_gloo else _ABORTED, own)
    return ProcessExit(rank, _TERMINATED, first + _GRACE_SECONDS + float(rng.uniform(0.5, 5.0)))
