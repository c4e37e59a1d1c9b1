"""Section of an answer of NCCL's RAS subsystem on one communicator."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from forewarn.features.diagnosis.communicators.communicator_state import (
    CommunicatorState,
    GpuProcess,
)
from forewarn.features.diagnosis.ranks import MAX_RANKS

__all__ = ["CommunicatorSection"]

_OPERATIONS = re.compile(r"different (?:(\w{1,40}) )?operation counts")
_MANY = re.compile(r"^ *(\d{1,7}) ranks have (?:launched up to operation (\d{1,18})|not launched)")
_SINGLE = re.compile(r"^ *Rank (\d{1,7}) has (?:launched up to operation (\d{1,18})|not launched)")
_MEMBER = re.compile(r"^ *Rank (\d{1,7}) -- ")
_MISSING_LIST = re.compile(r"^ *The missing ranks?: ([\d, ]+)")
_N_MISSING = re.compile(r"^ *Missing communicator data from (\d{1,7}) rank")
_STATUS = re.compile(r"have status ([A-Z]+)|has status ([A-Z]+)")
_PROCESS = re.compile(
    r"^ *Rank (\d{1,7}).{0,90} GPUs? (\d{1,4}).{0,90} managed by process (\d{1,10}) on node (\S+)"
)


@dataclass(slots=True)
class _Group:
    """Ranks that have launched equally many operations; not all of them may be listed."""

    size: int
    count: int
    ranks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class CommunicatorSection:
    """What the lines read so far say of a communicator.

    Attributes
    ----------
    name : str
        Hash.
    size : int or None
        From the table of communicators; None without it.
    status : str
        From the same table; several, joined by commas, if ranks differ.
    """

    name: str
    size: int | None
    status: str
    _groups: dict[str, list[_Group]] = field(default_factory=dict)
    _operation: str | None = None
    _missing: set[int] = field(default_factory=set)
    _n_missing: int = 0
    _processes: dict[int, GpuProcess] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a further section on the same communicator."""
        self._operation = None

    def read(self, line: str) -> None:
        """Read a line of the section."""
        if match := _PROCESS.match(line):
            self._processes[int(match[1])] = GpuProcess(match[4], int(match[3]), int(match[2]))
        if match := _OPERATIONS.search(line):
            self._operation = match[1] or "collective"
            self._groups[self._operation] = []
        elif match := _STATUS.search(line):
            self.status = ",".join({self.status, match[1] or match[2]})
        elif match := _N_MISSING.match(line):
            self._n_missing = int(match[1])
        elif match := _MISSING_LIST.match(line):
            self._missing.update(int(number) for number in re.findall(r"\d{1,7}", match[1]))
        elif self._operation is not None:
            _add_counts(self._groups[self._operation], line)
        elif match := _MEMBER.match(line):
            self._missing.add(int(match[1]))

    def state(
        self, dead: Collection[tuple[str, int]], *, is_all_dead: bool
    ) -> CommunicatorState | None:
        """Return the state; None if its size is unknown or a list was cut off.

        Parameters
        ----------
        dead : collection of (str, int)
            Host and number of dead processes.
        is_all_dead : bool
            All processes that did not answer are dead.
        """
        totals = [sum(group.size for group in groups) for groups in self._groups.values()]
        size = self.size or (max(totals) + self._n_missing if totals else None)
        if size is None or size > MAX_RANKS or len(self._missing) != self._n_missing:
            return None
        gone = {
            rank
            for rank in self._missing
            if is_all_dead
            or ((process := self._processes.get(rank)) and (process.host, process.pid) in dead)
        }
        return CommunicatorState(
            self.name,
            size,
            {name: dict(self._counts(groups, size)) for name, groups in self._groups.items()},
            self._processes,
            frozenset(self._missing - gone),
            frozenset(gone),
            is_running=self.status == "RUNNING",
        )

    def _counts(self, groups: list[_Group], size: int) -> Iterator[tuple[int, int]]:
        """Yield rank and count; the only group that is not listed consists of all other ranks."""
        listed = [group for group in groups if len(group.ranks) == group.size]
        for group in listed:
            yield from ((rank, group.count) for rank in group.ranks)
        rest = [group for group in groups if len(group.ranks) != group.size]
        known = self._missing.union(*(group.ranks for group in listed))
        others = [rank for rank in range(size) if rank not in known]
        if len(rest) == 1 and len(others) == rest[0].size:
            yield from ((rank, rest[0].count) for rank in others)


def _add_counts(groups: list[_Group], line: str) -> None:
    if match := _MANY.match(line):
        groups.append(_Group(int(match[1]), int(match[2] or 0)))
    elif match := _SINGLE.match(line):
        groups.append(_Group(1, int(match[2] or 0), [int(match[1])]))
    elif (match := _MEMBER.match(line)) and groups:
        groups[-1].ranks.append(int(match[1]))
