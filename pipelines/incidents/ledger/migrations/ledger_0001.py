"""First schema: findings, incidents, decisions, actions and audit records."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Integer,
    Text,
    UniqueConstraint,
)

revision = "ledger_0001"
down_revision = None

ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Create all tables."""
    _create_findings()
    _create_incidents()
    _create_decisions()
    _create_actions()
    _create_audit()


def _number() -> Column[int]:
    return Column("id", ID, primary_key=True)


def _incident(*, primary_key: bool = False) -> Column[int]:
    return Column(
        "incident", ID, ForeignKey("incidents.id"), nullable=False, primary_key=primary_key
    )


def _texts(*names: str, nullable: bool = False) -> list[Column[Any]]:
    return [Column(name, Text, nullable=nullable) for name in names]


def _integers(*names: str, nullable: bool = False) -> list[Column[Any]]:
    return [Column(name, BigInteger, nullable=nullable) for name in names]


def _create_findings() -> None:
    op.create_table(
        "findings",
        _number(),
        *_texts("source", "key", "kind", "cause", "machine"),
        *_texts("gpu_serial", "job", nullable=True),
        *_integers("at", "valid_until"),
        *_texts("severity", nullable=True),
        *_texts("evidence", "model_version"),
        *_integers("first", "last", "count", "taken_at"),
        UniqueConstraint("source", "key", name="findings_of_source"),
    )
    op.create_index("findings_of_machine", "findings", ["machine"])


def _create_incidents() -> None:
    op.create_table(
        "incidents",
        _number(),
        *_texts("machine"),
        *_texts("gpu_serial", nullable=True),
        *_texts("shared"),
        *_integers("opened_at"),
        *_texts("who"),
    )
    op.create_index("incidents_of_machine", "incidents", ["machine"])
    op.create_index("incidents_shared", "incidents", ["shared"])
    op.create_table(
        "incident_findings",
        _incident(primary_key=True),
        Column("finding", ID, ForeignKey("findings.id"), nullable=False, primary_key=True),
        *_integers("at"),
    )
    op.create_index("incidents_of_finding", "incident_findings", ["finding"])
    versions = ("policy_version", "model_version")
    op.create_table(
        "incident_states",
        *(_number(), _incident(), *_texts("state"), *_integers("at")),
        *_texts("who", "why", *versions),
    )
    op.create_index("states_of_incident", "incident_states", ["incident"])
    op.create_table(
        "acknowledgements", _incident(primary_key=True), *_integers("at"), *_texts("who")
    )
    op.create_table(
        "outcomes",
        *(_number(), _incident(), *_texts("outcome"), *_integers("at"), *_texts("who", "why")),
        *_integers("failed_at", "known_at", nullable=True),
        *_texts(*versions),
    )
    op.create_index("outcomes_of_incident", "outcomes", ["incident"])


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        *(_number(), _incident(), *_integers("at"), *_texts("ruling", "step")),
        *(*_texts("mode", nullable=True), *_texts("severity", "reason")),
        *(*_integers("until", nullable=True), *_integers("valid_until")),
        *_texts("findings", "policy_version", "model_version", "who"),
        Column("propensity", Float, nullable=True),
        Column("control", Boolean, nullable=False),
    )
    op.create_index("decisions_of_incident", "decisions", ["incident"])
    op.create_table(
        "approvals",
        *(_number(), _incident(), *_integers("decision_at", "at")),
        *_texts("who", "policy_version", "model_version"),
    )
    op.create_index("approvals_of_incident", "approvals", ["incident"])


def _create_actions() -> None:
    op.create_table(
        "actions",
        *(_number(), _incident(), *_texts("machine", "pool")),
        *(*_texts("gpu_serial", "rack", "job", nullable=True), *_texts("cause", "step")),
        *(*_texts("mode", nullable=True), *_integers("at", "valid_until")),
        *(Column(name, Integer, nullable=False) for name in ("jobs", "gpus", "job_gpus")),
        *_texts("policy_version", "model_version"),
    )
    op.create_index("actions_of_incident", "actions", ["incident"])
    op.create_index("actions_of_machine", "actions", ["machine"])
    op.create_table(
        "action_states",
        Column("action", ID, ForeignKey("actions.id"), nullable=False, primary_key=True),
        Column("version", Integer, nullable=False, primary_key=True, autoincrement=False),
        *(*_texts("state"), *_integers("at"), *_texts("who", "detail", "controller", "boot")),
    )
    op.create_index("action_states_at", "action_states", ["at"])


def _create_audit() -> None:
    op.create_table(
        "switches",
        _number(),
        Column("acting", Boolean, nullable=False),
        *_integers("at"),
        *_texts("who", "why"),
    )
    op.create_table("notes", _number(), *_integers("at"), *_texts("who", "act", "target", "detail"))
    op.create_table(
        "services",
        Column("machine", Text, primary_key=True),
        Column("at", BigInteger, primary_key=True, autoincrement=False),
        *_integers("before"),
        Column("in_service", Boolean, nullable=False),
        Column("busy", Boolean, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "beats",
        Column("name", Text, primary_key=True),
        Column("at", BigInteger, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "versions",
        Column("what", Text, primary_key=True),
        Column("version", Text, primary_key=True),
        *_integers("at"),
    )
