"""Index the findings of a job."""

from __future__ import annotations

from alembic import op

revision = "ledger_0006"
down_revision = "ledger_0005"


def upgrade() -> None:
    """Create the index."""
    op.create_index("findings_of_job", "findings", ["job"])
