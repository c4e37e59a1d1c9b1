"""Log probe: whether any rank still writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from forewarn.features.time_units import MINUTE, SECOND, SECONDS_PER_MINUTE
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["log_probe", "silence_limit"]

_MIN_GAPS = 5
_MIN_SILENCE = 8 * MINUTE  # PyTorch's time-out is 10 minutes, Megatron's 30 (Baidu 4.1)


def log_probe(
    last_writes: Mapping[int, int | None],
    at: int,
    marks: Sequence[int] = (),
    *,
    unseen: int = 0,
) -> Probe:
    """Return whether no rank has written for 8 minutes, and for longer than usual for this job.

    Parameters
    ----------
    last_writes : mapping of int to (int or None)
        Last write of each rank, not after `at`; None if its log has no times.
    at : int
        Nanoseconds since 1970 UTC.
    marks : sequence of int
        Times at which any rank wrote, in any order. They raise the limit for jobs that write
        rarely.
    unseen : int
        Number of ranks that may write where no one can read it.

    Examples
    --------
    >>> log_probe({0: 0, 1: 60 * 10**9}, 540 * 10**9).why
    'no rank has written for 8 minutes, the last one was rank 1'
    """
    times = {rank: time for rank, time in last_writes.items() if time is not None}
    if not times:
        return Probe("log", "blind", None, "no log of a rank has timestamps")
    rank = max(times, key=lambda number: (times[number], -number))
    silence, limit = at - times[rank], silence_limit([mark for mark in marks if mark <= at])
    if silence < limit:
        if len(times) < len(last_writes):
            missing = len(last_writes) - len(times)
            why = (
                f"rank {rank} wrote {_format_span(silence)} ago; {missing} logs have no timestamps"
            )
            return Probe("log", "active", None, why)
        return Probe("log", "active", None, f"rank {rank} wrote {_format_span(silence)} ago")
    if len(times) < len(last_writes):
        return Probe(
            "log", "blind", None, "some logs have no timestamps, and the others are silent"
        )
    if unseen:
        why = f"the output of {unseen} ranks is not seen, and the other logs are silent"
        return Probe("log", "blind", None, why)
    why = f"no rank has written for {_format_span(silence)}, the last one was rank {rank}"
    return Probe("log", "idle", times[rank], why, confirmed_at=times[rank] + limit)


def silence_limit(marks: Sequence[int]) -> int:
    """Return how long a job may be silent: twice the 90th percentile of its gaps, or 8 minutes."""
    gaps = np.diff(np.unique(np.array(marks, dtype=np.int64)))
    if len(gaps) < _MIN_GAPS:
        return _MIN_SILENCE
    return max(_MIN_SILENCE, 2 * int(np.quantile(gaps, 0.9)))


def _format_span(span: int) -> str:
    seconds = span / SECOND
    return (
        f"{math.floor(seconds)} s"
        if seconds < 120
        else f"{math.floor(seconds / SECONDS_PER_MINUTE)} minutes"
    )
