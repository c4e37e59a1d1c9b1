"""Part `flight/`: flight recorder dumps of PyTorch, one per rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.diagnosis.collective_operations import CollectiveOperations, merge_dumps
from forewarn.features.diagnosis.dump_ranks import dump_rank
from forewarn.features.diagnosis.flight_recorder_dump import FlightRecorderDump
from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.features.diagnosis.numbered_names import ranks_of_names
from forewarn.features.diagnosis.ranks import MAX_RANKS, Ranks, format_ranks
from forewarn.models.diagnosis.clocks.clock_alignment import ClockAlignment, align_clocks
from forewarn.models.diagnosis.clocks.clock_skew import find_skewed_ranks, needs_clock_alignment
from forewarn.models.diagnosis.hang.missing_dump_dependencies import missing_dump_dependencies
from forewarn.models.diagnosis.hang.multi_group_waits import multi_group_finding
from forewarn.models.diagnosis.hang.stalls import find_stalls
from forewarn.models.diagnosis.hang.wait_graph import wait_finding
from forewarn.models.diagnosis.probes.collective_probe import collective_probe
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.slow.lateness import Lateness, measure_lateness
from forewarn.models.diagnosis.slow.slow_rank import slow_finding
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.pipelines.diagnosis.parts.captures import captures_elsewhere, name_in_job
from forewarn.pipelines.diagnosis.parts.dump_reader import FlightError, read_dumps
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.diagnosis.parts.logs_part import LogsPart
from forewarn.pipelines.storage.files.regular_files import (
    files_below,
    matching_paths,
    require_regular,
)

__all__ = ["FlightPart", "read_flight"]

_MAX_SKEWED_SHARE = 0.5  # of the ranks; with more skewed clocks, lateness is not reported
_MAX_DUMP_BYTES = 2**30  # a dump of 2,000 entries has 1 MB


@dataclass(frozen=True, slots=True)
class FlightPart:
    """Operations of all ranks.

    Attributes
    ----------
    operations : CollectiveOperations
    broken : frozenset of int
        Ranks with an unusable dump.
    notes : tuple of str
        Reasons, one line each, and what else was skipped.
    files : tuple of FileReading
    """

    operations: CollectiveOperations
    broken: frozenset[int]
    notes: tuple[str, ...]
    files: tuple[FileReading, ...] = ()

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with a dump, and those that a dump lists as members of a group."""
        operations = self.operations
        listed = (operations.members[group] for group in operations.described)
        return operations.ranks | self.broken | {rank for ranks in listed for rank in ranks}

    @property
    def last(self) -> int | None:
        """Latest time in any entry."""
        return self.operations.last

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Build the wait-for graph, measure lateness, and check for unfinished operations."""
        logs = snapshot.parts.get("logs")
        ahead = logs.clocks_ahead(snapshot) if isinstance(logs, LogsPart) else {}
        operations = self.operations.by_one_clock(ahead).until(snapshot.at)
        probe = collective_probe(operations, snapshot.at, is_at_least=snapshot.is_at_least)
        without = sorted(snapshot.ranks.table.keys() - operations.ranks)
        waits = wait_finding(find_stalls(operations, snapshot.ranks), len(without))
        late, lateness, clock_notes = _lateness_finding(operations, snapshot.ranks)
        every = (waits, multi_group_finding(operations), late)
        findings = tuple(finding for finding in every if finding is not None)
        absent = (f"flight: no dump of {format_ranks(without)}",) if without else ()
        notes = (*self.notes, *absent, *clock_notes)
        return PartResult(probe, findings, _first_step_phase(lateness.values()), notes)


def _first_step_phase(lateness: Iterable[Lateness]) -> tuple[Phase, ...]:
    """Return the end of the first step if operations repeat step by step."""
    begins = [int(late.begin[-1]) for late in lateness]
    return (Phase("first step", max(begins), max(begins)),) if begins else ()


def _lateness_finding(
    operations: CollectiveOperations, ranks: Ranks
) -> tuple[JobFinding | None, Mapping[int, Lateness], tuple[str, ...]]:
    """Return the late ranks, the lateness of all ranks, and notes on clock skew."""
    if not needs_clock_alignment(operations):
        lateness = measure_lateness(operations)
        return slow_finding(lateness, ranks), lateness, ()
    alignment = align_clocks(operations, ranks)
    timed = operations if alignment is None else alignment.operations
    unclear = find_skewed_ranks(timed)
    usable = timed.without(unclear)
    lateness = measure_lateness(usable)
    clock_uncertainty = {} if alignment is None else alignment.clock_uncertainty
    possible_waits = missing_dump_dependencies(usable, ranks)
    is_trusted = len(unclear) <= _MAX_SKEWED_SHARE * len(operations.ranks)
    lacks_p2p = not usable.entries["is_p2p"].any()
    finding = slow_finding(
        lateness,
        ranks,
        clock_uncertainty=clock_uncertainty,
        possible_waits=possible_waits,
        lacks_p2p=lacks_p2p,
    )
    notes = tuple(_clock_notes(unclear, alignment))
    return finding if is_trusted else None, lateness, notes


def _clock_notes(unclear: frozenset[int], alignment: ClockAlignment | None) -> Iterator[str]:
    if unclear:
        skewed = format_ranks(sorted(unclear))
        yield f"flight: clock skew, the lateness of {skewed} is unknown"
    if alignment is not None:
        least = 2 * max(alignment.clock_uncertainty.values(), default=0.0)
        yield (
            f"flight: clocks of machines are {alignment.spread:.3f} s apart and were aligned by "
            f"their collectives; lateness below {least:.3f} s cannot be detected"
        )


def read_flight(folder: JobFolder, ranks: Ranks) -> FlightPart | None:
    """Read all dumps of a job, or return None if there are none.

    Raises
    ------
    FlightError
        If a dump is a pickle that contains more than plain values, or not a regular file.
    """
    paths = list(_dump_files(folder))
    if not paths:
        return None
    names = {path: name_in_job(folder, path) for path in paths}
    known = ranks.table.keys() if ranks.listed else None
    by_name = ranks_of_names(list(names.values()), known)
    dumps, files, broken = dict[int, FlightRecorderDump](), list[FileReading](), set[int]()
    twice = dict[int, None]()
    for path, result in zip(paths, read_dumps(paths), strict=True):
        name = names[path]
        numbered = by_name[name]
        if isinstance(result, str):
            broken |= set() if numbered is None else {numbered}
            files.append(FileReading(name, None, (result,)))
            continue
        rank, why = dump_rank(result, numbered)
        if rank is None or rank >= MAX_RANKS:
            files.append(FileReading(name, None, (why,)))
            continue
        files.append(FileReading(name, f"flight recorder dump of rank {rank}", (why,)))
        if rank in dumps:
            twice[rank] = None
        dumps[rank] = max(dumps.get(rank, result), result, key=_last_entry_time)
    notes = [f"flight: {Path(file.name).name} {file.why[0]}" for file in files if not file.read_as]
    if twice:
        notes.append(f"flight: two dumps of {format_ranks(list(twice))}, the later one counts")
    broken -= dumps.keys()
    return FlightPart(merge_dumps(dumps), frozenset(broken), tuple(notes), tuple(files))


def _last_entry_time(dump: FlightRecorderDump) -> int:
    return int(dump.entries["created"].max(initial=0))


def _dump_files(folder: JobFolder) -> Iterator[Path]:
    """Yield the files of `flight/`, whatever they contain, and the dumps elsewhere."""
    path = folder.part("flight")
    if path is not None and not path.is_dir():
        raise FlightError(f"{path}: is not a folder, expected a folder of dumps.")
    if path is not None:
        for file in matching_paths(path, "[!.]*", FlightError):
            if not file.is_dir():
                require_regular(file, FlightError)
        for file in files_below(path, FlightError):
            if file.stat().st_size > _MAX_DUMP_BYTES:
                limit = f"larger than {_MAX_DUMP_BYTES} bytes"
                raise FlightError(f"{file}: is {limit}, expected a dump.")
            yield file
    yield from captures_elsewhere(folder, "flight recorder dump")
