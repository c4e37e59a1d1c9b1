"""Training processes of this host: those with RANK in their environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["JobProcess", "find_processes", "read_environment", "stat_fields"]

_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_NAMES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "FOREWARN_JOB")
_SERVER = "TORCH_WORKER_SERVER_SOCKET"
_MAX_ENVIRONMENT_BYTES = 1 << 20
_MAX_RANKS = 1_000_000
_PARENT, _START = 1, 19  # fields of /proc/PID/stat after the process name


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A training process.

    Attributes
    ----------
    pid : int
    start : int
        Start time in clock ticks since boot, which makes (pid, start) unique.
    uid : int
        User id.
    job : str
        Job name, valid as a folder name.
    rank : int
    local_rank : int or None
    socket : Path or None
        Socket of torch's worker server.
    """

    pid: int
    start: int
    uid: int
    job: str
    rank: int
    local_rank: int | None
    socket: Path | None


def find_processes(proc: Path = Path("/proc")) -> list[JobProcess]:
    """Return one process per rank, without data loaders, which inherit the environment.

    If a script starts a Python interpreter, the interpreter is returned.

    Parameters
    ----------
    proc : Path
    """
    ranked: dict[tuple[str, int], list[tuple[JobProcess, int]]] = {}
    for entry in os.scandir(proc):
        if entry.name.isascii() and entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):  # the process may have ended
                process, parent = _process(Path(entry.path))
                ranked.setdefault((process.job, process.rank), []).append((process, parent))
    chosen = (_training_process(several, proc) for several in ranked.values())
    return sorted(chosen, key=lambda process: (process.job, process.rank))


def _process(folder: Path) -> tuple[JobProcess, int]:
    """Return a process and its parent's pid.

    Raises
    ------
    ValueError
        If it is not a training process.
    """
    environment = read_environment(folder)
    rank = int(environment["RANK"]) if "RANK" in environment else -1
    if not 0 <= rank < _MAX_RANKS:
        raise ValueError("no rank")
    fields = stat_fields(folder)
    local = environment.get("LOCAL_RANK", "")
    socket = environment.get(_SERVER, "")
    process = JobProcess(
        pid=int(folder.name),
        start=int(fields[_START]),
        uid=folder.stat().st_uid,
        job=_job(environment),
        rank=rank,
        local_rank=int(local) if local.isdecimal() else None,
        socket=Path(socket) if socket.startswith("/") else None,
    )
    return process, int(fields[_PARENT])


def read_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a process that identify its rank; other variables are not kept.

    Raises
    ------
    OSError
        If the process has ended, or may not be examined.
    """
    names = {*_NUMBERS, *_NAMES, _SERVER}
    with (folder / "environ").open("rb") as stream:
        items = [item.partition(b"=") for item in stream.read(_MAX_ENVIRONMENT_BYTES).split(b"\0")]
    return {
        name.decode("latin-1"): value.decode("utf-8", "replace")
        for name, _, value in items
        if name.decode("latin-1") in names
    }


def _job(environment: Mapping[str, str]) -> str:
    named = next((environment[name] for name in _NAMES[::-1] if environment.get(name)), "job")
    return re.sub(r"[^A-Za-z0-9_.-]", "_", named).lstrip(".")[:80] or "job"


def stat_fields(folder: Path) -> list[str]:
    """Return the fields of a process's `stat` after its name; the first one is its state."""
    text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def _training_process(several: list[tuple[JobProcess, int]], proc: Path) -> JobProcess:
    """Return the outermost Python process of a rank, or the outermost process without one."""
    parents = {process.pid: parent for process, parent in several}
    ordered = sorted(several, key=lambda item: (_depth(item[0].pid, parents), item[0].start))
    programs = [(process, _program(proc / str(process.pid))) for process, _ in ordered]
    python = [process for process, program in programs if program.startswith("python")]
    return (python or [process for process, _ in programs])[0]


def _depth(pid: int, parents: Mapping[int, int]) -> int:
    depth = 0
    while pid in parents and depth < len(parents):
        pid, depth = parents[pid], depth + 1
    return depth


def _program(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "exe").readlink().name
    return ""
