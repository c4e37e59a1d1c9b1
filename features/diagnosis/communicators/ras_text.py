"""Answers of NCCL's RAS subsystem in text: `ncclras`, from NCCL 2.24."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forewarn.features.diagnosis.communicators.communicator_state import (
    BrokenStatusError,
    CommunicatorState,
    GpuProcess,
    StatusSnapshot,
)

__all__ = ["parse_ras_text"]

_START = re.compile(r"(?m)^(?=NCCL version \S+ compiled)")
_TOTALS = re.compile(r"^ *\d+ +\d+ +\d+ +\d+ +(\d+)$")  # nodes, processes, GPUs, ..., all GPUs
_GROUP = re.compile(r"^ *(\d+) +(\d+) +\d+ +\S+ +(\d+) +\d+ +([A-Z,]+) +[A-Z,]+$")
_SECTION = re.compile(r"^#(\d+)-\d+ \(([0-9a-fA-F]+)\) (?:MISMATCH|INCOMPLETE|ERROR)")
_JOB_SECTION = re.compile(r"^(INCOMPLETE|DEAD|TIMEOUT)$")
_OPERATIONS = re.compile(r"different (?:(\w+) )?operation counts")
_MANY = re.compile(r"^ *(\d+) ranks have (?:launched up to operation (\d+)|not launched any)")
_SINGLE = re.compile(r"^ *Rank (\d+) has (?:launched up to operation (\d+)|not launched any)")
_MEMBER = re.compile(r"^ *Rank (\d+) -- ")
_MISSING_LIST = re.compile(r"^ *The missing ranks?: ([\d, ]+)")
_N_MISSING = re.compile(r"^ *Missing communicator data from (\d+) rank")
_STATUS = re.compile(r"have status ([A-Z]+)|has status ([A-Z]+)")
_RANK_PROCESS = re.compile(r"\bRank (\d+).* GPUs? (\d+).* managed by process (\d+) on node (\S+)")
_PROCESS = re.compile(r"^ *Process (\d+) on node (\S+) managing GPU")


@dataclass(slots=True)
class _Group:
    """Ranks that have launched equally many operations; not all of them may be listed."""

    size: int
    count: int
    ranks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Draft:
    name: str
    size: int | None
    status: str
    groups: dict[str, list[_Group]] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    n_missing: int = 0
    processes: dict[int, GpuProcess] = field(default_factory=dict)


def parse_ras_text(text: str) -> list[StatusSnapshot]:
    """Parse one or several answers.

    Only ranks that differ are listed; a communicator without a mismatch is not in the result.

    Raises
    ------
    BrokenStatusError
        If an answer ends before its warnings and says nothing of a communicator.
    """
    answers = [part for part in _START.split(text) if part.strip()]
    snapshots = [_Reader().read(part) for part in answers]
    for part, snapshot in zip(answers, snapshots, strict=True):
        if not snapshot.communicators and "\nWarnings" not in f"\n{part}":
            raise BrokenStatusError("is truncated, expected the section `Warnings` at its end")
    return snapshots


class _Reader:
    """Reads an answer line by line."""

    def __init__(self) -> None:
        self.n_ranks: int | None = None
        self.groups: dict[int, tuple[int, str]] = {}  # size and status
        self.single: set[int] = set()  # sizes that one communicator has
        self.drafts: dict[str, _Draft] = {}
        self.lost: dict[str, list[tuple[str, int]]] = {}
        self.section: _Draft | str = ""
        self.operation: str | None = None

    def read(self, text: str) -> StatusSnapshot:
        for line in text.splitlines():
            self._read_line(line.rstrip())
        dead = set(self.lost.get("DEAD", ()))
        is_all_dead = bool(dead) and not self.lost.get("INCOMPLETE")
        states = (_state(draft, dead, is_all_dead) for draft in self.drafts.values())
        known = tuple(state for state in states if state is not None)
        largest = max((size for size, _ in self.groups.values()), default=None)
        whole = largest if largest in self.single else None
        return StatusSnapshot(known, self.n_ranks or whole)

    def _read_line(self, line: str) -> None:
        if match := _SECTION.match(line):
            size, status = self.groups.get(int(match[1]), (None, "RUNNING"))
            self.section = self.drafts.setdefault(match[2], _Draft(match[2], size, status))
            self.operation = None
        elif match := _JOB_SECTION.match(line):
            self.section = match[1]
        elif isinstance(self.section, _Draft):
            self._read_communicator(self.section, line)
        elif match := _PROCESS.match(line):
            self.lost.setdefault(self.section, []).append((match[2], int(match[1])))
        elif match := _GROUP.match(line):
            self.groups[int(match[1])] = int(match[3]), match[4]
            self.single |= {int(match[3])} if match[2] == "1" else set()
        elif (match := _TOTALS.match(line)) and self.n_ranks is None:
            self.n_ranks = int(match[1])

    def _read_communicator(self, draft: _Draft, line: str) -> None:
        if match := _RANK_PROCESS.search(line):
            draft.processes[int(match[1])] = GpuProcess(match[4], int(match[3]), int(match[2]))
        if match := _OPERATIONS.search(line):
            self.operation = match[1] or "collective"
            draft.groups[self.operation] = []
        elif match := _STATUS.search(line):
            draft.status = ",".join({draft.status, match[1] or match[2]})
        elif match := _N_MISSING.match(line):
            draft.n_missing = int(match[1])
        elif match := _MISSING_LIST.match(line):
            draft.missing.update(int(number) for number in re.findall(r"\d+", match[1]))
        elif self.operation is not None:
            _add_counts(draft.groups[self.operation], line)
        elif match := _MEMBER.match(line):
            draft.missing.add(int(match[1]))


def _add_counts(groups: list[_Group], line: str) -> None:
    if match := _MANY.match(line):
        groups.append(_Group(int(match[1]), int(match[2] or 0)))
    elif match := _SINGLE.match(line):
        groups.append(_Group(1, int(match[2] or 0), [int(match[1])]))
    elif (match := _MEMBER.match(line)) and groups:
        groups[-1].ranks.append(int(match[1]))


def _state(
    draft: _Draft, dead: set[tuple[str, int]], is_all_dead: bool
) -> CommunicatorState | None:
    """Return the state of a communicator; None if its size is unknown."""
    totals = [sum(group.size for group in groups) for groups in draft.groups.values()]
    size = draft.size or (max(totals) + draft.n_missing if totals else None)
    if size is None or len(draft.missing) != draft.n_missing:  # not listed, or cut off
        return None
    counts = {name: dict(_counts(draft, groups, size)) for name, groups in draft.groups.items()}
    gone = {
        rank
        for rank in draft.missing
        if is_all_dead
        or ((process := draft.processes.get(rank)) and (process.host, process.pid) in dead)
    }
    return CommunicatorState(
        draft.name,
        size,
        counts,
        draft.processes,
        frozenset(draft.missing - gone),
        frozenset(gone),
        is_running=draft.status == "RUNNING",
    )


def _counts(draft: _Draft, groups: list[_Group], size: int) -> Iterator[tuple[int, int]]:
    """Yield rank and count; the only group that is not listed consists of all other ranks."""
    listed = [group for group in groups if len(group.ranks) == group.size]
    for group in listed:
        yield from ((rank, group.count) for rank in group.ranks)
    rest = [group for group in groups if len(group.ranks) != group.size]
    known = draft.missing.union(*(group.ranks for group in listed))
    others = [rank for rank in range(size) if rank not in known]
    if len(rest) == 1 and len(others) == rest[0].size:
        yield from ((rank, rest[0].count) for rank in others)
