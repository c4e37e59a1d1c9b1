"""A job of tensor, pipeline and data parallel ranks, run until its faulty ranks stop it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product

from forewarn.features.diagnosis.collective_operations import CollectiveOperations, merge_dumps
from forewarn.features.diagnosis.flight_recorder_dump import parse_dump
from forewarn.features.time_units import SECOND

BEGIN = 1_795_296_000 * SECOND
STEPS = 3


@dataclass(frozen=True)
class Operation:
    """One operation in the program of a rank; `number` counts those of its group."""

    group: str
    name: str
    members: tuple[int, ...]  # of the operation; of a send or receive, the two ranks
    number: int


@dataclass(frozen=True)
class Fault:
    """Where a rank stops: before it enters an operation, or on the device within it."""

    before: int
    on_device: bool


@dataclass(repr=False)
class StoppedJob:
    """A job that was run until nothing moved any more."""

    sizes: tuple[int, int, int]  # tensor, pipeline, data
    faults: Mapping[int, Fault]
    queue: int  # operations that a rank enters before the first of them has ended
    keeps_finished: bool = True  # whether the recorders hold finished operations

    def __repr__(self) -> str:
        """Describe the job that a failing test has drawn."""
        return f"StoppedJob({self.sizes}, {self.faults}, {self.queue}, {self.keeps_finished})"

    def __post_init__(self) -> None:
        self.programs = programs(*self.sizes)
        self.entered = dict.fromkeys(self.programs, 0)
        self.ended = dict.fromkeys(self.programs, 0)
        while self._advance():
            pass

    def _advance(self) -> bool:
        before = dict(self.entered), dict(self.ended)
        for rank, program in self.programs.items():
            fault = self.faults.get(rank)
            last = fault.before if fault and not fault.on_device else len(program)
            self.entered[rank] = min(last, len(program), self.ended[rank] + self.queue)
        for rank in self.programs:
            if self._can_end(rank):
                self.ended[rank] += 1
        return before != (self.entered, self.ended)

    def _can_end(self, rank: int) -> bool:
        number, fault = self.ended[rank], self.faults.get(rank)
        if number >= self.entered[rank] or (fault and fault.on_device and number == fault.before):
            return False
        return self._all_started(self.programs[rank][number])

    def _all_started(self, operation: Operation) -> bool:
        return all(self._has_started(member, operation) for member in operation.members)

    def _has_started(self, rank: int, operation: Operation) -> bool:
        number = next(
            n
            for n, own in enumerate(self.programs[rank])
            if (own.group, own.number, own.members)
            == (operation.group, operation.number, operation.members)
        )
        return self.entered[rank] > number and self.ended[rank] >= number

    def at_fault(self) -> set[int]:
        """Return the faulty ranks that have come to their fault."""
        return {
            rank
            for rank, fault in self.faults.items()
            if self.ended[rank] == fault.before < len(self.programs[rank])
            and (not fault.on_device or self._all_started(self.programs[rank][fault.before]))
        }

    def stopped(self) -> set[int]:
        """Return the ranks at their fault that another rank waits for."""
        blocking = {rank for waiting in self.programs for rank in self._blockers(waiting)}
        return self.at_fault() & blocking

    def _blockers(self, rank: int) -> set[int]:
        """Return the members of a rank's oldest unfinished operation that have not started it."""
        if self.ended[rank] >= self.entered[rank]:
            return set()
        operation = self.programs[rank][self.ended[rank]]
        return {m for m in operation.members if not self._has_started(m, operation)}

    def is_clear(self) -> bool:
        """Return whether dumps can tell all stopped ranks.

        A further fault may leave another explanation. Several ranks that are missing together may
        have a common cause. Numbers of sends and
        receives are not comparable before the first of them has ended, or if that is not recorded.
        """
        on_device = {rank for rank, fault in self.faults.items() if fault.on_device}
        stopped_at = [self.programs[rank][self.ended[rank]] for rank in self.stopped() & on_device]
        in_pair = any(" " in operation.name for operation in stopped_at)
        is_single = self.missing_together() <= 1 and len(stopped_at) == len(set(stopped_at))
        is_whole = self.stopped() == self.faults.keys()
        return self.keeps_finished and is_whole and is_single and not in_pair

    def missing_together(self) -> int:
        """Return how many ranks have not started the same operation, at most."""
        return max(len(self._blockers(rank)) for rank in self.programs)

    def operations(self, without: Collection[int] = ()) -> CollectiveOperations:
        """Return what the flight recorders of the ranks hold, except for some."""
        ranks = self.programs.keys() - set(without)
        return merge_dumps({rank: parse_dump(self._dump(rank)) for rank in sorted(ranks)})

    def _dump(self, rank: int) -> bytes:
        table = groups(*self.sizes)
        names = [name for name in table if rank in table[name]]
        texts = {name: str(10 + number) for number, name in enumerate(table)}
        rows = list(enumerate(self.programs[rank][: self.entered[rank]]))
        entries = [
            {
                "record_id": number,
                "pg_id": names.index(operation.group),
                "process_group": [texts[operation.group], operation.group[:2]],
                "collective_seq_id": operation.number,
                "p2p_seq_id": operation.number,
                "profiling_name": f"nccl:{operation.name}",
                "time_created_ns": BEGIN + number * SECOND,
                "state": "scheduled",
                "retired": number < self.ended[rank],
                "is_p2p": " " in operation.name,
            }
            for number, operation in rows
            if self.keeps_finished or number >= self.ended[rank]
        ]
        last = {
            name: max((o.number for _, o in rows if o.group == name), default=-1) for name in names
        }
        config = {
            texts[name]: {"name": texts[name], "desc": name[:2], "ranks": json.dumps(table[name])}
            for name in names
        }
        status = {
            str(number): {"last_enqueued_collective": last[name], "last_completed_collective": -1}
            for number, name in enumerate(names)
        }
        dump = {"version": "2.9", "pg_config": config, "pg_status": status, "entries": entries}
        return json.dumps(dump).encode()


def groups(tp: int, pp: int, dp: int) -> dict[str, list[int]]:
    """Return the ranks of each group."""
    members: dict[str, list[int]] = {}
    for d, p, t in product(range(dp), range(pp), range(tp)):
        for name in (f"tp{p}-{d}", f"pp{t}-{d}", f"dp{t}-{p}"):
            members.setdefault(name, []).append((d * pp + p) * tp + t)
    return members


def programs(tp: int, pp: int, dp: int) -> dict[int, list[Operation]]:
    """Return the operations of each rank in the order in which it enters them."""
    table = groups(tp, pp, dp)
    result = {}
    for d, p, t in product(range(dp), range(pp), range(tp)):
        rank = (d * pp + p) * tp + t
        line = table[f"pp{t}-{d}"]
        operations = []
        for step in range(1, STEPS + 1):
            if p > 0:
                pair = (line[p - 1], rank)
                operations.append(Operation(f"pp{t}-{d}", f"recv {p}<-{p - 1}", pair, step))
            names = [(f"tp{p}-{d}", "all_reduce")] * (tp > 1)
            operations += [Operation(g, name, tuple(table[g]), step) for g, name in names]
            if p < pp - 1:
                pair = (rank, line[p + 1])
                operations.append(Operation(f"pp{t}-{d}", f"send {p}->{p + 1}", pair, step))
            names = [(f"dp{t}-{p}", "all_reduce")] * (dp > 1)
            operations += [Operation(g, name, tuple(table[g]), step) for g, name in names]
        result[rank] = operations
    return result
