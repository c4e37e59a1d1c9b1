"""Add the events of the recovery of jobs, and the owners of jobs with a block."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text, UniqueConstraint

revision = "ledger_0005"
down_revision = "ledger_0004"

ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Create the table of recovery events, and add the column of owners."""
    op.create_table(
        "recovery_events",
        Column("id", ID, primary_key=True),
        Column("job", Text, nullable=False),
        Column("at", BigInteger, nullable=False),
        *(Column(name, Text, nullable=False) for name in ("kind", "value", "who")),
        UniqueConstraint("job", "at", "kind", "value", name="recovery_event_once"),
    )
    owner = Column("job_owner", Text, nullable=False, server_default="")
    op.add_column("job_blocks", owner)
