"""Part `inspector`: records of NCCL's inspector plugin, a file a process, of any name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from forewarn.features.diagnosis.communicators.communicator_state import BrokenStatusError
from forewarn.features.diagnosis.communicators.inspector_records import (
    RankCollectives,
    communicators_of_records,
    parse_inspector,
)
from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.probes.recorded_probe import recorded_probe
from forewarn.models.diagnosis.slow.collective_waits import collective_wait_findings
from forewarn.pipelines.diagnosis.monitors.report_files import read_reports, unread_reports
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult

__all__ = ["InspectorPart", "read_inspector"]

_MAX_TOTAL_BYTES = 2**27  # the latest records; each file has hundreds of MB


@dataclass(frozen=True, slots=True)
class InspectorPart:
    """Records of all processes.

    Attributes
    ----------
    records : tuple of RankCollectives
    files : tuple of FileReading
    ranks : frozenset of int
        Ranks of a job without `ranks.csv`, if a communicator has all of them.
    hosts : mapping of int to str
        Their hosts.
    """

    records: tuple[RankCollectives, ...]
    files: tuple[FileReading, ...]
    ranks: frozenset[int]
    hosts: dict[int, str]

    @property
    def last(self) -> int | None:
        """Time of the last record."""
        return max((int(r.rows[:, 2].max()) * 1000 for r in self.records), default=None)

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return whether collectives end, and which rank the others wait for."""
        records = [cut for record in self.records if len((cut := _until(record, snapshot.at)).rows)]
        probe = None if "flight" in snapshot.parts else recorded_probe(records, snapshot.at)
        if probe is not None and probe.state == "idle" and "logs" not in snapshot.parts:
            probe = None  # the job may have ended
        findings = collective_wait_findings(records, snapshot.ranks)
        return PartResult(
            probe, tuple(findings), blind=tuple(unread_reports("inspector", self.files))
        )


def _until(record: RankCollectives, at: int) -> RankCollectives:
    return replace(record, rows=record.rows[record.rows[:, 2] * 1000 <= at])


def read_inspector(folder: JobFolder, ranks: Ranks) -> InspectorPart | None:
    """Read the records of a job, or return None if there are none."""
    records, files = list[RankCollectives](), list[FileReading]()
    for name, text in read_reports(folder, "NCCL inspector", _MAX_TOTAL_BYTES):
        try:
            parsed = parse_inspector(text)
        except BrokenStatusError as error:
            files.append(FileReading(name, None, (str(error),)))
            continue
        records += parsed
        n_collectives = sum(len(record.rows) for record in parsed)
        files.append(FileReading(name, f"NCCL inspector, {n_collectives} collectives"))
    if not files:
        return None
    by_process = {} if ranks.listed else communicators_of_records(records).process_ranks()
    hosts = {rank: process.host for process, rank in by_process.items() if process.host}
    return InspectorPart(tuple(records), tuple(files), frozenset(by_process.values()), hosts)
