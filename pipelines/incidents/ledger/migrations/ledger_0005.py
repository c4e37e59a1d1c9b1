"""Add the events of the recovery of jobs."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text, UniqueConstraint

revision = "ledger_0005"
down_revision = "ledger_0004"

ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Create the table of recovery events."""
    op.create_table(
        "recovery_events",
        Column("id", ID, primary_key=True),
        Column("job", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        *(Column(name, Text, nullable=False) for name in ("kind", "value", "who")),
        UniqueConstraint("job", "at", "kind", "value", name="recovery_event_once"),
    )
