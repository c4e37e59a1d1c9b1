"""Add the outbox of messages."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, Text

revision = "ledger_0004"
down_revision = "ledger_0003"

ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Create the tables of messages."""
    op.create_table(
        "message_states",
        Column("incident", ID, ForeignKey("incidents.id"), nullable=False, primary_key=True),
        *(_integer("change"), _text("reported"), _integer("severity"), _integer("highest")),
        *(Column(name, Boolean, nullable=False) for name in ("predicted", "ended")),
        _time("at"),
    )
    op.create_table(
        "messages",
        Column("id", ID, primary_key=True),
        _text("receiver"),
        Column("incident", ID, ForeignKey("incidents.id"), nullable=True),
        *(_text("kind"), Column("page", Boolean, nullable=False), _text("body")),
        *(_time("at"), _time("due_at"), _integer("attempts"), _time("ended_at", nullable=True)),
    )
    op.create_table(
        "message_receivers",
        Column("name", Text, primary_key=True),
        *(_integer("failures"), _time("retry_at"), _time("failing_since", nullable=True)),
        _text("error"),
    )
    for name, table, columns in (
        ("message_states_by_severity", "message_states", ["ended", "predicted", "severity"]),
        ("messages_of_receiver", "messages", ["receiver", "ended_at", "id"]),
        ("messages_of_incident", "messages", ["incident", "receiver"]),
        ("messages_at", "messages", ["receiver", "at"]),
    ):
        op.create_index(name, table, columns)


def _text(name: str) -> Column[Any]:
    return Column(name, Text, nullable=False)


def _integer(name: str) -> Column[Any]:
    return Column(name, Integer, nullable=False)


def _time(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, BigInteger, nullable=nullable)
