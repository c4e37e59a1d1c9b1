"""What a verdict on a job rests on."""

from __future__ import annotations

import pytest
from tests.models.diagnosis.test_verdict_fusion import verdict

from forewarn.models.diagnosis.verdict.evidence_kinds import evidence_kinds
from forewarn.models.diagnosis.verdict.hardware_evidence import at_risk_finding
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)
from forewarn.pipelines.diagnosis.parts.job_folder import PARTS


def accusing(part: str, rank: int, weight: float) -> JobFinding:
    candidate = CulpritCandidate(rank, f"{part} says so", weight)
    return JobFinding("hang", "", (candidate,), evidence=(Evidence(part, "it is so", rank),))


@pytest.mark.parametrize("part", sorted({*PARTS, "events", "at_risk"} - {"ranks"}))
def test_each_part_has_kind_of_evidence(part: str) -> None:
    assert len(evidence_kinds([accusing(part, 3, STRONG)], ())) == 1


def test_only_evidence_against_culprit_counts() -> None:
    other, first = accusing("metrics", 5, MODERATE), accusing("flight", 3, STRONG)
    second = accusing("stacks", 3, MODERATE)
    diagnosis = verdict(other, first, second)
    assert (diagnosis.rank, diagnosis.evidence_from) == (3, ("dump", "stack"))


def test_deciding_list_is_named() -> None:
    listed = at_risk_finding(["m1"])
    assert listed is not None
    diagnosis = verdict(accusing("metrics", 3, MODERATE + MODERATE / 2), listed)
    assert (diagnosis.rank, diagnosis.evidence_from) == (3, ("list", "metrics"))


def test_verdict_without_culprit_names_all_evidence() -> None:
    diagnosis = verdict(accusing("logs", 1, MODERATE), accusing("kernel", 5, MODERATE))
    assert (diagnosis.rank, diagnosis.evidence_from) == (None, ("kernel_log", "log"))
