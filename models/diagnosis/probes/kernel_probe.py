"""Kernel probe: whether a process of the job is permanently blocked."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["kernel_probe"]

_HUNG_TASK_LIMIT = 2 * MINUTE  # default of the kernel's hung task detection


def kernel_probe(blocked: Iterable[JobFinding]) -> Probe | None:
    """Return an idle probe if a rank is stopped, or in one uninterruptible sleep.

    Parameters
    ----------
    blocked : iterable of JobFinding
        Findings on blocked processes.

    Returns
    -------
    Probe or None
        None if no rank is known to be blocked: running processes do not prove progress of the job.
    """
    leaders = [
        finding.candidates[0]
        for finding in blocked
        if finding.is_permanent and finding.candidates and finding.candidates[0].since is not None
    ]
    if not leaders:
        return None
    leader = min(leaders, key=lambda candidate: candidate.since or 0)
    since = leader.since or 0
    return Probe(
        "kernel",
        "idle",
        since,
        f"rank {leader.rank} {leader.why}",
        confirmed_at=since + _HUNG_TASK_LIMIT,
    )
