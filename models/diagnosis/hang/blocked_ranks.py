"""Ranks blocked below the program: in uninterruptible sleep, stopped, or on a dead device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.diagnosis.ranks import Ranks, format_ranks
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.probes.metrics_probe import sm_percent
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
    Kind,
)

__all__ = ["busy_without_completion", "sleep_finding", "sleeping_ranks", "stopped_process_finding"]

_MIN_BLOCKED_SECONDS = 5.0  # state D (Baidu 4.3)
_HUNG_TASK_SECONDS = 120.0  # default of the kernel's hung task detection
_MIN_FULL_SHARE = 0.9  # of an interval in state D: the rank was in it all the time
_MIN_BUSY_SM_PERCENT = 70.0  # Baidu 4.3
_SLEEP_FAULT = Fault(
    "node",
    "check its mounts and its kernel log; a process in state D does not end before they answer",
    needs_repair=True,
)
_STOP_FAULT = Fault("platform", "end the debugger, or continue the process (kill -CONT)")
_MAX_BLOCKED_SHARE = 0.125  # at least one rank; a symptom of many ranks does not single one out


def sleeping_ranks(kernel: RankSamples, at: int) -> dict[int, tuple[int, float]]:
    """Return ranks in uninterruptible sleep for over 5 s, with start time and duration in seconds.

    The sleep must last until the rank's last sample, which must be at most one minute old.

    Parameters
    ----------
    kernel : RankSamples
        Channels `in_d` (1 in state D) and `d_seconds` (time in state D) per interval; not after
        `at`.
    at : int
        Nanoseconds since 1970 UTC.

    Examples
    --------
    >>> time = np.array([0, 4, 8, 12]) * 10**9
    >>> values = {"in_d": np.array([0.0, 1, 1, 1]), "d_seconds": np.array([0.0, 1, 4, 4])}
    >>> sleeping_ranks(RankSamples.from_columns(np.zeros(4, np.int64), time, values), 12 * 10**9)
    {0: (3000000000, 9.0)}
    """
    return _blocked_in_state(kernel, at, "in_d", "d_seconds")


def _blocked_in_state(
    kernel: RankSamples, at: int, state: str, measured: str
) -> dict[int, tuple[int, float]]:
    """Return ranks in a state for over 5 s, with start time and duration in seconds."""
    lasting = {}
    for rank, rows in kernel.by_rank():
        time = kernel.time[rows]
        if time[-1] < at - MINUTE:
            continue
        seconds = _trailing_seconds(time, *(_channel(kernel, n, rows) for n in (state, measured)))
        if seconds > _MIN_BLOCKED_SECONDS:
            lasting[rank] = (int(time[-1]) - round(seconds * SECOND), seconds)
    return lasting


def _channel(samples: RankSamples, name: str, rows: slice) -> npt.NDArray[np.float64]:
    column = samples.values.get(name)
    return np.full(rows.stop - rows.start, np.nan) if column is None else column[rows]


def _trailing_seconds(
    time: npt.NDArray[np.int64], in_d: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]
) -> float:
    """Return the seconds spent in a state without a break up to the last sample."""
    usual = float(np.median(np.diff(time))) / SECOND if len(time) > 1 else 0.0
    spans = np.diff(time, prepend=time[0]) / SECOND
    spans[0] = usual
    total = 0.0
    for row in range(len(time) - 1, -1, -1):
        seconds = float(measured[row])
        if not np.isfinite(seconds):
            seconds = float(spans[row]) if in_d[row] == 1.0 else 0.0
        total += seconds
        if seconds < _MIN_FULL_SHARE * min(spans[row], usual) or not seconds:
            break
    return total


def sleep_finding(kernel: RankSamples, ranks: Ranks, at: int) -> JobFinding | None:
    """Return the ranks in state D; if many machines are affected, the cause is shared.

    A rank that writes a checkpoint may be in state D all the time, one call after another. Only two
    minutes without a returning call are therefore a permanent block.

    Parameters
    ----------
    kernel : RankSamples
        Channels of `sleeping_ranks`, and `syscalls`.
    ranks : Ranks
        Provides the machine of each rank.
    at : int
        Nanoseconds since 1970 UTC.
    """
    says = "is in state D", "is in uninterruptible sleep"
    shared = "are in state D, probably because of shared storage or network"
    sleeping = sleeping_ranks(kernel, at)
    finding = _state_finding(sleeping, kernel, ranks, says, shared, _SLEEP_FAULT)
    if finding is None:
        return None
    unbroken = sleeping_ranks(_unbroken_sleep(kernel), at)
    hung = {rank for rank, (_, seconds) in unbroken.items() if seconds >= _HUNG_TASK_SECONDS}
    return replace(finding, is_permanent=any(c.rank in hung for c in finding.candidates))


def _unbroken_sleep(kernel: RankSamples) -> RankSamples:
    """Return the samples without time in state D where a call returned or the count is unknown."""
    seconds, calls = (kernel.values.get(name) for name in ("d_seconds", "syscalls"))
    is_one_sleep = np.zeros(len(kernel.rank), dtype=bool) if calls is None else calls == 0.0
    measured = np.full(len(kernel.rank), np.nan) if seconds is None else seconds
    alone = {"d_seconds": np.where(is_one_sleep, measured, 0.0)}
    return replace(kernel, values={**kernel.values, **alone})


def stopped_process_finding(kernel: RankSamples, ranks: Ranks, at: int) -> JobFinding | None:
    """Return the ranks whose process is stopped for over 5 s; many of them mean a suspended job.

    The finding applies while the job is stalled, even if sampling has ended. Samples older than a
    minute say nothing about a job that makes progress.

    Parameters
    ----------
    kernel : RankSamples
        Channel `is_stopped` (1 in state T) per interval; not after `at`.
    ranks : Ranks
        Provides the machine of each rank.
    at : int
        Nanoseconds since 1970 UTC.
    """
    says = "is in state T", "is stopped (SIGSTOP or debugger)"
    shared = "are in state T, suspended together"
    last = int(kernel.time.max(initial=0))
    finding = _state_finding(
        _blocked_in_state(kernel, last, "is_stopped", ""),
        kernel,
        ranks,
        says,
        shared,
        _STOP_FAULT,
    )
    if finding is None:
        return None
    kind: Kind = "none" if last >= at - MINUTE else "hang"
    return replace(finding, kind=kind, is_permanent=True, observed_at=last)


def _state_finding(
    blocked: dict[int, tuple[int, float]],
    kernel: RankSamples,
    ranks: Ranks,
    says: tuple[str, str],
    shared: str,
    fault: Fault,
) -> JobFinding | None:
    """Return the ranks in a state, as candidates if they are few."""
    if not blocked:
        return None
    evidence = tuple(
        Evidence("kernel", f"rank {rank} {says[0]} for {seconds:.0f} s", rank, since)
        for rank, (since, seconds) in list(blocked.items())[:8]
    )
    if not _is_minority(list(blocked), kernel, ranks):
        cause = f"{format_ranks(sorted(blocked))} {shared}"
        return JobFinding("none", cause, evidence=evidence)
    candidates = tuple(
        CulpritCandidate(rank, f"{says[1]} for {seconds:.0f} s", MODERATE, since, fault=fault)
        for rank, (since, seconds) in sorted(blocked.items(), key=lambda item: -item[1][1])
    )
    cause = f"rank {candidates[0].rank} {candidates[0].why}"
    return JobFinding("none", cause, candidates, evidence=evidence)


def _is_minority(chosen: list[int], samples: RankSamples, ranks: Ranks) -> bool:
    """Return whether ranks are few, or all on one machine while others run elsewhere."""
    n_ranks = len(np.unique(samples.rank))
    machines = {ranks.machine(rank) for rank in chosen}
    is_machine = len(machines) == 1 and None not in machines and 2 * len(chosen) <= n_ranks
    return is_machine or len(chosen) <= max(1, _MAX_BLOCKED_SHARE * n_ranks)


def busy_without_completion(
    kernel: RankSamples, metrics: RankSamples, ranks: Ranks, at: int
) -> JobFinding | None:
    """Return ranks whose SMs were busy for a minute without a completion: Baidu's root cause (4.3).

    Combined with state D, this is strong evidence. Only a symptom that few ranks show counts.

    Parameters
    ----------
    kernel : RankSamples
        Channels `verbs_completions`, `in_d` and `d_seconds`; not after `at`.
    metrics : RankSamples
        Channel `sm_activity`; not after `at`.
    ranks : Ranks
        Provides the machine of each rank.
    at : int
        Nanoseconds since 1970 UTC.
    """
    activity = sm_percent(metrics).between(at - MINUTE, at)
    working = [
        rank
        for rank, rows in activity.by_rank()
        if np.nanmin(_channel(activity, "sm_activity", rows), initial=np.inf) > _MIN_BUSY_SM_PERCENT
        and np.isfinite(_channel(activity, "sm_activity", rows)).any()
    ]
    recent = kernel.between(at - MINUTE, at)
    completions = recent.medians("verbs_completions")
    stuck = [rank for rank in working if completions.get(rank, 1.0) == 0.0]
    if not stuck or not _is_minority(stuck, metrics, ranks):
        return None
    sleeping = sleeping_ranks(kernel, at)
    candidates = tuple(
        CulpritCandidate(
            rank,
            "its SMs are busy without a verbs completion"
            + (" in state D" if rank in sleeping else ""),
            (STRONG if rank in sleeping else MODERATE) / len(stuck),
        )
        for rank in stuck
    )
    says = "had SM activity over 70 % for a minute without a verbs completion"
    evidence = tuple(Evidence("kernel", f"rank {rank} {says}", rank) for rank in stuck[:8])
    cause = f"rank {stuck[0]} {says}" if len(stuck) == 1 else ""
    return JobFinding("hang", cause, candidates, evidence=evidence)
