"""Kinds of evidence that a verdict on a job rests on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.models.diagnosis.verdict.job_verdict import CulpritCandidate, JobFinding

__all__ = ["evidence_kinds"]

_KIND_OF_PART: Final[Mapping[str, EvidenceKind]] = {
    "logs": EvidenceKind.LOG,
    "flight": EvidenceKind.DUMP,
    "ras": EvidenceKind.DUMP,
    "inspector": EvidenceKind.METRICS,
    "xpu_timer": EvidenceKind.METRICS,
    "stacks": EvidenceKind.STACK,
    "profiles": EvidenceKind.STACK,
    "metrics": EvidenceKind.METRICS,
    "kernel": EvidenceKind.KERNEL_LOG,
    "events": EvidenceKind.KERNEL_LOG,
    "exits": EvidenceKind.EXIT_CODE,
    "at_risk": EvidenceKind.LIST,
}


def evidence_kinds(
    findings: Iterable[JobFinding], reasons: Collection[CulpritCandidate]
) -> tuple[EvidenceKind, ...]:
    """Return what the findings that accuse a culprit have read.

    Probes do not count: they tell that the job is stalled, not which rank is the cause.

    Parameters
    ----------
    findings : iterable of JobFinding
        Findings that support the verdict.
    reasons : collection of CulpritCandidate
        Candidates that speak for a culprit. If empty, all findings count.
    """
    accusing = [f for f in findings if not reasons or any(c in reasons for c in f.candidates)]
    parts = {item.part for finding in accusing for item in finding.evidence}
    return tuple(sorted({_KIND_OF_PART[part] for part in parts if part in _KIND_OF_PART}))
