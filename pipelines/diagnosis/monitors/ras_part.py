"""Part `ras`: answers of NCCL's RAS subsystem, in text or JSON, in files of any name."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forewarn.features.diagnosis.communicators.communicator_state import (
    BrokenStatusError,
    StatusSnapshot,
)
from forewarn.features.diagnosis.communicators.ras_json import parse_ras_json
from forewarn.features.diagnosis.communicators.ras_text import parse_ras_text
from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.features.diagnosis.ranks import MAX_RANKS, Ranks
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.hang.lagging_ranks import are_stuck, find_lags, lag_finding
from forewarn.models.diagnosis.verdict.job_verdict import STRONG, WEAK
from forewarn.pipelines.diagnosis.monitors.report_files import (
    PROGRESS_PARTS,
    read_reports,
    unread_reports,
)
from forewarn.pipelines.diagnosis.parts.flight_part import FlightPart
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.diagnosis.parts.logs_part import LogsPart

__all__ = ["RasPart", "read_ras"]


@dataclass(frozen=True, slots=True)
class RasPart:
    """Answers to all queries, in order.

    Attributes
    ----------
    snapshots : tuple of StatusSnapshot
    files : tuple of FileReading
    ranks : frozenset of int
        Ranks of a job without `ranks.csv`, if an answer tells how many there are.
    """

    snapshots: tuple[StatusSnapshot, ...]
    files: tuple[FileReading, ...]
    ranks: frozenset[int] = frozenset()

    @property
    def last(self) -> None:
        """None: answers have no time, or one without its zone."""
        return

    @property
    def hosts(self) -> dict[int, str]:
        """Hosts by rank, as far as answers tell."""
        return {
            rank: process.host
            for snapshot in self.snapshots
            for process, rank in snapshot.process_ranks().items()
        }

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return who waits for whom in the last answer."""
        notes = tuple(unread_reports("ras", self.files))
        if not self.snapshots:
            return PartResult(blind=notes)
        stuck = [are_stuck(*pair) for pair in zip(self.snapshots, self.snapshots[1:], strict=False)]
        if stuck and stuck[-1] is False:
            return PartResult(blind=notes)  # the job moved: ranks behind are only later
        logs, flight = snapshot.parts.get("logs"), snapshot.parts.get("flight")
        addresses = logs.launched.addresses if isinstance(logs, LogsPart) else {}
        latest = self.snapshots[-1]
        has_dumps = isinstance(flight, FlightPart) and len(flight.operations.entries) > 0
        finding = lag_finding(
            "ras",
            find_lags(latest, snapshot.ranks, addresses),
            snapshot.ranks,
            is_certain=stuck[-1:] == [True],
            is_alone=snapshot.parts.keys().isdisjoint(PROGRESS_PARTS),
            weight=WEAK if has_dumps else STRONG,  # dumps say more
            observed_at=_nanoseconds(latest, logs.zone) if isinstance(logs, LogsPart) else None,
        )
        return PartResult(findings=() if finding is None else (finding,), blind=notes)


def _nanoseconds(snapshot: StatusSnapshot, zone: dt.tzinfo) -> int | None:
    """Return the time of an answer, whose zone is that of the logs."""
    if snapshot.time is None:
        return None
    return int(snapshot.time.replace(tzinfo=zone).timestamp()) * SECOND


def read_ras(folder: JobFolder, ranks: Ranks) -> RasPart | None:
    """Read all answers of a job, or return None if there are none."""
    snapshots, files = list[StatusSnapshot](), list[FileReading]()
    for name, text in read_reports(folder, "NCCL RAS"):
        try:
            answers = _parse(text)
        except BrokenStatusError as error:
            files.append(FileReading(name, None, (str(error),)))
            continue
        snapshots += answers
        files.append(FileReading(name, "status of communicators by NCCL RAS"))
    if not files:
        return None
    size = 0 if ranks.listed else max((s.n_ranks or 0 for s in snapshots), default=0)
    numbers = frozenset(range(min(size, MAX_RANKS)))
    return RasPart(tuple(_in_order(snapshots)), tuple(files), numbers)


def _parse(text: str) -> list[StatusSnapshot]:
    is_json = text.lstrip().removeprefix("OK").lstrip()[:1] == "{"
    return parse_ras_json(text) if is_json or '"communicators"' in text else parse_ras_text(text)


def _in_order(snapshots: Sequence[StatusSnapshot]) -> Iterator[StatusSnapshot]:
    """Yield snapshots by time; those without one as their files are named."""
    is_timed = all(snapshot.time is not None for snapshot in snapshots)
    key = operator.attrgetter("time")
    yield from sorted(snapshots, key=key) if is_timed else snapshots
