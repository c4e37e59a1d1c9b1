"""`forewarn diagnose run`: reads a job's folder and says what is wrong with the job."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.verdict.job_verdict import CulpritCandidate, Diagnosis, Evidence
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot
from forewarn.pipelines.diagnosis.site_context import SiteContext
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["DiagnosedJob", "diagnose"]


@dataclass(frozen=True, slots=True)
class DiagnosedJob:
    """A job and the verdict on it.

    Attributes
    ----------
    job : str
        Its name.
    case : Case
    diagnosis : Diagnosis
    seconds : float
        Reading included.
    """

    job: str
    case: JobSnapshot
    diagnosis: Diagnosis
    seconds: float

    def line(self) -> dict[str, Any]:
        """Return it as the command prints it (formats.md, section 10)."""
        verdict, ranks = self.diagnosis, self.case.ranks
        return {
            "job": self.job,
            "kind": verdict.kind,
            "rank": verdict.rank,
            "machine": verdict.machine,
            "also": [_candidate_row(candidate, ranks) for candidate in verdict.also],
            "since": _format_time(verdict.since),
            "detected_at": _format_time(verdict.detected_at),
            "cause": verdict.cause,
            "probes": {
                probe.name: {
                    "state": probe.state,
                    "since": _format_time(probe.since),
                    "why": probe.why,
                }
                for probe in verdict.probes
            },
            "evidence": [_evidence_row(evidence, ranks) for evidence in verdict.evidence],
            "blind": list(verdict.blind),
            "at": _format_time(self.case.at),
            "seconds": round(self.seconds, 3),
        }


def _format_time(moment: int | None) -> str | None:
    return None if moment is None else format_iso(moment)


def _candidate_row(candidate: CulpritCandidate, ranks: Ranks) -> dict[str, Any]:
    machine = candidate.machine or ranks.machine(candidate.rank)
    named = {"rank": candidate.rank, "machine": machine, "why": candidate.why}
    return named | {"weight": candidate.weight, "since": _format_time(candidate.since)}


def _evidence_row(evidence: Evidence, ranks: Ranks) -> dict[str, Any]:
    return {
        "part": evidence.part,
        "rank": evidence.rank,
        "machine": ranks.machine(evidence.rank),
        "time": _format_time(evidence.time),
        "says": evidence.says,
        **({"details": dict(evidence.details)} if evidence.details else {}),
    }


def diagnose(
    job: Path,
    site: SiteContext | None = None,
    *,
    at: int | None = None,
    without: Collection[str] = (),
) -> DiagnosedJob:
    """Say what is wrong with a job, from its folder and what its site knows.

    Parameters
    ----------
    job : Path
        Folder with the parts (formats.md, section 10).
    site : SiteKnowledge, optional
        Nothing by default.
    at : int, optional
        Nothing later counts, nanoseconds since 1970 UTC; the last time in any part by default.
    without : collection of str
        Parts that are not to be judged.

    Raises
    ------
    JobFolderError
        If the folder holds no part, or no part holds a time and `at` is None.
    InputError
        If a part is broken in a way that cannot be left out.
    """
    started = time.perf_counter()
    reading = read_job(job, site).without(without)
    case, verdict = reading.judge(at)
    return DiagnosedJob(reading.folder.name, case, verdict, time.perf_counter() - started)
