"""The answer `unknown`: a job without a fault in sight whose progress was not seen either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis, JobFinding

__all__ = ["SeenParts", "unknown_without_progress"]

_LONG_IDLE = 10 * MINUTE
_PROGRESS_PROBES = ("metrics", "stack", "collective")

_CONTRADICTION = "one part shows a long stall and another progress; their clocks may differ"
_UNDATED = "ranks wait in the dumps, which do not say how long after; use --at"
_STATUS = "ranks wait for others, maybe for a moment or by intent: add logs, or a later status"
_CLOCK_FAULT = Fault(
    "platform",
    "state the zone of the logs with `--timezone`, or correct the clocks of the machines",
)
_TIME_FAULT = Fault(
    "platform",
    "diagnose the job again with `--at TIME`, a time at which it was known to make no progress",
)
_STATUS_FAULT = Fault(
    "platform",
    "add logs, or a second status of NCCL from five minutes later, and diagnose the job again",
)
_NO_STEPS = "no error was found, and no line shows that the job made progress until the end"
_NO_LOGS = "there is no log of a rank that shows progress"


@dataclass(frozen=True, slots=True)
class SeenParts:
    """What the parts of a job's folder show of its progress.

    Attributes
    ----------
    is_progressing : bool
        A part shows that ranks made progress until the end.
    unknown_error : str or None
        A line after the last step that looks like an error and matches no pattern.
    known_error : Fault or None
        An error in the logs that jobs may survive.
    has_logs, has_dumps, has_status : bool
        The status is that of communicators.
    is_dated : bool
        Something other than what an ended job leaves behind tells the time of the observation.
    """

    is_progressing: bool
    unknown_error: str | None
    has_logs: bool
    has_dumps: bool
    is_dated: bool
    has_status: bool = False
    known_error: Fault | None = None


def unknown_without_progress(
    verdict: Diagnosis, findings: Sequence[JobFinding], seen: SeenParts, at: int
) -> Diagnosis:
    """Return `unknown` instead of `none` where nothing shows that the job makes progress.

    Parameters
    ----------
    verdict : Diagnosis
    findings : sequence of JobFinding
        Of all parts, also those that the verdict does not use.
    seen : SeenParts
    at : int
        Time of the verdict, in nanoseconds since 1970 UTC.
    """
    is_explained = verdict.since is not None  # a quiet phase
    if verdict.kind != "none" or is_explained:
        return verdict
    idle = [p.since for p in verdict.probes if p.state == "idle" and p.since is not None]
    if any(at - since > _LONG_IDLE for since in idle):
        cause = verdict.cause or _CONTRADICTION
        return replace(verdict, kind="unknown", cause=cause, fault=_CLOCK_FAULT)
    waiting = [c for f in findings if f.kind == "hang" for c in f.candidates]
    if waiting and not seen.is_dated and (seen.has_dumps or seen.has_status):
        also = verdict.also or tuple(waiting)
        cause, fault = (_UNDATED, _TIME_FAULT) if seen.has_dumps else (_STATUS, _STATUS_FAULT)
        return replace(verdict, kind="unknown", cause=cause, also=also, fault=fault)
    if seen.unknown_error is not None:
        cause = f"the last lines look like an error that no pattern knows: {seen.unknown_error}"
        return replace(verdict, kind="unknown", cause=verdict.cause or cause)
    is_active = any(p.state == "active" and p.name in _PROGRESS_PROBES for p in verdict.probes)
    if seen.is_progressing or is_active:
        return verdict
    if seen.known_error is not None:
        line = seen.known_error.line
        cause = f"a job may survive this error, but no later line shows progress: {line}"
        return replace(
            verdict, kind="unknown", cause=verdict.cause or cause, fault=seen.known_error
        )
    missing = _NO_STEPS if seen.has_logs else _NO_LOGS
    return replace(verdict, kind="unknown", cause=verdict.cause or missing)
