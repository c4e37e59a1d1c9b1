"""Stacks of the ranks in one file, whatever form of `py-spy dump` it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn.features.diagnosis.file_content import HEAD_BYTES, file_content
from forewarn.features.diagnosis.py_spy_text import ProcessStack, parse_py_spy_text
from forewarn.features.diagnosis.stack_sample import BrokenStackError, Stack, main_process

__all__ = ["stacks_by_rank"]


def stacks_by_rank(data: bytes, by_name: int | None, by_pid: Mapping[int, int]) -> dict[int, Stack]:
    """Return the stack of each rank's main thread.

    The rank is in the command line, or known by the process number in `ranks.csv`, or, if the file
    has only one process that is not a helper, in the name of the file.

    Parameters
    ----------
    data : bytes
        JSON or text of one or several processes.
    by_name : int or None
        Rank in the name of the file.
    by_pid : mapping of int to int
        Rank by process number, where no two ranks have the same.

    Raises
    ------
    BrokenStackError
        If there is no such stack, or its rank is unknown.
    """
    processes = _processes(data)
    mains = [process for process in processes if not process.is_worker] or processes
    stacks: dict[int, Stack] = {}
    for process in processes:
        rank = by_pid.get(process.pid) if process.rank is None else process.rank
        if rank is None and mains == [process]:
            rank = by_name
        if rank is not None and process.stack:
            stacks.setdefault(rank, process.stack)
    if not stacks:
        raise BrokenStackError(_why_unread(processes))
    return stacks


def _processes(data: bytes) -> Sequence[ProcessStack]:
    if data[:1] == b"[":
        pid, stack = main_process(data)
        return [ProcessStack(pid, "", stack)]
    content = file_content(data[:HEAD_BYTES])
    if content == "native stacks":
        raise BrokenStackError("has stacks of C functions, expected Python's (py-spy dump)")
    if content != "py-spy stacks":
        raise BrokenStackError("is not the output of py-spy dump")
    return parse_py_spy_text(data.decode("utf-8", "replace"))


def _why_unread(processes: Sequence[ProcessStack]) -> str:
    if not any(process.stack for process in processes):
        return "contains no frame"
    what = "a process" if len(processes) == 1 else f"{len(processes)} processes"
    return f"has {what} of unknown rank, expected it in the file name, or `pid` in ranks.csv"
