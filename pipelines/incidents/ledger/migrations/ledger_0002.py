"""Findings are known by source, machine and name, and say who vouched for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "ledger_0002"
down_revision = "ledger_0001"

# Sources of forewarn itself at that time: everything else came over the API, with shared tokens.
OURS = ("forewarn", "at_risk", "detect", "records", "scheduler", "slurm", "check", "failures")
BY_HAND = "by hand"
AT_ONCE = 5_000  # rows


def upgrade() -> None:
    """Change the findings, and the names by which decisions refer to them."""
    with op.batch_alter_table("findings") as table:
        table.add_column(sa.Column("vouched", sa.Text, nullable=False, server_default="host"))
        table.drop_constraint("findings_of_source", type_="unique")
        table.create_unique_constraint(
            "findings_of_source", ["source", "key", "machine", "vouched", "at"]
        )
    connection = op.get_bind()
    findings = sa.table("findings", *map(sa.column, ("id", "source", "key", "machine", "cause")))
    vouched = sa.table("findings", *map(sa.column, ("source", "cause", "vouched")))
    posted = vouched.c.source.not_in(OURS) & (vouched.c.cause != BY_HAND)
    connection.execute(sa.update(vouched).where(posted).values(vouched="shared"))
    decisions = sa.table("decisions", sa.column("id"), sa.column("findings"))
    query = sa.select(decisions).order_by(decisions.c.id).limit(AT_ONCE)
    rows = connection.execute(query).all()
    while rows:
        _rename(connection, decisions, findings, rows)
        rows = connection.execute(query.where(decisions.c.id > rows[-1].id)).all()


def _rename(connection: Any, decisions: Any, findings: Any, rows: Iterable[Any]) -> None:
    """Give the findings of some decisions their longer names."""
    pairs = {row.id: list(_pairs(row.findings)) for row in rows}
    keys = sorted({key for names in pairs.values() for _, key in names})
    longer: dict[tuple[str, str], list[str]] = {}
    for start in range(0, len(keys), AT_ONCE):
        query = sa.select(findings).where(findings.c.key.in_(keys[start : start + AT_ONCE]))
        for row in connection.execute(query):
            ours = row.source in OURS or row.cause == BY_HAND
            names = [row.source, row.machine, row.key, "host" if ours else "shared"]
            longer[row.source, row.key] = names
    values = [
        {"row": row, "names": json.dumps([longer[pair] for pair in names if pair in longer])}
        for row, names in pairs.items()
        if names
    ]
    if values:
        statement = sa.update(decisions).where(decisions.c.id == sa.bindparam("row"))
        connection.execute(statement.values(findings=sa.bindparam("names")), values)


def _pairs(text: object) -> Iterator[tuple[str, str]]:
    """Yield the (source, id) of a decision; of one that cannot be read, none: it stays as it is."""
    try:
        names = json.loads(text) if isinstance(text, str) else []
        yield from [(source, key) for source, key in names if isinstance(source + key, str)]
    except (ValueError, TypeError):
        return
