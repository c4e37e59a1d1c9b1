"""Ends that are no crash: those on request, and the end of the training as planned."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.crash.rank_exit import RankExit, Symptom
from forewarn.models.diagnosis.verdict.job_verdict import Evidence, JobFinding

__all__ = ["find_planned_end", "find_requested_end"]

_TIME_UNCERTAINTY = 2 * SECOND
_MAX_ERRORS = 3


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


def find_planned_end(symptoms: Sequence[Symptom], ends: Sequence[RankExit]) -> JobFinding | None:
    """Return that the training ended as planned and only its clean-up failed, or None.

    An exit code says that the program itself counts the error as a failure. A rank whose own log
    does not say that its training ended may still wait for others.

    Parameters
    ----------
    symptoms : sequence of Symptom
        Of all files.
    ends : sequence of RankExit
    """
    counted = [symptom for symptom in symptoms if symptom.is_counted]
    if not counted or any(end.exit_code for end in ends) or not all(s.at_exit for s in counted):
        return None
    if any(all(s.role != "completed" for s in end.symptoms) for end in ends if end.has_log):
        return None
    evidence = tuple(Evidence("logs", f"{s.says}: {s.line}", None, s.time) for s in counted)
    cause = f"the training ended as planned; an error followed at exit: {counted[0].line}"
    return JobFinding("none", cause, evidence=evidence[:_MAX_ERRORS], is_completed=True)
