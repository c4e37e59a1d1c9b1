"""Tables of a job: `ranks.csv` and `exits.csv` of all hosts, and `unseen_output/`."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from forewarn.features.diagnosis.unseen_outputs import UNSEEN_COLUMNS, UnseenOutput
from forewarn.pipelines.agent.jobs.training_processes import JobProcess
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["write_exits", "write_ranks", "write_unseen"]

_COLUMNS = ("rank", "machine", "local_rank", "pid")
_EXIT_COLUMNS = ("rank", "exit_code", "timestamp")


def write_ranks(path: Path, processes: Sequence[JobProcess], machine: str) -> None:
    """Update the rows of this host in the table and keep those of other hosts.

    If two hosts write at the same time, the rows of one are lost until it writes again.
    """
    own = {
        str(process.rank): dict(zip(_COLUMNS, map(_cell, _values(process, machine)), strict=True))
        for process in processes
    }
    table, columns = _read(path, _COLUMNS)
    rows = {row["rank"]: row for row in table}
    gone = [rank for rank, row in rows.items() if row.get("machine") == machine]
    merged = {rank: row for rank, row in rows.items() if rank not in gone or rank in own}
    merged = {rank: {**merged.get(rank, {}), **row} for rank, row in {**merged, **own}.items()}
    if merged != rows:
        _write(path, columns, (merged[rank] for rank in sorted(merged, key=int)))


def write_exits(path: Path, own: Iterable[tuple[int, int, str]]) -> None:
    """Add the exits seen on this host to the table, as `write_ranks` does.

    Parameters
    ----------
    path : Path
    own : iterable of (int, int, str)
        Rank, exit code and time.
    """
    table, columns = _read(path, _EXIT_COLUMNS)
    known = {tuple(row.get(name) for name in _EXIT_COLUMNS) for row in table}
    cells = (tuple(map(str, row)) for row in own)
    new = [dict(zip(_EXIT_COLUMNS, row, strict=True)) for row in cells if row not in known]
    if new:
        _write(path, columns, [*table, *new])


def write_unseen(
    path: Path, unseen: Iterable[UnseenOutput], processes: Iterable[JobProcess]
) -> None:
    """Update the table of output that was not copied; ranks that have ended keep their rows.

    Parameters
    ----------
    path : Path
        Table of this host.
    unseen : iterable of UnseenOutput
    processes : iterable of JobProcess
        Running processes.
    """
    running = {str(process.rank) for process in processes}
    table, columns = _read(path, UNSEEN_COLUMNS)
    rows = [row for row in table if row["rank"] not in running]
    rows += [{name: str(getattr(row, name)) for name in UNSEEN_COLUMNS} for row in unseen]
    if rows != table:
        _write(path, columns, rows)


def _read(path: Path, columns: Sequence[str]) -> tuple[list[dict[str, str]], Sequence[str]]:
    """Return the rows of a table and its columns, including columns that others added."""
    with suppress(OSError), path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, restval="")
        rows = [row for row in reader if row.get("rank")]
        return rows, list(dict.fromkeys((*columns, *(reader.fieldnames or ()))))
    return [], columns


def _write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _values(process: JobProcess, machine: str) -> tuple[object, ...]:
    return process.rank, machine, process.local_rank, process.pid


def _cell(value: object) -> str:
    return "" if value is None else str(value)
