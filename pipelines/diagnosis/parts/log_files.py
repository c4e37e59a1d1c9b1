"""Log files in a job's folder, with their rank, machine and attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["JobLogFile", "find_log_files"]

_RANK = re.compile(r"(?:.*[^0-9])?(\d{1,7})")
_ATTEMPT = re.compile(r"attempt_(\d{1,6})")
_STREAMS = ("stdout.log", "stderr.log", "error.json")
_KERNEL = re.compile(r"(?:kernel|dmesg|messages|syslog|journal).*")


@dataclass(frozen=True, slots=True)
class JobLogFile:
    """A file of the part `logs`.

    Attributes
    ----------
    path : Path
    name : str
        Path below `logs`, for messages.
    rank : int or None
        None for a log of a machine or a launcher, or if the rank is unknown.
    machine : str or None
    attempt : int
        Attempt number in torchrun's tree, counted from 0.
    is_torchrun : bool
        Whether it is in torchrun's tree.
    """

    path: Path
    name: str
    rank: int | None
    machine: str | None
    attempt: int = 0
    is_torchrun: bool = False

    @property
    def is_error(self) -> bool:
        """Whether it is the exception of a worker rather than a log."""
        return self.path.name == "error.json"


def find_log_files(folder: Path, ranks: Ranks) -> list[JobLogFile]:
    """Return the files below a folder, sorted by name and without symbolic links.

    `RANK.log` is at the top level. Torchrun's tree (`attempt_N/LOCAL_RANK/`) is at the top level or
    in one folder per machine. Any other file belongs to its machine or to a launcher.

    Parameters
    ----------
    folder : Path
    ranks : Ranks
        Maps local ranks of a machine to ranks. Without it, a local rank is the rank if there is
        only one machine.
    """
    paths = sorted(path for path in _walk_files(folder) if not path.name.startswith("."))
    machines = {_machine_folder(path.relative_to(folder)) for path in paths}
    files = [_log_file(path, folder, ranks, len(machines)) for path in paths]
    return sorted((file for file in files if file is not None), key=lambda file: file.name)


def _walk_files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk_files(path)
        elif path.is_file():
            yield path


def _machine_folder(path: Path) -> str | None:
    """Return the machine's folder in torchrun's tree, or None if there is none."""
    attempt = next((n for n, part in enumerate(path.parts) if _ATTEMPT.fullmatch(part)), None)
    return path.parts[0] if attempt else None


def _log_file(path: Path, folder: Path, ranks: Ranks, machines: int) -> JobLogFile | None:
    below = path.relative_to(folder)
    parts = below.parts
    attempt = next((n for n, part in enumerate(parts) if _ATTEMPT.fullmatch(part)), None)
    if attempt is not None and len(parts) == attempt + 3 and parts[-1] in _STREAMS:
        return _torchrun_file(path, below, attempt, ranks, machines)
    if path.suffix not in (".log", ".txt", ".out", ".err", ""):
        return None
    match = _RANK.fullmatch(path.stem)
    if len(parts) == 1 and match is not None and not _KERNEL.fullmatch(path.stem):
        rank = int(match[1])
        return JobLogFile(path, str(below), rank, ranks.machine(rank))
    machine = parts[0] if len(parts) > 1 else None
    return JobLogFile(path, str(below), None, machine)


def _torchrun_file(
    path: Path, below: Path, attempt: int, ranks: Ranks, machines: int
) -> JobLogFile:
    """Return a file of torchrun's tree; folders of its runs may precede the attempt."""
    local, number = below.parts[attempt + 1], _ATTEMPT.fullmatch(below.parts[attempt])
    machine = _machine_folder(below)
    named = {row.machine for row in ranks.table.values()}
    if machine not in named and len(named) == 1 and machines == 1:
        machine = next(iter(named))  # the folder of a run, in a job on one machine
    rank = None
    if local.isascii() and local.isdecimal() and len(local) < 8:
        rank = _rank_by_local_rank(int(local), machine, ranks, machines)
    attempts = 0 if number is None else int(number[1])
    return JobLogFile(path, str(below), rank, machine, attempts, True)


def _rank_by_local_rank(local: int, machine: str | None, ranks: Ranks, machines: int) -> int | None:
    if not ranks.listed:
        return local if machines == 1 else None
    if machine is None:
        return None
    rank = ranks.rank_at(machine, local)
    if rank is not None:
        return rank
    on_machine = ranks.on(machine)  # without a column `local_rank`: in order of rank
    return on_machine[local] if local < len(on_machine) else None
