"""Logs and process exits of a simulated job."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from forewarn.evaluation.simulation.jobs.job_timeline import JobTimeline

__all__ = ["exit_rows", "log_lines"]

_MAX_STEP_LINES = 80  # of steps in a log
_KILLED, _TERMINATED, _FAILED = -9, -15, 1


def log_lines(timeline: JobTimeline, rank: int, stamp: Callable[[float], str]) -> str:
    """Return the log of a rank.

    Parameters
    ----------
    timeline : JobTimeline
    rank : int
    stamp : callable
        Formats seconds from the job's start as a timestamp of the clock of the rank's machine.
    """
    plan = timeline.plan
    rows = [(0.0, "INFO starting training, compiling the model")]
    every = max(1, len(timeline.steps) // _MAX_STEP_LINES)
    for number, ends in enumerate(timeline.steps, start=1):
        if np.isfinite(ends[rank]) and (number % every == 0 or number < 3):
            loss = 2.0 + 8.0 / number
            rows.append((float(ends[rank]), f"INFO step {number} loss {loss:.4f} lr 0.0003"))
    if not plan.is_silent:
        for number, (begin, end) in enumerate(timeline.saves, start=1):
            step = number * plan.checkpoint[0]
            if np.isfinite(begin[rank]):
                rows.append((float(begin[rank]), f"INFO saving checkpoint at iteration {step}"))
            if np.isfinite(end[rank]):
                text = f"INFO successfully saved checkpoint from iteration {step}"
                rows.append((float(end[rank]), text))
    rows += _crash_lines(timeline, rank)
    rows.sort(key=lambda row: row[0])
    return "".join(f"[{stamp(time)}] {text}\n" for time, text in rows if time <= plan.end)


def _crash_lines(timeline: JobTimeline, rank: int) -> list[tuple[float, str]]:
    """Return the log lines of a rank when it, or another rank, crashes."""
    plan = timeline.plan
    if plan.kind != "crash":
        return []
    if rank == plan.rank:
        if plan.fault == "sigkill":
            return []
        when = float(timeline.stuck_at[rank])
        return [
            (when, "ERROR Traceback (most recent call last):"),
            (when, "ERROR   File train.py, line 311, in train"),
            (when + 0.001, "ERROR RuntimeError: CUDA error: an illegal memory access"),
        ]
    when, code = _end(timeline, rank)
    if code != _FAILED:
        return []
    text = "ERROR torch.distributed.DistBackendError: NCCL error: remote process exited or there "
    return [(when - 0.05, text + "was a network error. Connection closed by remote peer")]


def _end(timeline: JobTimeline, rank: int) -> tuple[float, int]:
    """Return when a rank of a crashed job ends, and its exit code."""
    plan = timeline.plan
    rng = np.random.default_rng([plan.seed, rank, 29])
    at = float(timeline.stuck_at[plan.rank])
    if rank == plan.rank:
        return at + 0.2, _KILLED if plan.fault == "sigkill" else _FAILED
    notices = rng.random() < 0.3  # before the launcher ends all others
    if notices:
        return at + float(rng.uniform(1.0, 5.0)), _FAILED
    return at + 5.0 + float(rng.uniform(0.5, 5.0)), _TERMINATED


def exit_rows(timeline: JobTimeline) -> list[tuple[int, int, float]]:
    """Return rank, exit code and time of all ranks that ended; empty while the job runs."""
    if timeline.plan.kind != "crash" or not np.isfinite(timeline.stuck_at[timeline.plan.rank]):
        return []
    ends = ((rank, *_end(timeline, rank)) for rank in range(timeline.plan.layout.n_ranks))
    return [(rank, code, when) for rank, when, code in ends if when <= timeline.plan.end]
