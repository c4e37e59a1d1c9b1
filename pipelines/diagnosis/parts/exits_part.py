"""Part `exits.csv`: exit codes of the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forewarn.features.diagnosis.exit_table import RankExitCode, parse_exits
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.crash.rank_exit import RankExit
from forewarn.models.diagnosis.crash.root_cause import find_root_cause
from forewarn.pipelines.diagnosis.parts.hardware_parts import event_symptoms
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder, read_text
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.diagnosis.parts.knowledge_base import load_patterns
from forewarn.pipelines.runtime.timestamps import parse_moment

__all__ = ["ExitsPart", "read_exits"]


@dataclass(frozen=True, slots=True)
class ExitsPart:
    """Exits of the processes of a job.

    Attributes
    ----------
    exits : mapping of int to tuple of RankExitCode
        In time order, by rank.
    """

    exits: Mapping[int, tuple[RankExitCode, ...]]

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks mentioned in the part."""
        return frozenset(self.exits)

    @property
    def last(self) -> int | None:
        """Time of the last exit."""
        times = [end.time for ends in self.exits.values() for end in ends]
        return max((time for time in times if time is not None), default=None)

    def last_exit(self, rank: int, at: int, since: int | None = None) -> RankExitCode | None:
        """Return the last exit of a rank in [`since`, `at`], or None if it is still running."""
        ends = [
            end
            for end in self.exits.get(rank, ())
            if end.time is None or (end.time <= at and (since is None or end.time >= since))
        ]
        return ends[-1] if ends else None

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return the rank that exited first; with logs, the part `logs` does this."""
        is_done = self._all_succeeded(snapshot)
        if "logs" in snapshot.parts:
            return PartResult(is_progressing=is_done)
        ends = []
        for rank in snapshot.ranks.table:
            last = self.last_exit(rank, snapshot.at)
            code, time = (None, None) if last is None else (last.code, last.time)
            ends.append(RankExit(rank, snapshot.ranks.machine(rank), (), code, time))
        finding = find_root_cause(ends, machine_symptoms=event_symptoms(snapshot, load_patterns()))
        findings = () if finding is None else (finding,)
        return PartResult(findings=findings, is_progressing=is_done)

    def _all_succeeded(self, snapshot: JobSnapshot) -> bool:
        ends = [self.last_exit(rank, snapshot.at) for rank in snapshot.ranks.table]
        return all(end is not None and end.code == 0 for end in ends)


def read_exits(folder: JobFolder, ranks: Ranks) -> ExitsPart | None:
    """Read `exits.csv`.

    Raises
    ------
    ExitsError
        If it cannot be used.
    """
    del ranks
    path = folder.part("exits")
    if path is None:
        return None
    return ExitsPart(parse_exits(read_text(path), str(path), parse_moment))
