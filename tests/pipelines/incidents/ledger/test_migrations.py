"""Tests of migrations from earlier schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger import database as ledger_database
from forewarn.pipelines.incidents.ledger.database import VERSION_TABLE, LedgerDatabase
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import RecordedCounts
from forewarn.response.state.finding import Finding, FindingKey, Provenance, Severity

NOW = Nanoseconds(20)
FINDING = {
    "kind": "xid",
    "cause": "xid 79",
    "machine": "m1",
    "at": 10,
    "valid_until": 1000,
    "severity": "error",
    "evidence": '{"xid":79}',
    "model_version": "",
    "first": 10,
    "last": 12,
    "count": 3,
    "taken_at": 11,
}
POSTED = {"source": "nhc", "key": "link", "cause": "check by nhc", "kind": "check"}
MANUAL = {"source": "ann", "key": "drain m3 1", "cause": "by hand", "kind": "report"}
FINDINGS = [
    {"id": 1, **FINDING, "source": "records", "key": "a"},
    {"id": 2, **FINDING, **POSTED, "machine": "m2"},
    {"id": 3, **FINDING, **MANUAL, "machine": "m3"},
]
DECISION = {
    "at": 20,
    "ruling": "propose",
    "step": "drain",
    "mode": "finish",
    "severity": "error",
    "reason": "xid 79: drain",
    "valid_until": 1000,
    "policy_version": "p1",
    "model_version": "",
    "who": "forewarn",
    "control": False,
}
DECISIONS = [
    {"id": 1, "incident": 1, **DECISION, "findings": '[["records","a"]]'},
    {"id": 2, "incident": 2, **DECISION, "findings": '[["nhc","link"],["records","gone"]]'},
    {"id": 3, "incident": 3, **DECISION, "findings": "damaged"},
]


def insert(connection: Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(rows[0])
    values = ", ".join(f":{name}" for name in names)
    quoted = ", ".join(f'"{name}"' for name in names)
    connection.execute(text(f"INSERT INTO {table} ({quoted}) VALUES ({values})"), list(rows))


def write_old_ledger(url: str) -> None:
    """Write a ledger with the first schema."""
    database = LedgerDatabase(ledger_database._engine(ledger_database._address(url, {})))
    (first,) = [s for s in ledger_database._scripts().walk_revisions() if not s.down_revision]
    with database.writing() as connection:
        options = {"version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        with Operations.context(context):
            first.module.upgrade()
        context.stamp(ledger_database._scripts(), first.revision)
        insert(connection, "findings", FINDINGS)
        opened = [
            {"id": row, "machine": f"m{row}", "shared": "", "opened_at": 20, "who": "records"}
            for row in (1, 2, 3)
        ]
        insert(connection, "incidents", opened)
        members = [{"incident": row, "finding": row, "at": 20} for row in (1, 2, 3)]
        insert(connection, "incident_findings", members)
        insert(connection, "decisions", DECISIONS)
        if url.startswith("postgresql"):
            for table in ("findings", "incidents", "decisions"):
                last = f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), 3)"
                connection.execute(text(last))
    database.engine.dispose()


def test_migration_keeps_findings_and_decisions(url: str) -> None:
    write_old_ledger(url)
    with Ledger.open(url) as ledger:
        first, second, third = ledger.open_incidents()
        assert [first.findings[0].key, third.findings[0].key] == [
            FindingKey("records", "m1", "a"),
            FindingKey("ann", "m3", "drain m3 1"),
        ]
        # Findings from the API came with shared tokens.
        posted = FindingKey("nhc", "m2", "link", Provenance.SHARED)
        assert second.findings[0].key == posted
        assert (first.findings[0].count, first.findings[0].severity) == (3, Severity.ERROR)
        assert first.decision is not None
        assert first.decision.findings == (first.findings[0].key,)
        assert second.decision is not None
        assert second.decision.findings == (posted,)
        assert third.decision is None  # it was unreadable before
        with ledger.database.reading() as connection:
            broken = connection.scalar(text("SELECT findings FROM decisions WHERE id = 3"))
        assert broken == "damaged"


def test_migrated_ledger_accepts_new_findings(url: str, finding: Callable[..., Finding]) -> None:
    write_old_ledger(url)
    with Ledger.open(url) as ledger:
        assert ledger.record_findings(
            [finding(at=15), finding("b", at=15)], now=NOW
        ) == RecordedCounts(1, 1)
        assert ledger.record_findings([finding(machine="m9", at=15)], now=NOW) == RecordedCounts(
            1, 0
        )
        assert [incident.id for incident in ledger.open_incidents()] == [1, 2, 3, 4]


def test_migration_keeps_foreign_keys(url: str) -> None:
    write_old_ledger(url)
    with Ledger.open(url) as ledger, ledger.database.writing() as connection:
        if connection.dialect.name == "sqlite":
            assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
        keys = inspect(connection).get_foreign_keys("incident_findings")
        assert {key["referred_table"] for key in keys} == {"incidents", "findings"}
        names = [c["name"] for c in inspect(connection).get_unique_constraints("findings")]
        assert names == ["findings_of_source"]


def test_migrated_decision_has_full_keys(url: str) -> None:
    write_old_ledger(url)
    with Ledger.open(url) as ledger, ledger.database.reading() as connection:
        names = connection.scalar(text("SELECT findings FROM decisions WHERE id = 1"))
        assert json.loads(str(names)) == [["records", "m1", "a", "host"]]
