"""A job's folder, loaded once and evaluated as of any number of times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.diagnosis.unseen_outputs import UnseenOutput, describe_unseen
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.models.diagnosis.verdict.progress_seen import SeenParts, unknown_without_progress
from forewarn.models.diagnosis.verdict_fusion import fuse_findings
from forewarn.pipelines.diagnosis.monitors.monitor_parts import (
    MONITOR_READERS,
    USED_BY_MONITORS,
    Monitor,
    monitored_machines,
)
from forewarn.pipelines.diagnosis.parts.exits_part import read_exits
from forewarn.pipelines.diagnosis.parts.flight_part import FlightPart, read_flight
from forewarn.pipelines.diagnosis.parts.job_folder import PARTS, JobFolder, JobFolderError
from forewarn.pipelines.diagnosis.parts.job_part import UNKNOWN_TIME, JobSnapshot, Part, PartResult
from forewarn.pipelines.diagnosis.parts.kernel_part import read_kernel
from forewarn.pipelines.diagnosis.parts.logs_part import LogsPart, read_logs
from forewarn.pipelines.diagnosis.parts.metrics_part import read_metrics
from forewarn.pipelines.diagnosis.parts.profiles_part import read_profiles
from forewarn.pipelines.diagnosis.parts.stacks_part import StacksPart, read_stacks
from forewarn.pipelines.diagnosis.site_context import SiteContext

__all__ = ["LoadedJob", "read_job"]

# Other parts that a part uses; all others are evaluated independently.
_USED_PARTS = {
    "exits": ("logs", "events"),
    "flight": ("logs",),
    **USED_BY_MONITORS,
    "logs": ("exits", "events"),
    "metrics": ("kernel",),
    "kernel": ("metrics",),
}

_ENDED_PARTS = {"exits", "flight", "logs"}  # their last time is not that of the observation
_MAX_GAP_RATIO = 2  # more ranks than this many times those that are mentioned are not assumed

# Parts whose files may lie outside their folder.
_ANYWHERE = ("logs", "flight", "stacks", *MONITOR_READERS)
_FilesPart = LogsPart | FlightPart | StacksPart | Monitor
_Reader = Callable[[JobFolder, Ranks], Part | None]  # None if the part is absent or empty

_READERS: Mapping[str, _Reader] = {
    "exits": read_exits,
    "flight": read_flight,
    "stacks": read_stacks,
    "metrics": read_metrics,
    "kernel": read_kernel,
    "profiles": read_profiles,
    **MONITOR_READERS,
}


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """Contents of a job's folder and the site's further sources.

    Results of a part are cached per time, because they rarely depend on which other parts exist.

    Attributes
    ----------
    folder : JobFolder
    listed : Ranks
        Ranks of `ranks.csv`; empty without it.
    parts, external : mapping of str to Part
        Parts of the folder; and `events` and `at_risk`.
    unseen : tuple of UnseenOutput
        Output that was not collected.
    """

    folder: JobFolder
    listed: Ranks
    parts: Mapping[str, Part]
    external: Mapping[str, Part]
    unseen: tuple[UnseenOutput, ...] = ()
    _judged: dict[tuple[object, ...], PartResult] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> tuple[FileReading, ...]:
        """How each log, dump and file of stacks was understood."""
        readings: dict[str, FileReading] = {}
        for part in self.parts.values():
            for file in part.files if isinstance(part, _FilesPart) else ():
                if file.read_as is not None or file.name not in readings:
                    readings[file.name] = file
        return tuple(readings.values())

    def without(self, names: Collection[str]) -> LoadedJob:
        """Return the job as loaded from a folder that lacks some parts."""
        parts = {name: part for name, part in self.parts.items() if name not in names}
        return replace(self, parts=parts, _judged=self._judged if self.listed.listed else {})

    def judge(self, at: int | None = None) -> tuple[JobSnapshot, Diagnosis]:
        """Return the verdict on the job.

        Parameters
        ----------
        at : int, optional
            Time of the verdict in nanoseconds since 1970 UTC; later data is ignored. The default is
            the latest time in any part.

        Raises
        ------
        JobFolderError
            If a part mentions a rank that is not in `ranks.csv`.
        """
        ranks = _all_ranks(self.folder, self.listed, self.parts)
        moment = _moment(self.parts, at)
        timed = [name for name, part in self.parts.items() if part.last is not None]
        is_at_least = at is None and timed == ["flight"]
        is_dated = at is not None or not _ENDED_PARTS.issuperset(timed)
        parts = {**self.parts, **self.external}
        unseen = tuple(output for output in self.unseen if output.rank in ranks.table)
        snapshot = JobSnapshot(ranks, moment, parts, is_at_least, unseen)
        judged = {
            name: self._judgement(name, part, snapshot) for name, part in snapshot.parts.items()
        }
        verdict = _fuse_parts(self.folder, snapshot, judged)
        findings = [finding for result in judged.values() for finding in result.findings]
        seen = SeenParts(
            is_progressing=any(result.is_progressing for result in judged.values()),
            unknown_error=next((e for r in judged.values() if (e := r.unknown_error)), None),
            known_error=next((r.known_error for r in judged.values() if r.known_error), None),
            has_logs="logs" in snapshot.parts,
            has_dumps="flight" in snapshot.parts,
            has_status=not snapshot.parts.keys().isdisjoint(("ras", "xpu_timer")),
            is_dated=is_dated,
        )
        verdict = unknown_without_progress(verdict, findings, seen, moment)
        restarts = (result.restart for result in judged.values())
        restart = next((point for point in restarts if point is not None), None)
        return snapshot, replace(verdict, restart=restart)

    def _judgement(self, name: str, part: Part, snapshot: JobSnapshot) -> PartResult:
        heard = tuple(other in snapshot.parts for other in _USED_PARTS.get(name, ()))
        key = name, snapshot.at, snapshot.is_at_least, heard
        if key not in self._judged:
            self._judged[key] = part.judge(snapshot)
        return self._judged[key]


def read_job(job: Path, site: SiteContext | None = None) -> LoadedJob:
    """Read the parts of a job's folder.

    Parameters
    ----------
    job : Path
    site : SiteContext, optional
        Empty by default.

    Raises
    ------
    JobFolderError
        If the folder contains no part.
    InputError
        If a part is unusable and cannot be skipped.
    """
    site = SiteContext() if site is None else site
    with JobFolder.open(job, site.patterns) as folder:
        listed = folder.ranks()
        parts = dict(_read(folder, listed, site.zone))
        return LoadedJob(folder, listed, parts, dict(site.parts()), folder.unseen())


def _read(folder: JobFolder, listed: Ranks, zone: dt.tzinfo | None) -> Iterator[tuple[str, Part]]:
    """Yield the parts; logs come last, because the others tell the zone of their times."""
    times: list[int] = []
    for name, read in _READERS.items():
        is_present = name in _ANYWHERE or folder.part(name) is not None
        part = read(folder, listed) if is_present else None
        if part is not None:
            times += [part.last] if part.last is not None and name in _ENDED_PARTS else []
            yield name, part
    logs = read_logs(folder, listed, zone, times)
    if logs is not None:
        yield "logs", logs


def _all_ranks(folder: JobFolder, listed: Ranks, parts: Mapping[str, Part]) -> Ranks:
    """Return the ranks of the job.

    Raises
    ------
    JobFolderError
        If a part mentions a rank that `ranks.csv` does not list.
    """
    if not listed.listed:
        logs = parts.get("logs")
        machines = monitored_machines(parts)
        machines |= logs.machines if isinstance(logs, LogsPart) else {}
        numbers = {n for part in parts.values() for n in part.ranks} | machines.keys()
        world = logs.world if isinstance(logs, LogsPart) else None
        return listed.mentioned(_without_gaps(numbers, world), machines)
    for name, part in parts.items():
        unknown = part.ranks - listed.table.keys()
        if unknown:
            raise JobFolderError(
                f"{folder.path / PARTS[name]}: mentions rank {min(unknown)}, expected one of the "
                f"{len(listed.table)} ranks of {folder.path / PARTS['ranks']}."
            )
    return listed


def _without_gaps(numbers: Collection[int], world: int | None) -> Collection[int]:
    """Return ranks with those in between that nothing mentions: they are silent, not absent."""
    size = max(numbers, default=-1) + 1 if world is None else world
    return range(size) if numbers and size <= _MAX_GAP_RATIO * len(numbers) else numbers


def _moment(parts: Mapping[str, Part], at: int | None) -> int:
    if at is not None:
        return at
    times = (part.last for part in parts.values())
    return max((time for time in times if time is not None), default=UNKNOWN_TIME)


def _fuse_parts(
    folder: JobFolder, snapshot: JobSnapshot, judged: Mapping[str, PartResult]
) -> Diagnosis:
    return fuse_findings(
        [finding for result in judged.values() for finding in result.findings],
        [result.probe for result in judged.values() if result.probe is not None],
        [phase for result in judged.values() for phase in result.phases],
        ranks=snapshot.ranks,
        at=snapshot.at,
        blind=[
            *_absent_parts(folder, judged),
            *(text for r in judged.values() for text in r.blind),
            *(f"logs {text}" for text in describe_unseen(snapshot.unseen)),
        ],
    )


def _absent_parts(folder: JobFolder, judged: Mapping[str, PartResult]) -> list[str]:
    """Return the parts without data."""
    return [name for name in PARTS if name not in judged and not _is_ranks(folder, name)]


def _is_ranks(folder: JobFolder, name: str) -> bool:
    return name == "ranks" and folder.part(name) is not None
