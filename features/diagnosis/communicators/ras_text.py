"""Answers of NCCL's RAS subsystem in text: `ncclras`, from NCCL 2.24."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace

from forewarn.features.diagnosis.communicators.communicator_state import (
    BrokenStatusError,
    StatusSnapshot,
)
from forewarn.features.diagnosis.communicators.ras_section import CommunicatorSection

__all__ = ["parse_ras_text"]

_START = re.compile(r"(?m)^(?=NCCL version \S+ compiled)")
# The output of `date` before an answer, as a loop in a shell writes it.
_DATE = re.compile(
    r"(?:(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)|"
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d) (?:\S+ )?(\d{4}))\S*\s*$"
)
_TOTALS = re.compile(r"^ *\d+ +\d+ +\d+ +\d+ +(\d{1,7})$")  # nodes, processes, GPUs, ..., all GPUs
_GROUP = re.compile(r"^ *(\d{1,7}) +(\d{1,7}) +\d+ +\S+ +(\d{1,7}) +\d+ +([A-Z,]+) +[A-Z,]+$")
_SECTION = re.compile(r"^#(\d{1,7})-\d+ \(([0-9a-fA-F]{1,16})\) (?:MISMATCH|INCOMPLETE|ERROR)")
_JOB_SECTION = re.compile(r"^(INCOMPLETE|DEAD|TIMEOUT)$")
_PROCESS = re.compile(r"^ *Process (\d{1,10}) on node (\S+) managing GPU")


def parse_ras_text(text: str) -> list[StatusSnapshot]:
    """Parse one or several answers.

    Only ranks that differ are listed; a communicator without a mismatch is not in the result.

    Raises
    ------
    BrokenStatusError
        If an answer ends before its warnings and says nothing of a communicator.
    """
    parts = _START.split(text)
    times = [None, *map(_time_at_end, parts)]
    answers = [(part, time) for part, time in zip(parts, times, strict=False) if _is_answer(part)]
    snapshots = [replace(_Reader().read(part), time=time) for part, time in answers]
    for (part, _), snapshot in zip(answers, snapshots, strict=True):
        if not snapshot.communicators and "\nWarnings" not in f"\n{part}":
            raise BrokenStatusError("is truncated, expected the section `Warnings` at its end")
    return snapshots


def _is_answer(part: str) -> bool:
    return "==" in part or "#" in part


def _time_at_end(part: str) -> dt.datetime | None:
    """Return the local time that precedes the next answer, or None."""
    match = _DATE.search(part[-80:])
    if match is None:
        return None
    try:
        if match[1]:
            return dt.datetime.fromisoformat(match[1])
        text = f"{match[2]} {match[3]} {match[5]} {match[4]}"
        return dt.datetime.strptime(text, "%b %d %Y %H:%M:%S")
    except ValueError:
        return None


class _Reader:
    """Reads an answer line by line."""

    def __init__(self) -> None:
        self.n_ranks: int | None = None
        self.groups: dict[int, tuple[int, str]] = {}  # size and status
        self.single: set[int] = set()  # sizes that one communicator has
        self.communicators: dict[str, CommunicatorSection] = {}
        self.lost: dict[str, list[tuple[str, int]]] = {}
        self.section: CommunicatorSection | str = ""

    def read(self, text: str) -> StatusSnapshot:
        for line in text.splitlines():
            self._read_line(line.rstrip())
        dead = set(self.lost.get("DEAD", ()))
        is_all_dead = bool(dead) and not self.lost.get("INCOMPLETE")
        states = (s.state(dead, is_all_dead=is_all_dead) for s in self.communicators.values())
        known = tuple(state for state in states if state is not None)
        largest = max((size for size, _ in self.groups.values()), default=None)
        whole = largest if largest in self.single else None
        return StatusSnapshot(known, self.n_ranks or whole)

    def _read_line(self, line: str) -> None:
        if match := _SECTION.match(line):
            size, status = self.groups.get(int(match[1]), (None, "RUNNING"))
            new = CommunicatorSection(match[2], size, status)
            self.section = self.communicators.setdefault(match[2], new)
            self.section.begin()
        elif match := _JOB_SECTION.match(line):
            self.section = match[1]
        elif isinstance(self.section, CommunicatorSection):
            self.section.read(line)
        elif match := _PROCESS.match(line):
            self.lost.setdefault(self.section, []).append((match[2], int(match[1])))
        elif match := _GROUP.match(line):
            self.groups[int(match[1])] = int(match[3]), match[4]
            self.single |= {int(match[3])} if match[2] == "1" else set()
        elif (match := _TOTALS.match(line)) and self.n_ranks is None:
            self.n_ranks = int(match[1])
