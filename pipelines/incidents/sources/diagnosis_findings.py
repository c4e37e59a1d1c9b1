"""Findings from verdicts of `forewarn diagnose`: one per culprit, with an end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.sources.diagnosis_verdicts import (
    NODES,
    DiagnosisVerdict,
)
from forewarn.pipelines.incidents.sources.event_findings import early_end
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.policy.policy import Policy
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["diagnosis_ends", "diagnosis_findings"]

_CRASH: Final = "crash"


def diagnosis_findings(verdicts: Iterable[DiagnosisVerdict], policy: Policy) -> list[Finding]:
    """Return a finding per culprit of each verdict; the policy tells how long it is valid."""
    return [
        _finding(verdict, machine, policy) for verdict in verdicts for machine in verdict.culprits
    ]


def diagnosis_ends(
    findings: Iterable[Finding], verdicts: Iterable[DiagnosisVerdict]
) -> list[Finding]:
    """Return the early ends of findings of diagnoses.

    A later verdict on the same job ends a finding if it judged the machine and accuses it no
    longer: it names another culprit, saw the job make progress, or is of the same kind and has no
    culprit. The end of a job and silence prove nothing. What a crash showed, only another verdict
    on the crash takes back: the same machine may work again for some time.

    Parameters
    ----------
    findings : iterable of Finding
        Known ones; those of other sources do not end.
    verdicts : iterable of DiagnosisVerdict
    """
    by_subject: dict[tuple[str, str], list[DiagnosisVerdict]] = defaultdict(list)
    for verdict in sorted(verdicts, key=lambda verdict: verdict.at):
        by_subject[verdict.source, verdict.subject].append(verdict)
    return [
        early_end(replace(finding, valid_until=end)).finding
        for finding in findings
        for end in islice(_ends(finding, by_subject[finding.source, _subject(finding)]), 1)
        if end < finding.valid_until
    ]


def _subject(finding: Finding) -> str:
    return finding.job or NODES


def _ends(finding: Finding, verdicts: Iterable[DiagnosisVerdict]) -> Iterator[Nanoseconds]:
    """Yield the times of the verdicts that take a finding back, the first one first."""
    kind = finding.evidence.get("kind")
    for later in verdicts:
        is_cleared = finding.machine in later.seen - later.culprits.keys()
        decides = later.kind == kind or (later.is_conclusive and kind != _CRASH)
        if later.at > finding.at and is_cleared and decides:
            yield later.at


def _finding(verdict: DiagnosisVerdict, machine: str, policy: Policy) -> Finding:
    at, words = verdict.at, "+".join(verdict.read)
    is_check = verdict.source == NODES
    finding = Finding(
        source=verdict.source,
        id=f"{verdict.subject}/{verdict.kind}/{words}/{format_iso(at)}",
        kind=FindingKind.DIAGNOSIS,
        cause="node check" if is_check else "diagnosis",
        machine=machine,
        at=at,
        valid_until=at,
        job=None if is_check else verdict.subject,
        evidence={**verdict.culprits[machine], "evidence_from": list(verdict.read)},
    )
    return replace(finding, valid_until=Nanoseconds(at + policy.rule(finding).max_age))
