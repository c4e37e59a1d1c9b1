"""`flight/`: dumps of PyTorch's flight recorder, one a rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.diagnosis.operations import Operations, join_dumps
from forewarn.features.diagnosis.ranks import MOST_RANKS, Ranks, rank_list
from forewarn.features.diagnosis.recorder_dump import RecorderDump
from forewarn.models.diagnosis.clocks.clock_bounds import Alignment, align_clocks
from forewarn.models.diagnosis.clocks.disagreeing_clocks import disagreeing_ranks, needs_clocks
from forewarn.models.diagnosis.hang.several_groups import several_groups
from forewarn.models.diagnosis.hang.stalls import find_stalls
from forewarn.models.diagnosis.hang.unseen_waits import unseen_waits
from forewarn.models.diagnosis.hang.wait_graph import wait_finding
from forewarn.models.diagnosis.probes.collective_probe import collective_probe
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.slow.lateness import Lateness, measure_lateness
from forewarn.models.diagnosis.slow.slow_rank import slow_finding
from forewarn.models.diagnosis.verdict.verdict import Finding
from forewarn.pipelines.diagnosis.parts.dump_reading import FlightError, read_dumps
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.logs import LogsPart
from forewarn.pipelines.diagnosis.parts.part import Case, Judged
from forewarn.pipelines.storage.files.regular_files import require_regular

__all__ = ["FlightPart", "read_flight"]

_RANK = re.compile(r"(?:.*?[^0-9])?([0-9]{1,6})(?:\.[A-Za-z]+)?", re.DOTALL)
_HALF = 0.5  # of the ranks: where more clocks disagree, none is believed
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
        logs = case.parts.get("logs")
        ahead = logs.clocks_ahead(case) if isinstance(logs, LogsPart) else {}
        operations = self.operations.by_one_clock(ahead).until(case.at)
        probe = collective_probe(operations, case.at)
        waits = wait_finding(find_stalls(operations, case.ranks))
        late, lateness, clock_notes = _late(operations, case.ranks)
        every = (waits, several_groups(operations), late)
        findings = tuple(finding for finding in every if finding is not None)
        notes = (*self.notes, *clock_notes)
        return Judged(probe, findings, _first_step(lateness.values()), notes)


def _first_step(lateness: Iterable[Lateness]) -> tuple[Phase, ...]:
    """Return that the first step is over, where operations repeat themselves step by step."""
    begins = [int(late.begin[-1]) for late in lateness]
    return (Phase("first step", max(begins), max(begins)),) if begins else ()


def _late(
    operations: Operations, ranks: Ranks
) -> tuple[Finding | None, Mapping[int, Lateness], tuple[str, ...]]:
    """Say who is late of its own, by which figures, and what clocks that disagree leave open."""
    if not needs_clocks(operations):
        lateness = measure_lateness(operations)
        return slow_finding(lateness, ranks), lateness, ()
    alignment = align_clocks(operations, ranks)
    timed = operations if alignment is None else alignment.operations
    unclear = disagreeing_ranks(timed)
    usable = timed.without(unclear)
    lateness = measure_lateness(usable)
    unsure = {} if alignment is None else alignment.unsure
    unseen = unseen_waits(usable, ranks)
    is_trusted = len(unclear) <= _HALF * len(operations.ranks)
    hides_pairs = not usable.entries["is_p2p"].any()
    finding = slow_finding(lateness, ranks, unsure=unsure, unseen=unseen, hides_pairs=hides_pairs)
    notes = tuple(_clock_notes(unclear, alignment))
    return finding if is_trusted else None, lateness, notes


def _clock_notes(unclear: frozenset[int], alignment: Alignment | None) -> Iterator[str]:
    if unclear:
        who = rank_list(sorted(unclear))
        yield f"flight: clocks disagree, the lateness of {who} is unknown"
    if alignment is not None:
        least = 2 * max(alignment.unsure.values(), default=0.0)
        yield (
            f"flight: clocks of machines are {alignment.apart:.3f} s apart, and were compared by "
            f"their collectives; who is late by less than {least:.3f} s is unknown"
        )


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
