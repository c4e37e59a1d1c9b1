"""`flight/`: dumps of PyTorch's flight recorder, one a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.diagnosis.operations import Operations, join_dumps
from forewarn.features.diagnosis.ranks import MOST_RANKS, Ranks, rank_list
from forewarn.features.diagnosis.recorder_dump import RecorderDump
from forewarn.models.diagnosis.collective_probe import collective_probe
from forewarn.models.diagnosis.disagreeing_clocks import disagreeing_ranks
from forewarn.models.diagnosis.lateness import measure_lateness
from forewarn.models.diagnosis.slow_rank import slow_finding
from forewarn.models.diagnosis.stalls import find_stalls
from forewarn.models.diagnosis.wait_graph import wait_finding
from forewarn.pipelines.diagnosis.dump_reading import FlightError, read_dumps
from forewarn.pipelines.diagnosis.job_folder import JobFolder
from forewarn.pipelines.diagnosis.part import Case, Judged
from forewarn.pipelines.storage.regular_files import require_regular

__all__ = ["FlightPart", "read_flight"]

_RANK = re.compile(r"(?:.*?[^0-9])?([0-9]{1,6})(?:\.[A-Za-z]+)?", re.DOTALL)
_LARGEST = 2**30  # bytes of a dump; one of 2,000 entries has 1 MB


@dataclass(frozen=True, slots=True)
class FlightPart:
    """The operations of all ranks.

    Attributes
    ----------
    operations : Operations
    broken : frozenset of int
        Ranks whose dump cannot be used.
    notes : tuple of str
        Why, a line each, and what else was left out.
    """

    operations: Operations
    broken: frozenset[int]
    notes: tuple[str, ...]

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with a dump, and those that a dump lists as members of a group."""
        operations = self.operations
        listed = (operations.members[group] for group in operations.described)
        return operations.ranks | self.broken | {rank for ranks in listed for rank in ranks}

    @property
    def last(self) -> int | None:
        """Last time in any entry."""
        return self.operations.last

    def judge(self, case: Case) -> Judged:
        """Build the wait graph, measure lateness, and say whether operations end."""
        operations = self.operations.until(case.at)
        probe = collective_probe(operations, case.at)
        waits = wait_finding(find_stalls(operations, case.ranks))
        unclear = disagreeing_ranks(operations)
        late = slow_finding(measure_lateness(operations.without(unclear)), case.ranks)
        findings = tuple(finding for finding in (waits, late) if finding is not None)
        return Judged(probe, findings, blind=(*self.notes, *_clock_note(unclear)))


def _clock_note(unclear: frozenset[int]) -> tuple[str, ...]:
    if not unclear:
        return ()
    return (f"flight: clocks disagree, the lateness of {rank_list(sorted(unclear))} is unknown",)


def read_flight(folder: JobFolder, _: Ranks) -> FlightPart | None:
    """Read all dumps of a job; None if there is none.

    Raises
    ------
    FlightError
        If a dump is a pickle that holds more than plain values, or no regular file.
    """
    path = folder.part("flight")
    files = [] if path is None else list(_dump_files(path))
    if not files:
        return None
    dumps, broken, notes = dict[int, RecorderDump](), set[int](), list[str]()
    twice = dict[int, None]()
    for (rank, file), result in zip(files, read_dumps([file for _, file in files]), strict=True):
        if isinstance(result, str):
            broken.add(rank)
            notes.append(f"flight: {file.name} {result}")
        elif rank in dumps:
            twice[rank] = None
            dumps[rank] = max(dumps[rank], result, key=_end)
        else:
            dumps[rank] = result
    if twice:
        notes.append(f"flight: two dumps of {rank_list(list(twice))}, the later one counts")
    return FlightPart(join_dumps(dumps), frozenset(broken - dumps.keys()), tuple(notes))


def _end(dump: RecorderDump) -> int:
    return int(dump.entries["created"].max(initial=0))


def _dump_files(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the dumps by rank: the last number of a file's name is its rank."""
    if not folder.is_dir():
        raise FlightError(f"{folder}: is no folder, expected one of dumps.")
    for file in sorted(folder.iterdir()):
        match = _RANK.fullmatch(file.name)
        if file.name.startswith((".", "_")) or match is None:
            continue
        require_regular(file, FlightError)
        if file.stat().st_size > _LARGEST:
            raise FlightError(f"{file}: has over {_LARGEST} bytes, expected a dump.")
        if int(match[1]) < MOST_RANKS:
            yield int(match[1]), file
