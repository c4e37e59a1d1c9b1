"""The probe of the kernel: whether a process that a job cannot do without does not run."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["kernel_probe"]

_HUNG_TASK_LIMIT = 2 * MINUTE  # after which the kernel, too, calls a task hung


def kernel_probe(blocked: Iterable[JobFinding]) -> Probe | None:
    """Say that a rank does not move, since it is stopped or in one sleep in the kernel.

    Parameters
    ----------
    blocked : iterable of Finding
        Whose process does not run.

    Returns
    -------
    Probe or None
        None where nobody is known to be blocked: that a process runs does not say that a job does.
    """
    leaders = [
        finding.candidates[0]
        for finding in blocked
        if finding.cannot_end and finding.candidates and finding.candidates[0].since is not None
    ]
    if not leaders:
        return None
    leader = min(leaders, key=lambda candidate: candidate.since or 0)
    since = leader.since or 0
    return Probe(
        "kernel", "idle", since, f"rank {leader.rank} {leader.why}", sure=since + _HUNG_TASK_LIMIT
    )
