"""Tables of the ledger as the code expects them; `migrations/` creates them.

Rows are only added, except that repeats update a few columns of a finding, and that the tables of
messages hold what is still to be sent. A value that changes, such as the state of an action, has
one row per change, and the newest row counts.
"""

from __future__ import annotations

from functools import cache
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
    Select,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    bindparam,
    func,
    select,
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
    "job_blocks",
    "message_receivers",
    "message_states",
    "messages",
    "metadata",
    "newest_rows",
    "notes",
    "outcomes",
    "recovery_events",
    "services",
    "switches",
    "versions",
]

MAX_TEXT_LENGTH = 4096


class SafeText(TypeDecorator[str]):
    """Text that every database can store.

    PostgreSQL accepts neither NUL nor lone surrogates; they become U+FFFD. Text longer than 4,096
    characters is truncated and ends with an ellipsis.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the value to store or compare."""
        del dialect
        if value is None or (
            value.isascii() and "\0" not in value and len(value) < MAX_TEXT_LENGTH
        ):
            return value
        text = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - 1] + "…"


metadata = MetaData()
# SQLite generates row numbers only for the exact type INTEGER, which has 64 bits there.
_ID = BigInteger().with_variant(Integer, "sqlite")


def _number() -> Column[int]:
    return Column("id", _ID, primary_key=True)


def _time(name: str = "at", *, nullable: bool = False) -> Column[Any]:
    """Return a column with nanoseconds since 1970 UTC."""
    return Column(name, BigInteger, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, SafeText, nullable=nullable)


def _incident(*, primary_key: bool = False) -> Column[int]:
    column = ForeignKey("incidents.id")
    return Column("incident", _ID, column, nullable=False, primary_key=primary_key)


def _versions() -> tuple[Column[Any], Column[Any]]:
    """Return the policy and model versions of the incident's last decision at that time."""
    return _text("policy_version"), _text("model_version")


findings = Table(
    "findings",
    metadata,
    _number(),
    _text("source"),
    _text("key"),
    *(_text("kind"), _text("cause"), _text("machine")),
    *(_text("gpu_serial", nullable=True), _text("job", nullable=True)),
    *(_time(), _time("valid_until"), _text("severity", nullable=True)),
    Column("evidence", Text, nullable=False),  # JSON; its writer limits the size
    _text("model_version"),
    *(_time("first"), _time("last"), Column("count", BigInteger, nullable=False)),
    _time("taken_at"),
    Column("vouched", SafeText, nullable=False, server_default="host"),
    UniqueConstraint("source", "key", "machine", "vouched", "at", name="findings_of_source"),
    Index("findings_of_machine", "machine"),
    Index("findings_of_job", "job"),
)

incidents = Table(
    "incidents",
    metadata,
    _number(),
    *(_text("machine"), _text("gpu_serial", nullable=True), _text("shared")),
    *(_time("opened_at"), _text("who")),
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
    *(_text("state"), _time(), _text("who"), _text("why")),
    *_versions(),
    Index("states_of_incident", "incident"),
)

acknowledgements = Table(
    "acknowledgements", metadata, _incident(primary_key=True), _time(), _text("who")
)

outcomes = Table(
    "outcomes",
    metadata,
    _number(),
    _incident(),
    *(_text("outcome"), _time(), _text("who"), _text("why")),
    *(_time("failed_at", nullable=True), _time("known_at", nullable=True)),
    *_versions(),
    Index("outcomes_of_incident", "incident"),
)

decisions = Table(
    "decisions",
    metadata,
    _number(),
    _incident(),
    *(_time(), _text("ruling"), _text("step"), _text("mode", nullable=True)),
    *(_text("severity"), _text("reason")),
    *(_time("until", nullable=True), _time("valid_until")),
    Column("findings", Text, nullable=False),  # JSON: [[source, machine, id, vouched], ...]
    *_versions(),
    _text("who"),
    Column("propensity", Float, nullable=True),
    Column("control", Boolean, nullable=False),
    Index("decisions_of_incident", "incident"),
)

approvals = Table(
    "approvals",
    metadata,
    _number(),
    _incident(),
    *(_time("decision_at"), _time(), _text("who")),
    *_versions(),
    Index("approvals_of_incident", "incident"),
)

actions = Table(
    "actions",
    metadata,
    _number(),
    _incident(),
    *(_text("machine"), _text("pool")),
    *(_text(name, nullable=True) for name in ("gpu_serial", "rack", "job")),
    _text("cause"),
    *(_text("step"), _text("mode", nullable=True), _time(), _time("valid_until")),
    *(Column(name, Integer, nullable=False) for name in ("jobs", "gpus", "job_gpus")),
    *_versions(),
    Index("actions_of_incident", "incident"),
    Index("actions_of_machine", "machine"),
)

action_states = Table(
    "action_states",
    metadata,
    Column("action", _ID, ForeignKey("actions.id"), nullable=False, primary_key=True),
    Column("version", Integer, nullable=False, primary_key=True, autoincrement=False),
    *(_text("state"), _time(), _text("who"), _text("detail")),
    *(_text("controller"), _text("boot")),
    Index("action_states_at", "at"),
)

job_blocks = Table(
    "job_blocks",
    metadata,
    Column("block", _ID, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    *(_text(name) for name in ("job", "machine", "reason", "owner", "state", "detail")),
    *(_time(), _time("valid_until"), _time("changed_at")),
    Column("job_owner", SafeText, nullable=False, server_default=""),
)

recovery_events = Table(
    "recovery_events",
    metadata,
    _number(),
    *(_text("job"), _time(), _text("kind"), _text("value"), _text("who")),
    UniqueConstraint("job", "at", "kind", "value", name="recovery_event_once"),
)

switches = Table(
    "switches",
    metadata,
    _number(),
    Column("acting", Boolean, nullable=False),
    *(_time(), _text("who"), _text("why")),
)

notes = Table(
    "notes",
    metadata,
    _number(),
    *(_time(), _text("who"), _text("act"), _text("target"), _text("detail")),
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

message_states = Table(
    "message_states",
    metadata,
    _incident(primary_key=True),
    Column("change", Integer, nullable=False),
    _text("reported"),  # state that the receivers know
    Column("severity", Integer, nullable=False),  # its rank
    Column("highest", Integer, nullable=False),  # rank of the highest severity so far
    *(Column(name, Boolean, nullable=False) for name in ("predicted", "ended")),
    _time(),
    Index("message_states_by_severity", "ended", "predicted", "severity"),
)

messages = Table(
    "messages",
    metadata,
    _number(),
    _text("receiver"),
    Column("incident", _ID, ForeignKey("incidents.id"), nullable=True),
    *(_text("kind"), Column("page", Boolean, nullable=False)),
    Column("body", Text, nullable=False),  # JSON; its writer limits the size
    *(_time(), _time("due_at"), Column("attempts", Integer, nullable=False)),
    _time("ended_at", nullable=True),
    Index("messages_of_receiver", "receiver", "ended_at", "id"),
    Index("messages_of_incident", "incident", "receiver"),
    Index("messages_at", "receiver", "at"),
)

message_receivers = Table(
    "message_receivers",
    metadata,
    Column("name", SafeText, primary_key=True),
    Column("failures", Integer, nullable=False),
    *(_time("retry_at"), _time("failing_since", nullable=True), _text("error")),
)


@cache  # to build the statement takes longer than to run it
def newest_rows(table: Table) -> Select[Any]:
    """Return the statement for the newest row of a table about each of some `incidents`."""
    newest = select(func.max(table.c.id)).group_by(table.c.incident)
    newest = newest.where(table.c.incident.in_(bindparam("incidents", expanding=True)))
    return select(table).where(table.c.id.in_(newest))
