"""Identify findings by source, machine and id, with their provenance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "ledger_0002"
down_revision = "ledger_0001"

# Sources of forewarn itself at that time; all other findings came over the API with shared tokens.
OWN_SOURCES = (
    "forewarn",
    "at_risk",
    "detect",
    "records",
    "scheduler",
    "slurm",
    "check",
    "failures",
)
MANUAL_CAUSE = "by hand"
BATCH_ROWS = 5_000


def upgrade() -> None:
    """Extend the key of findings, and the keys by which decisions refer to them."""
    with op.batch_alter_table("findings") as table:
        table.add_column(sa.Column("vouched", sa.Text, nullable=False, server_default="host"))
        table.drop_constraint("findings_of_source", type_="unique")
        table.create_unique_constraint(
            "findings_of_source", ["source", "key", "machine", "vouched", "at"]
        )
    connection = op.get_bind()
    findings = sa.table("findings", *map(sa.column, ("id", "source", "key", "machine", "cause")))
    vouched = sa.table("findings", *map(sa.column, ("source", "cause", "vouched")))
    posted = vouched.c.source.not_in(OWN_SOURCES) & (vouched.c.cause != MANUAL_CAUSE)
    connection.execute(sa.update(vouched).where(posted).values(vouched="shared"))
    decisions = sa.table("decisions", sa.column("id"), sa.column("findings"))
    query = sa.select(decisions).order_by(decisions.c.id).limit(BATCH_ROWS)
    rows = connection.execute(query).all()
    while rows:
        _replace_keys(connection, decisions, findings, rows)
        rows = connection.execute(query.where(decisions.c.id > rows[-1].id)).all()


def _replace_keys(connection: Any, decisions: Any, findings: Any, rows: Iterable[Any]) -> None:
    """Replace the finding keys of some decisions by the full_keys ones."""
    pairs = {row.id: list(_pairs(row.findings)) for row in rows}
    keys = sorted({key for names in pairs.values() for _, key in names})
    full_keys: dict[tuple[str, str], list[str]] = {}
    for start in range(0, len(keys), BATCH_ROWS):
        query = sa.select(findings).where(findings.c.key.in_(keys[start : start + BATCH_ROWS]))
        for row in connection.execute(query):
            own = row.source in OWN_SOURCES or row.cause == MANUAL_CAUSE
            names = [row.source, row.machine, row.key, "host" if own else "shared"]
            full_keys[row.source, row.key] = names
    values = [
        {"row": row, "names": json.dumps([full_keys[pair] for pair in names if pair in full_keys])}
        for row, names in pairs.items()
        if names
    ]
    if values:
        statement = sa.update(decisions).where(decisions.c.id == sa.bindparam("row"))
        connection.execute(statement.values(findings=sa.bindparam("names")), values)


def _pairs(text: object) -> Iterator[tuple[str, str]]:
    """Yield the (source, id) pairs of a decision; none if unreadable, which leaves it unchanged."""
    try:
        names = json.loads(text) if isinstance(text, str) else []
        yield from [(source, key) for source, key in names if isinstance(source + key, str)]
    except (ValueError, TypeError):
        return
