"""`forewarn diagnose run`: verdict on a job's folder."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.verdict.job_verdict import CulpritCandidate, Diagnosis, Evidence
from forewarn.models.diagnosis.verdict.next_steps import next_steps
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.diagnosis.parts.job_part import UNKNOWN_TIME, JobSnapshot
from forewarn.pipelines.diagnosis.site_context import SiteContext
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["DiagnosedJob", "diagnose"]


@dataclass(frozen=True, slots=True)
class DiagnosedJob:
    """A job and its verdict.

    Attributes
    ----------
    job : str
        Name of the job.
    snapshot : JobSnapshot
    diagnosis : Diagnosis
    seconds : float
        Run time including reading.
    files : tuple of FileReading
        How each file was understood.
    """

    job: str
    snapshot: JobSnapshot
    diagnosis: Diagnosis
    seconds: float
    files: tuple[FileReading, ...] = ()

    def line(self) -> dict[str, Any]:
        """Return the verdict as the command prints it (docs/formats.md, section 10)."""
        verdict, ranks = self.diagnosis, self.snapshot.ranks
        return {
            "job": self.job,
            "kind": verdict.kind,
            "rank": verdict.rank,
            "machine": verdict.machine,
            "culprits": [_culprit_row(culprit) for culprit in verdict.culprits],
            "also": [_candidate_row(candidate, ranks) for candidate in verdict.also],
            "since": _format_time(verdict.since),
            "detected_at": _format_time(verdict.detected_at),
            "cause": verdict.cause,
            "next": list(next_steps(verdict)),
            "probes": {
                probe.name: {
                    "state": probe.state,
                    "since": _format_time(probe.since),
                    "why": probe.why,
                }
                for probe in verdict.probes
            },
            "evidence": [_evidence_row(evidence, ranks) for evidence in verdict.evidence],
            "evidence_from": list(verdict.evidence_from),
            "machines": sorted({row.machine for row in ranks.table.values() if row.machine}),
            "blind": list(verdict.blind),
            "files": [_file_row(file) for file in self.files],
            "at": _format_time(self.snapshot.at),
            "seconds": round(self.seconds, 3),
        }


def _format_time(moment: int | None) -> str | None:
    return None if moment is None or moment == UNKNOWN_TIME else format_iso(moment)


def _culprit_row(culprit: CulpritCandidate) -> dict[str, Any]:
    return {"rank": culprit.rank, "machine": culprit.machine, "why": culprit.why}


def _file_row(file: FileReading) -> dict[str, Any]:
    return {"path": file.name, "read_as": file.read_as, "why": "; ".join(file.why)}


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
    """Diagnose a job from its folder and the site's further sources.

    Parameters
    ----------
    job : Path
        Folder with the parts (formats.md, section 10).
    site : SiteContext, optional
        Empty by default.
    at : int, optional
        Time of the verdict in nanoseconds since 1970 UTC; later data is ignored. The default is the
        latest time in any part.
    without : collection of str
        Parts to ignore.

    Raises
    ------
    JobFolderError
        If the folder contains no part, or no part has a time and `at` is None.
    InputError
        If a part is unusable and cannot be skipped.
    """
    started = time.perf_counter()
    reading = read_job(job, site).without(without)
    snapshot, verdict = reading.judge(at)
    seconds = time.perf_counter() - started
    return DiagnosedJob(reading.folder.name, snapshot, verdict, seconds, reading.files)
