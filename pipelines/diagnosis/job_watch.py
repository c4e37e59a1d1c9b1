"""`forewarn diagnose watch`: periodic diagnosis of jobs that reports each new verdict once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.diagnosis.parts.job_folder import PARTS, JobFolderError
from forewarn.pipelines.diagnosis.site_context import SiteContext
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["JobWatch"]

Culprits = tuple[tuple[int | None, str | None], ...]  # rank, machine
ReportedVerdict = tuple[str, Culprits, frozenset[str]]  # kind, culprits, all that accused them
_NO_VERDICT: ReportedVerdict = ("none", (), frozenset())


@dataclass(slots=True)
class JobWatch:
    """Last reported verdict of each job, and the state of its folder at that time.

    Parameters
    ----------
    folder : Path
        Folder of a job, or a folder with one subfolder per job.
    site : SiteContext
    state : Path, optional
        File that keeps the reported verdicts across restarts.
    clock : Clock

    Raises
    ------
    JobFolderError
        If `state` cannot be used.
    """

    folder: Path
    site: SiteContext = field(default_factory=SiteContext)
    state: Path | None = None
    clock: Clock = field(default_factory=SystemClock)
    _verdicts: dict[str, ReportedVerdict] = field(default_factory=dict, init=False)
    _looks: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False)
    _problems: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.state is not None and self.state.exists():
            self._verdicts = _stored_verdicts(self.state)

    def run(self, every: float, stop: threading.Event) -> Iterator[dict[str, Any]]:
        """Yield new verdicts until an event is set; jobs that cannot be read are retried.

        Parameters
        ----------
        every : float
            Seconds between polls.
        stop : threading.Event
        """
        while not stop.is_set():
            began = self.clock.now()
            try:
                yield from self.look()
            except JobFolderError as error:
                self._mention("", str(error))
            self.clock.wait(max(every - (self.clock.now() - began) / SECOND, 0.0), stop)

    def look(self) -> Iterator[dict[str, Any]]:
        """Diagnose all jobs once; yield the verdicts that differ from the last reported ones.

        The same verdict from a further kind of evidence is reported, too: it may confirm another
        finding.

        Yields
        ------
        dict
            Verdict as printed by `diagnose run --json`; of kind `none` when a reported problem has
            ended and no part shows a stall.

        Raises
        ------
        JobFolderError
            If the folder does not exist.
        """
        if not self.folder.is_dir():
            raise JobFolderError(
                f"{self.folder}: is not a folder, expected a job folder or a folder of jobs."
            )
        jobs = _job_folders(self.folder)
        for job in jobs:
            look = _folder_fingerprint(job)
            if self._looks.get(job.name) == look:
                continue
            line = self._judged(job)
            if line is None:
                continue
            self._looks[job.name] = look
            reported = self._verdicts.get(job.name, _NO_VERDICT)
            verdict = _combined(reported, line)
            if verdict != reported:
                yield line  # stored only after it was printed
                self._verdicts[job.name] = verdict
                self._store()
        for gone in self._verdicts.keys() - {job.name for job in jobs}:
            del self._verdicts[gone]
            self._looks.pop(gone, None)

    def _judged(self, job: Path) -> dict[str, Any] | None:
        try:
            line = diagnose(job, self.site).line()
        except (InputError, OSError) as error:  # it is being written, or broken
            self._mention(job.name, str(error))
            return None
        self._problems.pop(job.name, None)
        return line

    def _mention(self, job: str, why: str) -> None:
        if self._problems.get(job) != why:
            note(f"{job or 'watch'}: {why}")
        self._problems[job] = why

    def _store(self) -> None:
        if self.state is not None:
            rows = {job: [*row[:2], sorted(row[2])] for job, row in self._verdicts.items()}
            write_atomic(self.state, json.dumps(rows, sort_keys=True).encode())


def _combined(reported: ReportedVerdict, line: dict[str, Any]) -> ReportedVerdict:
    """Return the verdict of a line, with the evidence reported before if it is the same."""
    if line["kind"] == "unknown":  # it may be known later
        return _NO_VERDICT
    if line["kind"] == "none" and _is_stalled(line):  # a job that is being killed moves again
        return reported
    culprits = tuple((row["rank"], row["machine"]) for row in line["culprits"])
    evidence = frozenset(line["evidence_from"]) if culprits else frozenset()
    if reported[:2] == (line["kind"], culprits):
        evidence |= reported[2]
    return line["kind"], culprits, evidence


def _is_stalled(line: dict[str, Any]) -> bool:
    """Return whether a job without a problem has not resumed, as far as some part shows."""
    states = {probe["state"] for probe in line["probes"].values()}
    return line["since"] is not None or "idle" in states


def _job_folders(folder: Path) -> list[Path]:
    """Return the folder itself if it is a job's folder, otherwise its subfolders."""
    shown = [path for path in folder.iterdir() if not path.name.startswith(".")]
    folders = sorted(path for path in shown if path.is_dir())
    has_parts = any((folder / name).exists() for name in PARTS.values())
    return [folder.resolve()] if has_parts or (shown and not folders) else folders


def _folder_fingerprint(job: Path) -> tuple[int, ...]:
    """Return number, total size and latest change of the files of a job."""
    count = size = last = 0
    for path in job.rglob("*"):
        try:
            status = path.stat()
        except OSError:
            continue
        count, size = count + 1, size + status.st_size
        last = max(last, status.st_mtime_ns)
    return count, size, last


def _stored_verdicts(path: Path) -> dict[str, ReportedVerdict]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(job): (str(kind), tuple((rank, name) for rank, name in culprits), frozenset(kinds))
            for job, (kind, culprits, kinds) in stored.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        raise JobFolderError(
            f"{path}: is not a state file, expected one written by `diagnose watch`."
        ) from None
