"""Ends on request: a cancellation, a preemption or a time limit, of which no rank is the cause."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.crash.rank_exit import RankExit, Symptom
from forewarn.models.diagnosis.verdict.job_verdict import Evidence, JobFinding

__all__ = ["find_requested_end"]

_TIME_UNCERTAINTY = 2 * SECOND


def find_requested_end(symptoms: Sequence[Symptom], ends: Sequence[RankExit]) -> JobFinding | None:
    """Return that a job was ended on request, or None.

    A launcher cancels the rest of a job after a rank has failed, so that a request counts only if
    no rank failed before it.

    Parameters
    ----------
    symptoms : sequence of Symptom
        Of all files; those with the role `ended` are requests.
    ends : sequence of RankExit
    """
    requests = [s for s in symptoms if s.role == "ended" and not s.is_survived]
    if not requests:
        return None
    first = min(requests, key=lambda symptom: (symptom.time is None, symptom.time or 0))
    failures = [end.decisive for end in ends if end.has_failed]
    times = [failure.time for failure in failures if failure is not None]
    if first.time is None or None in times:
        if failures:
            return None
    elif any(time < first.time + _TIME_UNCERTAINTY for time in times if time is not None):
        return None
    evidence = (Evidence("logs", f"{first.says}: {first.line}", None, first.time),)
    cause = f"{first.says}: {first.line}; {first.next}"
    return JobFinding("ended", cause, evidence=evidence, fault=first.fault)
