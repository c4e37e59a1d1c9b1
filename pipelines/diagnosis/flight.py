"""`flight/`: dumps of PyTorch's flight recorder, one a rank."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from forewarn.features.diagnosis.operations import Operations, join_dumps
from forewarn.features.diagnosis.plain_pickle import ForbiddenOpcodeError
from forewarn.features.diagnosis.ranks import MOST_RANKS, Ranks, rank_list
from forewarn.features.diagnosis.recorder_dump import BrokenDumpError, RecorderDump, parse_dump
from forewarn.features.errors import InputError
from forewarn.models.diagnosis.collective_probe import collective_probe
from forewarn.models.diagnosis.lateness import measure_lateness
from forewarn.models.diagnosis.slow_rank import slow_finding
from forewarn.models.diagnosis.stalls import find_stalls
from forewarn.models.diagnosis.wait_graph import wait_finding
from forewarn.pipelines.diagnosis.job_folder import JobFolder
from forewarn.pipelines.diagnosis.part import Case, Judged
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.storage.regular_files import require_regular

__all__ = ["FlightError", "FlightPart", "read_flight"]

_RANK = re.compile(r"(?:.*?[^0-9])?([0-9]{1,6})(?:\.[A-Za-z]+)?", re.DOTALL)
_LARGEST = 2**30  # bytes of a dump; one of 2,000 entries has 1 MB
_IN_PROCESS = 32 * 2**20  # bytes of all dumps below which processes do not pay


class FlightError(InputError):
    """Dumps that cannot be used."""


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
        late = slow_finding(measure_lateness(operations), case.ranks)
        findings = tuple(finding for finding in (waits, late) if finding is not None)
        return Judged(probe, findings, blind=self.notes)


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
    for (rank, file), result in zip(files, _parsed([file for _, file in files]), strict=True):
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


def _parsed(files: list[Path]) -> Iterable[RecorderDump | str]:
    """Yield each file's dump, or why it cannot be used, by as many processes as there are cores."""
    size = sum(file.stat().st_size for file in files)
    workers = min(len(os.sched_getaffinity(0)), len(files))
    if size < _IN_PROCESS or workers < 2:
        yield from map(_parse, files)
        return
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        progress_bar(len(files), "flight recorder", "dump") as bar,
    ):
        for result in pool.map(_parse, files, chunksize=8):
            yield result
            bar.update()


def _parse(file: Path) -> RecorderDump | str:
    """Read one dump; what is forbidden is an error, what is broken a reason."""
    try:
        return parse_dump(file.read_bytes())
    except ForbiddenOpcodeError as error:
        raise FlightError(f"{file}: {error} of the pickle, expected plain values only.") from None
    except BrokenDumpError as error:
        return str(error)
