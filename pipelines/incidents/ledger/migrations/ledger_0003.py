"""Add blocks of a machine for one job."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text

revision = "ledger_0003"
down_revision = "ledger_0002"

ID = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Create the table of blocks."""
    texts = ("job", "machine", "reason", "owner", "state", "detail")
    op.create_table(
        "job_blocks",
        Column("block", ID, primary_key=True, autoincrement=False),
        Column("version", Integer, primary_key=True, autoincrement=False),
        *(Column(name, Text, nullable=False) for name in texts),
        *(Column(name, BigInteger, nullable=False) for name in ("at", "valid_until", "changed_at")),
    )
