"""Stateful test of the ledger against a simple model.

After each step it also checks that no row was removed or changed, except for what repeats change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, text

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import RecordedCounts
from forewarn.pipelines.incidents.ledger.ledger_tables import metadata
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKey, Severity
from forewarn.response.state.incident import Incident, IncidentState, Outcome

Rows = dict[str, set[tuple[Any, ...]]]
STEPS = 15
REPEATED = {"last", "count", "severity", "gpu_serial"}
small = st.integers(0, 3)


def empty(connection: Connection) -> None:
    names = [table.name for table in reversed(metadata.sorted_tables)]
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"TRUNCATE {', '.join(names)} RESTART IDENTITY CASCADE"))
    else:
        for name in names:
            connection.execute(text(f"DELETE FROM {name}"))


def no_limit(recent: object) -> None:
    del recent


def all_rows(ledger: Ledger) -> Rows:
    """Return all rows, without the columns that repeats may change."""
    rows: Rows = {}
    with ledger.database.reading() as connection:
        for table in metadata.sorted_tables:
            columns = [column for column in table.columns if column.name not in REPEATED]
            selected = connection.execute(table.select().with_only_columns(*columns))
            rows[table.name] = {tuple(row) for row in selected}
    return rows


class Model(RuleBasedStateMachine):
    """Findings on a few machines, and all operations on their incidents."""

    ledger: Ledger
    finding: Callable[..., Finding]
    decision: Callable[..., Decision]
    action: Callable[..., Action]

    def __init__(self) -> None:
        super().__init__()
        self.now = 100
        self.incidents: dict[int, Incident] = {}
        self.ended_at: dict[int, Nanoseconds] = {}
        self.members: dict[int, list[int]] = {}  # rows of findings
        self.findings: dict[int, Finding] = {}
        self.newest: dict[FindingKey, int] = {}
        self.n_actions = 0
        self.rows: Rows = {}

    @initialize()
    def begin(self) -> None:
        with self.ledger.database.writing() as connection:
            empty(connection)
        # Two handles of one ledger, like two processes; the second reads only occasionally.
        self.writer, self.reader = Ledger(self.ledger.database), Ledger(self.ledger.database)

    def tick(self) -> Nanoseconds:
        self.now += 1
        return Nanoseconds(self.now)

    def open_numbers(self) -> list[int]:
        return [n for n, incident in self.incidents.items() if incident.state == "open"]

    def opened(self, machine: str, serial: str | None, shared: str = "") -> int:
        number = len(self.incidents) + 1
        now = Nanoseconds(self.now)
        self.incidents[number] = Incident(number, machine, serial, now, shared=shared)
        self.members[number] = []
        return number

    def expected(self, number: int) -> Incident:
        rows = sorted(self.members[number], key=lambda row: (self.findings[row].at, row))
        members = [self.findings[row] for row in rows]
        incident = self.incidents[number]
        machines = dict.fromkeys([incident.machine, *(row.machine for row in members)])
        serials = [incident.gpu_serial, *(row.gpu_serial for row in members), None]
        serial = None if incident.shared else next((s for s in serials if s), None)
        complete = replace(incident, findings=tuple(members), machines=tuple(machines))
        return replace(complete, gpu_serial=serial)

    @rule(rows=st.lists(st.tuples(small, small, st.sampled_from([None, "s1", "s2"])), max_size=5))
    def record_findings(self, rows: list[tuple[int, int, str | None]]) -> None:
        now = self.tick()
        batch = [
            self.finding(
                f"f{key}",
                f"m{machine}",
                now,
                gpu_serial=serial,
                valid_until=now + 1 + 4 * key,
                severity=list(Severity)[(now + key) % 4],
            )
            for key, machine, serial in rows
        ]
        counts = self.writer.record_findings(batch, now=now)
        results = [self.record_one(row) for row in batch]
        for key in sorted(
            self.findings.keys() - {k for rows in self.members.values() for k in rows}
        ):
            self.group(key)
        assert counts == RecordedCounts(
            new=results.count("new"), repeated=results.count("repeated")
        )

    def end_of(self, row: int) -> Nanoseconds | None:
        containing = [number for number, rows in self.members.items() if row in rows]
        if not containing or any(number not in self.ended_at for number in containing):
            return None
        return max(self.ended_at[number] for number in containing)

    def record_one(self, row: Finding) -> str:
        number = self.newest.get(row.key)
        if number is not None and row.repeats(self.findings[number], self.end_of(number)):
            before = self.findings[number]
            if len({row.gpu_serial, before.gpu_serial} - {None}) > 1:
                return "refused"
            self.findings[number] = replace(
                before,
                gpu_serial=before.gpu_serial or row.gpu_serial,
                last=row.at,
                count=before.count + 1,
                severity=row.severity,
            )
            return "repeated"
        self.newest[row.key] = len(self.findings) + 1
        self.findings[self.newest[row.key]] = replace(row, first=row.at, last=row.at)
        return "new"

    def group(self, key: int) -> None:
        row = self.findings[key]
        same = [
            n
            for n in reversed(self.open_numbers())
            if (self.incidents[n].machine, self.incidents[n].shared) == (row.machine, "")
            and (row.gpu_serial in self.serials(n) or {row.gpu_serial} | self.serials(n) == {None})
        ]
        number = same[0] if same else self.opened(row.machine, row.gpu_serial)
        self.members[number].append(key)

    def serials(self, number: int) -> set[str | None]:
        named = {self.findings[row].gpu_serial for row in self.members[number]}
        return (named | {self.incidents[number].gpu_serial}) - {None}

    @precondition(lambda self: self.open_numbers())
    @rule(data=st.data(), name=st.sampled_from(["job 1", "rack 2"]))
    def share(self, data: st.DataObject, name: str) -> None:
        parts = data.draw(st.lists(st.sampled_from(self.open_numbers()), min_size=1, unique=True))
        first, now = self.incidents[parts[0]].machine, self.tick()
        same = [n for n in self.open_numbers() if self.incidents[n].shared == name]
        target = same[0] if same else self.opened(first, None, name)
        number = self.writer.share(parts, shared=name, machine=first, now=now, why="")
        assert number == target
        for part in set(parts) - {target}:
            more = [key for key in self.members[part] if key not in self.members[target]]
            self.members[target] += more
            self.ended_at[part] = now
            self.incidents[part] = replace(self.incidents[part], state=IncidentState.CLOSED)

    @precondition(lambda self: self.open_numbers())
    @rule(data=st.data(), ruling=st.sampled_from(Ruling), reason=st.sampled_from(["a", "b"]))
    def decide(self, data: st.DataObject, ruling: Ruling, reason: str) -> None:
        number, now = data.draw(st.sampled_from(self.open_numbers())), self.tick()
        decision = self.decision(number, now, ruling=ruling, reason=reason)
        last = self.incidents[number].decision
        new = last is None or (last.ruling, last.reason) != (ruling, reason)
        assert self.writer.decide(decision) is new
        if new:
            self.incidents[number] = replace(self.incidents[number], decision=decision)

    @precondition(lambda self: self.open_numbers())
    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        number, now = data.draw(st.sampled_from(self.open_numbers())), self.tick()
        intended = self.action(number, self.incidents[number].machine, now)
        existing = [
            row
            for incident in self.incidents.values()
            for row in incident.actions
            if row.machine == intended.machine and row.open
        ]
        recorded = self.writer.act(intended, no_limit)
        if existing:
            assert recorded is None
            return
        assert recorded is not None
        self.n_actions += 1
        assert recorded == replace(intended, id=self.n_actions)
        self.put(recorded)

    def put(self, action: Action) -> None:
        incident = self.incidents[action.incident]
        by_number = {row.id: row for row in incident.actions} | {action.id: action}
        actions = tuple(by_number[number] for number in sorted(by_number))
        self.incidents[incident.id] = replace(incident, actions=actions)

    @precondition(lambda self: self.n_actions)
    @rule(data=st.data(), state=st.sampled_from(ActionState))
    def advance(self, data: st.DataObject, state: ActionState) -> None:
        actions = [row for incident in self.incidents.values() for row in incident.actions]
        action, now = data.draw(st.sampled_from(actions)), self.tick()
        if action.open:
            changed = replace(action, state=state, version=action.version + 1, changed_at=now)
            assert self.writer.advance(action, state, now=now) == changed
            assert self.writer.advance(action, state, now=now) is None
            self.put(changed)

    @precondition(lambda self: self.incidents)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def conclude(self, data: st.DataObject, outcome: Outcome) -> None:
        number = data.draw(st.sampled_from(sorted(self.incidents)))
        self.writer.outcome(number, outcome, now=self.tick(), who="ann", why="")
        self.writer.acknowledge(number, now=self.tick(), who="ann")
        self.incidents[number] = replace(self.incidents[number], outcome=outcome, acknowledged=True)

    @precondition(lambda self: self.incidents)
    @rule(
        data=st.data(),
        state=st.sampled_from([IncidentState.OVERRIDDEN, IncidentState.CLOSED]),
    )
    def end_incident(self, data: st.DataObject, state: IncidentState) -> None:
        number = data.draw(st.sampled_from(sorted(self.incidents)))
        self.writer.end_incident(number, state, now=self.tick(), who="ann", why="")
        self.ended_at.setdefault(number, Nanoseconds(self.now))
        self.incidents[number] = replace(self.incidents[number], state=state)

    @rule(number=st.integers(1, 6))
    def read(self, number: int) -> None:
        expected = [self.expected(number)] if number in self.incidents else []
        incident = self.reader.incident(number)
        assert [row for row in (incident,) if row is not None] == expected
        assert self.reader.open_incidents() == [self.expected(n) for n in self.open_numbers()]

    @invariant()
    def open_incidents_are_those_of_the_model(self) -> None:
        if self.rows:
            assert self.writer.open_incidents() == [self.expected(n) for n in self.open_numbers()]

    @invariant()
    def no_row_is_changed_or_removed(self) -> None:
        before, self.rows = self.rows, all_rows(self.ledger)
        if any(before.values()):
            lost = {name: rows - self.rows[name] for name, rows in before.items()}
            assert lost == {name: set() for name in lost}

    def teardown(self) -> None:
        open_actions = [
            row for incident in self.incidents.values() for row in incident.actions if row.open
        ]
        expected = sorted(open_actions, key=lambda row: row.id)
        assert self.ledger.open_actions() == expected


def test_ledger_matches_model(
    ledger: Ledger,
    finding: Callable[..., Finding],
    decision: Callable[..., Decision],
    action: Callable[..., Action],
) -> None:
    fields = {"finding": staticmethod(finding), "decision": staticmethod(decision)}
    machine = type("Bound", (Model,), {**fields, "ledger": ledger, "action": staticmethod(action)})
    profile = settings(
        max_examples=15 if ledger.database.engine.dialect.name == "sqlite" else 6,
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes
    )
    run_state_machine_as_test(machine, settings=profile)
