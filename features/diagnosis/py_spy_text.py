"""Stacks of processes as `py-spy dump` prints them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forewarn.features.diagnosis.stack_sample import MAX_FRAMES, Frame, Stack

__all__ = ["ProcessStack", "parse_py_spy_text"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"Process (\d{1,9}): ?(.*)")
_THREAD = re.compile(r"Thread (\w{1,20}) \((?:active|idle)[\w+]*\)(?:: \"(.*)\")?")
_FRAME = re.compile(r" {4}(\S.*) \((.+?)(?::(\d{1,9}))?\)")
_RANK = re.compile(r"(?i)(?:(?<![\w-])|--)(?:global[-_]?)?rank[= ](\d{1,6})\b")
_WORKER = re.compile(r"multiprocessing[.](?:spawn|forkserver|resource_tracker)|pt_data_worker")


@dataclass(frozen=True, slots=True)
class ProcessStack:
    """Stack of the main thread of a process.

    Attributes
    ----------
    pid : int
    command : str
    stack : tuple of Frame
        Innermost frame first; empty if no thread has a frame.
    """

    pid: int
    command: str
    stack: Stack

    @property
    def rank(self) -> int | None:
        """Rank in the command line, if it is there.

        Examples
        --------
        >>> ProcessStack(7, "python train.py --local-rank=1 --rank 9", ()).rank
        9
        """
        match = _RANK.search(self.command)
        return int(match[1]) if match else None

    @property
    def is_worker(self) -> bool:
        """Whether it may be a helper process of a rank, such as one that loads data."""
        return _WORKER.search(self.command) is not None


def parse_py_spy_text(text: str) -> list[ProcessStack]:
    r"""Return the processes of a text, in order.

    Parameters
    ----------
    text : str
        Output of one or several calls of `py-spy dump`.

    Examples
    --------
    >>> text = 'Process 7: python train.py\nThread 7 (idle): "MainThread"\n    f (a.py:3)\n'
    >>> [(process.pid, process.stack[0].line) for process in parse_py_spy_text(text)]
    [(7, 3)]
    """
    return [_process(block) for block in _blocks(_COLOURS.sub("", text).splitlines(), _PROCESS)]


Block = tuple[re.Match[str], list[str]]


def _blocks(lines: list[str], header: re.Pattern[str]) -> list[Block]:
    """Return each header with the lines up to the next one."""
    blocks: list[Block] = []
    for line in lines:
        if match := header.fullmatch(line.rstrip()):
            blocks.append((match, []))
        elif blocks:
            blocks[-1][1].append(line)
    return blocks


def _process(block: Block) -> ProcessStack:
    header, lines = block
    threads = [
        ((thread[2] == "MainThread", thread[1] == header[1]), _stack(frames))
        for thread, frames in _blocks(lines, _THREAD)
    ]
    main = max((thread for thread in threads if thread[1]), key=lambda each: each[0], default=None)
    return ProcessStack(int(header[1]), header[2], main[1] if main else ())


def _stack(lines: list[str]) -> Stack:
    calls = (_FRAME.fullmatch(line.rstrip()) for line in lines)
    frames = [Frame(call[1], call[2], int(call[3] or 0)) for call in calls if call]
    return tuple(frames[:MAX_FRAMES])
