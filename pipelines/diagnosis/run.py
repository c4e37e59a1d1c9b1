"""`forewarn diagnose run`: reads a job's folder and says what is wrong with the job."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.verdict.verdict import Candidate, Diagnosis, Evidence
from forewarn.pipelines.diagnosis.job_reading import read_job
from forewarn.pipelines.diagnosis.parts.part import Case
from forewarn.pipelines.diagnosis.site_knowledge import SiteKnowledge
from forewarn.pipelines.runtime.timestamps import iso

__all__ = ["Diagnosed", "diagnose"]


@dataclass(frozen=True, slots=True)
class Diagnosed:
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
    case: Case
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
            "also": [_candidate(candidate, ranks) for candidate in verdict.also],
            "since": _time(verdict.since),
            "detected_at": _time(verdict.detected_at),
            "cause": verdict.cause,
            "probes": {
                probe.name: {"state": probe.state, "since": _time(probe.since), "why": probe.why}
                for probe in verdict.probes
            },
            "evidence": [_evidence(evidence, ranks) for evidence in verdict.evidence],
            "blind": list(verdict.blind),
            "at": _time(self.case.at),
            "seconds": round(self.seconds, 3),
        }


def _time(moment: int | None) -> str | None:
    return None if moment is None else iso(moment)


def _candidate(candidate: Candidate, ranks: Ranks) -> dict[str, Any]:
    machine = candidate.machine or ranks.machine(candidate.rank)
    named = {"rank": candidate.rank, "machine": machine, "why": candidate.why}
    return named | {"weight": candidate.weight, "since": _time(candidate.since)}


def _evidence(evidence: Evidence, ranks: Ranks) -> dict[str, Any]:
    return {
        "part": evidence.part,
        "rank": evidence.rank,
        "machine": ranks.machine(evidence.rank),
        "time": _time(evidence.time),
        "says": evidence.says,
        **({"details": dict(evidence.details)} if evidence.details else {}),
    }


def diagnose(
    job: Path,
    site: SiteKnowledge | None = None,
    *,
    at: int | None = None,
    without: Collection[str] = (),
) -> Diagnosed:
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
    return Diagnosed(reading.folder.name, case, verdict, time.perf_counter() - started)
