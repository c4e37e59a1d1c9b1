"""`forewarn diagnose run`: reads the parts of a job's folder and joins what they say."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.joining import join
from forewarn.models.diagnosis.verdict import Candidate, Diagnosis, Evidence
from forewarn.pipelines.diagnosis.hardware import AtRiskPart, EventsPart
from forewarn.pipelines.diagnosis.job_folder import PARTS, JobFolder, JobFolderError
from forewarn.pipelines.diagnosis.part import Case, Judged, Part
from forewarn.pipelines.diagnosis.parts import READERS
from forewarn.pipelines.runtime.timestamps import iso
from forewarn.pipelines.storage.at_risk_prior import Prior
from forewarn.pipelines.storage.host_events import HostEvents

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
        """Return it as the command prints it (docs/formats.md, section 10)."""
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
    *,
    at: int | None = None,
    events: Path | None = None,
    at_risk: Path | None = None,
    patterns: Sequence[Path] = (),
    without: Collection[str] = (),
) -> Diagnosed:
    """Say what is wrong with a job, from its folder and what its machines reported.

    Parameters
    ----------
    job : Path
        Folder with the parts (docs/formats.md, section 10).
    at : int, optional
        Nothing later counts, nanoseconds since 1970 UTC; the last time in any part by default.
    events : Path, optional
        Folder of records in which `forewarn collect` writes what hosts said.
    at_risk : Path, optional
        Lists of `forewarn score`.
    patterns : sequence of Path
        What a site changes of the knowledge base of log lines.
    without : collection of str
        Parts that are not to be read.

    Raises
    ------
    JobFolderError
        If the folder holds no part, or no part holds a time and `at` is None.
    InputError
        If a part is broken in a way that cannot be left out.
    """
    started = time.perf_counter()
    folder = JobFolder.open(job, patterns)
    listed = folder.ranks()
    parts = dict(_read(folder, listed, without))
    ranks = _all_ranks(folder, listed, parts)
    beside = dict(_beside(events, at_risk))
    case = Case(ranks, _moment(folder, parts, at), parts | beside)
    diagnosis = _judge(folder, case)
    return Diagnosed(folder.name, case, diagnosis, time.perf_counter() - started)


def _read(folder: JobFolder, listed: Ranks, without: Collection[str]) -> Iterator[tuple[str, Part]]:
    for name, read in READERS.items():
        is_read = name not in without and folder.part(name) is not None
        part = read(folder, listed) if is_read else None
        if part is not None:
            yield name, part


def _beside(events: Path | None, at_risk: Path | None) -> Iterator[tuple[str, Part]]:
    """Yield what is known besides the folder."""
    if events is not None:
        yield "events", EventsPart(HostEvents.open(events))
    if at_risk is not None:
        yield "at_risk", AtRiskPart(Prior.open(at_risk))


def _all_ranks(folder: JobFolder, listed: Ranks, parts: dict[str, Part]) -> Ranks:
    """Return the ranks of the job; a part may not mention one that `ranks.csv` does not know.

    Raises
    ------
    JobFolderError
        If one does.
    """
    if not listed.listed:
        return listed.mentioned(rank for part in parts.values() for rank in part.ranks)
    for name, part in parts.items():
        unknown = part.ranks - listed.table.keys()
        if unknown:
            raise JobFolderError(
                f"{folder.path / PARTS[name]}: mentions rank {min(unknown)}, expected one of the "
                f"{len(listed.table)} ranks of {folder.path / PARTS['ranks']}."
            )
    return listed


def _moment(folder: JobFolder, parts: dict[str, Part], at: int | None) -> int:
    times = [part.last for part in parts.values() if part.last is not None]
    if at is not None or times:
        return at if at is not None else max(times)
    raise JobFolderError(f"{folder.path}: no part holds a time, expected one, or --at TIME.")


def _judge(folder: JobFolder, case: Case) -> Diagnosis:
    judged = {name: part.judge(case) for name, part in case.parts.items()}
    return join(
        [finding for result in judged.values() for finding in result.findings],
        [result.probe for result in judged.values() if result.probe is not None],
        [phase for result in judged.values() for phase in result.phases],
        ranks=case.ranks,
        at=case.at,
        blind=[*_absent(folder, judged), *(text for r in judged.values() for text in r.blind)],
    )


def _absent(folder: JobFolder, judged: dict[str, Judged]) -> list[str]:
    """Return the parts of which nothing is known."""
    return [name for name in PARTS if name not in judged and not _is_ranks(folder, name)]


def _is_ranks(folder: JobFolder, name: str) -> bool:
    return name == "ranks" and folder.part(name) is not None
