"""A simulated year of repairs through a real ledger: complete cases, offenders, board or chassis.

    python -m benchmarks.repair_year [--short] [--machines N]

Machines of eight GPUs. Healthy GPUs have an incident every 900 days on average. A share of boards
and of slots is bad and has one every 10 days. An incident drains the machine; evidence, ticket and
vendor are recorded by people, who forget each with a chance of 5 %. With a chance of 60 % the board
is swapped for a spare, and the swapped board, repaired or not, goes into the pool of spares after
14 days; otherwise it is reset and returns. In 95 % of the repairs a check passes before the return.
Everything is written to a ledger in SQLite by its own calls, and read back as `forewarn repairs`
does.

- cases: those read back, of those simulated; complete: evidence, ticket and acceptance on record
- offenders: GPUs found as repeat offenders at any time (by their serial or slot), against those bad
- board or chassis: separations told, and how many rightly
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.repairs.repair_events import read_repair_cases, record_stage
from forewarn.response.repair.board_or_chassis import (
    Culprit,
    GpuIncident,
    Placement,
    judge_separations,
)
from forewarn.response.repair.repair_case import RepairStage
from forewarn.response.repair.repeat_offenders import repeat_offenders
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import IncidentState
from forewarn.response.state.step import DrainMode, Step

GPUS, DAYS = 8, 365
GOOD_DAYS, BAD_DAYS = 900.0, 10.0
BAD_BOARDS, BAD_SLOTS = 0.01, 0.004
FORGOTTEN, SWAPPED, CHECKED = 0.05, 0.6, 0.95


@dataclass
class Year:
    """A fleet for a year, and its ledger."""

    ledger: Ledger
    machines: int
    generator: np.random.Generator
    boards: dict[tuple[str, str], str] = field(default_factory=dict)
    since: dict[tuple[str, str], int] = field(default_factory=dict)
    bad_boards: set[str] = field(default_factory=set)
    bad_slots: set[tuple[str, str]] = field(default_factory=set)
    spares: list[tuple[int, str]] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    incidents: list[GpuIncident] = field(default_factory=list)
    out_until: dict[str, int] = field(default_factory=dict)
    cases: int = 0

    def __post_init__(self) -> None:
        """Fill the slots."""
        for machine in range(self.machines):
            for slot in range(GPUS):
                where = (f"node-{machine:04}", str(slot))
                self.boards[where] = self.new_board()
                self.since[where] = 0
                if self.generator.random() < BAD_SLOTS:
                    self.bad_slots.add(where)

    def new_board(self) -> str:
        """Return the serial of a new board, which may be bad."""
        serial = f"s{len(self.boards) + len(self.placements) + len(self.spares):06}"
        while serial in self.boards.values() or any(serial == s for _, s in self.spares):
            serial += "x"
        if self.generator.random() < BAD_BOARDS:
            self.bad_boards.add(serial)
        return serial

    def day(self, day: int) -> None:
        """Let incidents of a day happen."""
        draws = self.generator.random(len(self.boards))
        for (where, serial), draw in zip(list(self.boards.items()), draws, strict=True):
            is_bad = serial in self.bad_boards or where in self.bad_slots
            if draw < 1.0 / (BAD_DAYS if is_bad else GOOD_DAYS) and self.is_in_service(where, day):
                self.repair(where, day * DAY + int(self.generator.integers(DAY)))

    def is_in_service(self, where: tuple[str, str], day: int) -> bool:
        """Tell whether a machine can have an incident."""
        return self.out_until.get(where[0], -1) < day * DAY

    def repair(self, where: tuple[str, str], at: int) -> None:
        """Drain, repair and return a machine, each step as the ledger would have it."""
        machine, slot = where
        serial = self.boards[where]
        self.cases += 1
        finding = Finding(
            source="records",
            id=f"{at}",
            kind=FindingKind.XID,
            cause="xid 79",
            machine=machine,
            at=Nanoseconds(at),
            valid_until=Nanoseconds(at + DAY),
            gpu_serial=serial,
            severity=Severity.ERROR,
            evidence={"slot": slot},
        )
        self.ledger.record_findings([finding], now=Nanoseconds(at))
        incident = self.ledger.incidents(machine=machine, limit=1)[0]
        now = at + HOUR
        action = self.ledger.act(_action(incident.id, machine, serial, now), lambda _: None)
        assert isinstance(action, Action)
        now = self.advance(
            action, (ActionState.SENT, ActionState.HOLDING, ActionState.DRAINED), now
        )
        for stage in (RepairStage.EVIDENCE, RepairStage.TICKET, RepairStage.VENDOR):
            now += int(self.generator.exponential(DAY))
            self.record(incident.id, stage, now)
        now += int(self.generator.exponential(5 * DAY))
        if self.generator.random() < SWAPPED:
            self.swap(where, now)
            self.record(incident.id, RepairStage.SWAPPED, now, always=True)
        if self.generator.random() < CHECKED:
            self.record(incident.id, RepairStage.ACCEPTED, now + HOUR, always=True)
        last = self.ledger.action(action.id)
        assert last is not None
        self.advance(last, (ActionState.RELEASING, ActionState.RELEASED), now + 2 * HOUR)
        end = Nanoseconds(now + 3 * HOUR)
        self.ledger.end_incident(
            incident.id, IncidentState.CLOSED, now=end, who="forewarn", why="returned"
        )
        self.incidents.append(GpuIncident(machine, slot, Nanoseconds(at)))
        self.out_until[machine] = now + 2 * HOUR

    def advance(self, action: Action, states: tuple[ActionState, ...], now: int) -> int:
        """Record states of an action a minute apart."""
        for state in states:
            now += HOUR // 60
            changed = self.ledger.advance(action, state, now=Nanoseconds(now))
            assert changed is not None
            action = changed
        return now

    def record(self, incident: int, stage: RepairStage, now: int, *, always: bool = False) -> None:
        """Record a stage, which people may forget."""
        if always or self.generator.random() >= FORGOTTEN:
            record_stage(
                self.ledger, incident, stage, now=Nanoseconds(now), who="person", detail="x"
            )

    def swap(self, where: tuple[str, str], now: int) -> None:
        """Put another board into a slot."""
        serial = self.boards[where]
        self.placements.append(
            Placement(serial, *where, Nanoseconds(self.since[where]), Nanoseconds(now))
        )
        ready = [entry for entry in self.spares if entry[0] <= now]
        if ready:
            self.spares.remove(min(ready))
            self.boards[where] = min(ready)[1]
        else:
            self.boards[where] = self.new_board()
        self.since[where] = now
        heapq.heappush(self.spares, (now + 14 * DAY, serial))

    def all_placements(self) -> list[Placement]:
        """Return where each board was."""
        end = Nanoseconds(DAYS * DAY)
        now = [
            Placement(serial, *where, Nanoseconds(self.since[where]), end)
            for where, serial in self.boards.items()
        ]
        return [p for p in [*self.placements, *now] if p.start < p.end]


def _action(incident: int, machine: str, serial: str, at: int) -> Action:
    return Action(
        id=0,
        incident=incident,
        machine=machine,
        pool="train",
        rack=None,
        job=None,
        cause="xid 79",
        step=Step.REPLACE,
        mode=DrainMode.FINISH,
        at=Nanoseconds(at),
        valid_until=Nanoseconds(at + DAY),
        changed_at=Nanoseconds(at),
        gpu_serial=serial,
    )


def offenders(year: Year) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the serials and slots that were offenders on any day."""
    cases = read_repair_cases(year.ledger, Nanoseconds(DAYS * DAY))
    serials: set[str] = set()
    slots: set[tuple[str, str]] = set()
    for day in range(1, DAYS + 1):
        for offender in repeat_offenders(cases, Nanoseconds(day * DAY)):
            if offender.kind == "serial":
                serials.add(offender.name)
            elif offender.kind == "slot":
                machine, _, slot = offender.name.split()
                slots.add((machine, slot))
    return serials, slots


def report(year: Year) -> None:
    """Print what was found, against the truth."""
    started = time.perf_counter()
    cases = read_repair_cases(year.ledger, Nanoseconds(DAYS * DAY))
    seconds = time.perf_counter() - started
    ended = [case for case in cases if case.returned_at is not None]
    complete = sum(not case.missing for case in ended)
    print(f"{year.cases} repairs simulated, {len(cases)} cases read in {seconds:.1f} s")
    print(f"complete: {complete} of {len(ended)} ({complete / len(ended):.2f})")
    serials, slots = offenders(year)
    many = {(p.machine, p.slot): p for p in year.all_placements()}
    repeated = [
        where for where in many if sum((i.machine, i.slot) == where for i in year.incidents) >= 3
    ]
    bad = set(year.bad_slots) | {
        (p.machine, p.slot) for p in year.all_placements() if p.gpu_serial in year.bad_boards
    }
    print(
        f"offending slots: {len(slots)}, truly bad (slot or board) {len(slots & bad)}; "
        f"bad with at least three incidents: {len(set(repeated) & bad)}, of these named "
        f"{len(set(repeated) & bad & slots)}"
    )
    print(
        f"offending serials: {len(serials)}, of them bad boards "
        f"{len(serials & year.bad_boards)}, in a bad slot "
        f"{len({s for s in serials - year.bad_boards if _was_in(year, s)})}"
    )
    told = judge_separations(year.all_placements(), year.incidents)
    for culprit in Culprit:
        rows = [row for row in told if row.culprit is culprit]
        boards = sum(row.gpu_serial in year.bad_boards for row in rows)
        chassis = sum((row.machine, row.slot) in year.bad_slots for row in rows)
        good = sum(
            row.gpu_serial not in year.bad_boards and (row.machine, row.slot) not in year.bad_slots
            for row in rows
        )
        print(
            f"told {culprit.value}: {len(rows)}, board bad {boards}, slot bad {chassis}, "
            f"neither bad {good}"
        )


def _was_in(year: Year, serial: str) -> bool:
    return any(
        p.gpu_serial == serial and (p.machine, p.slot) in year.bad_slots
        for p in year.all_placements()
    )


def main() -> None:
    """Simulate the year and print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="few machines, for CI")
    parser.add_argument("--machines", type=int, default=300)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"
        with Ledger.open(url) as ledger:
            machines = 20 if args.short else args.machines
            year = Year(ledger, machines, np.random.default_rng(1))
            for day in range(DAYS):
                year.day(day)
            report(year)


if __name__ == "__main__":
    main()
