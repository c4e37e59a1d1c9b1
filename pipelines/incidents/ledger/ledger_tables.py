"""The tables of the ledger; `migrations/` makes them, this says what they hold.

Rows are only added. The exceptions are `last`, `count` and `severity` of a finding. What changes in
life, such as the state of an action, is a row for each change, and the newest one counts.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

__all__ = [
    "acknowledgements",
    "action_states",
    "actions",
    "approvals",
    "beats",
    "decisions",
    "findings",
    "incident_findings",
    "incident_states",
    "incidents",
    "metadata",
    "notes",
    "outcomes",
    "services",
    "switches",
    "versions",
]

MAX_TEXT_LENGTH = 4096


class SafeText(TypeDecorator[str]):
    """Text of any origin, made such that each database takes it.

    PostgreSQL takes no NUL and nothing that UTF-8 cannot hold; they become U+FFFD. What is longer
    than 4,096 characters is cut, and ends with an ellipsis.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return what is stored, or compared with."""
        del dialect
        if value is None or (
            value.isascii() and "\0" not in value and len(value) < MAX_TEXT_LENGTH
        ):
            return value
        words = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        words = words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return words if len(words) <= MAX_TEXT_LENGTH else words[: MAX_TEXT_LENGTH - 1] + "…"


metadata = MetaData()
# SQLite numbers rows by itself only where the type is exactly INTEGER; its integers have 64 bits.
_ID = BigInteger().with_variant(Integer, "sqlite")


def _number() -> Column[int]:
    return Column("id", _ID, primary_key=True)


def _time(name: str = "at", *, nullable: bool = False) -> Column[Any]:
    """Nanoseconds since 1970 UTC."""
    return Column(name, BigInteger, nullable=nullable)


def _words(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, SafeText, nullable=nullable)


def _incident(*, primary_key: bool = False) -> Column[int]:
    column = ForeignKey("incidents.id")
    return Column("incident", _ID, column, nullable=False, primary_key=primary_key)


def _because() -> tuple[Column[Any], Column[Any]]:
    """By which policy and which model: those of the incident's last decision at that time."""
    return _words("policy_version"), _words("model_version")


findings = Table(
    "findings",
    metadata,
    _number(),
    _words("source"),
    _words("key"),
    *(_words("kind"), _words("cause"), _words("machine")),
    *(_words("gpu_serial", nullable=True), _words("job", nullable=True)),
    *(_time(), _time("valid_until"), _words("severity", nullable=True)),
    Column("evidence", Text, nullable=False),  # JSON, bounded by whoever writes it
    _words("model_version"),
    *(_time("first"), _time("last"), Column("count", BigInteger, nullable=False)),
    _time("taken_at"),
    Column("vouched", SafeText, nullable=False, server_default="host"),
    UniqueConstraint("source", "key", "machine", "vouched", "at", name="findings_of_source"),
    Index("findings_of_machine", "machine"),
)

incidents = Table(
    "incidents",
    metadata,
    _number(),
    *(_words("machine"), _words("gpu_serial", nullable=True), _words("shared")),
    *(_time("opened_at"), _words("who")),
    Index("incidents_of_machine", "machine"),
    Index("incidents_shared", "shared"),
)

incident_findings = Table(
    "incident_findings",
    metadata,
    _incident(primary_key=True),
    Column("finding", _ID, ForeignKey("findings.id"), nullable=False, primary_key=True),
    _time(),
    Index("incidents_of_finding", "finding"),
)

incident_states = Table(
    "incident_states",
    metadata,
    _number(),
    _incident(),
    *(_words("state"), _time(), _words("who"), _words("why")),
    *_because(),
    Index("states_of_incident", "incident"),
)

acknowledgements = Table(
    "acknowledgements", metadata, _incident(primary_key=True), _time(), _words("who")
)

outcomes = Table(
    "outcomes",
    metadata,
    _number(),
    _incident(),
    *(_words("outcome"), _time(), _words("who"), _words("why")),
    *(_time("failed_at", nullable=True), _time("known_at", nullable=True)),
    *_because(),
    Index("outcomes_of_incident", "incident"),
)

decisions = Table(
    "decisions",
    metadata,
    _number(),
    _incident(),
    *(_time(), _words("ruling"), _words("step"), _words("mode", nullable=True)),
    *(_words("severity"), _words("reason")),
    *(_time("until", nullable=True), _time("valid_until")),
    Column("findings", Text, nullable=False),  # JSON: [[source, machine, id, vouched], ...]
    *_because(),
    _words("who"),
    Column("propensity", Float, nullable=True),
    Column("control", Boolean, nullable=False),
    Index("decisions_of_incident", "incident"),
)

approvals = Table(
    "approvals",
    metadata,
    _number(),
    _incident(),
    *(_time("decision_at"), _time(), _words("who")),
    *_because(),
    Index("approvals_of_incident", "incident"),
)

actions = Table(
    "actions",
    metadata,
    _number(),
    _incident(),
    *(_words("machine"), _words("pool")),
    *(_words(name, nullable=True) for name in ("gpu_serial", "rack", "job")),
    _words("cause"),
    *(_words("step"), _words("mode", nullable=True), _time(), _time("valid_until")),
    *(Column(name, Integer, nullable=False) for name in ("jobs", "gpus", "job_gpus")),
    *_because(),
    Index("actions_of_incident", "incident"),
    Index("actions_of_machine", "machine"),
)

action_states = Table(
    "action_states",
    metadata,
    Column("action", _ID, ForeignKey("actions.id"), nullable=False, primary_key=True),
    Column("version", Integer, nullable=False, primary_key=True, autoincrement=False),
    *(_words("state"), _time(), _words("who"), _words("detail")),
    *(_words("controller"), _words("boot")),
    Index("action_states_at", "at"),
)

switches = Table(
    "switches",
    metadata,
    _number(),
    Column("acting", Boolean, nullable=False),
    *(_time(), _words("who"), _words("why")),
)

notes = Table(
    "notes",
    metadata,
    _number(),
    *(_time(), _words("who"), _words("act"), _words("target"), _words("detail")),
)

services = Table(
    "services",
    metadata,
    Column("machine", SafeText, primary_key=True),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("before", BigInteger, nullable=False),
    Column("in_service", Boolean, nullable=False),
    Column("busy", Boolean, nullable=False),
    sqlite_with_rowid=False,
)

beats = Table(
    "beats",
    metadata,
    Column("name", SafeText, primary_key=True),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

versions = Table(
    "versions",
    metadata,
    Column("what", SafeText, primary_key=True),
    Column("version", SafeText, primary_key=True),
    _time(),
)
