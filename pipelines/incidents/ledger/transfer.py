"""Copy of a ledger to another database, such as from SQLite to PostgreSQL."""

from __future__ import annotations

from sqlalchemy import func, select, text

from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import metadata

__all__ = ["copy_ledger"]

BATCH_ROWS = 10_000


def copy_ledger(source: Ledger, target: Ledger) -> int:
    """Copy all rows with their numbers into an empty ledger; return the number of rows.

    Raises
    ------
    LedgerError
        If the target is not empty.
    """
    n_rows = 0
    with source.database.reading() as old, target.database.writing() as new:
        for table in metadata.sorted_tables:
            if new.execute(select(table).limit(1)).first() is not None:
                raise LedgerError(f"the target ledger is not empty: `{table.name}` has rows")
            rows = old.execution_options(yield_per=BATCH_ROWS).execute(select(table)).mappings()
            for part in rows.partitions():
                new.execute(table.insert(), [dict(row) for row in part])
                n_rows += len(part)
            if new.dialect.name == "postgresql" and "id" in table.columns:
                newest = new.scalar(select(func.max(table.c.id)))
                sequence = text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :newest)")
                if newest is not None:
                    new.execute(sequence, {"name": table.name, "newest": newest})
    return n_rows
