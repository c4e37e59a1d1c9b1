"""Ledger methods about blocks of a machine for one job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select
from sqlalchemy.exc import IntegrityError

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.database import LedgerDatabase
from forewarn.pipelines.incidents.ledger.ledger_tables import job_blocks
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.state.job_block import BlockState, JobBlock

__all__ = ["BlockLedger"]


class BlockLedger:
    """Blocks, each with one row for every change; the newest row counts."""

    database: LedgerDatabase

    def add_block(self, block: JobBlock, *, repeat: bool = True) -> JobBlock | None:
        """Record a block, which is then requested; return None if the job already has it.

        Parameters
        ----------
        block : JobBlock
            Without a number.
        repeat : bool
            Whether a block that has ended may be requested again: a manual change takes precedence.
        """
        with self.database.writing() as connection:
            known = _select(connection)
            same = (block.job, block.machine)
            earlier = [other for other in known if (other.job, other.machine) == same]
            if any(other.open or not repeat for other in earlier):
                return None
            newest = connection.scalar(select(func.max(job_blocks.c.block)))
            added = replace(block, id=(newest or 0) + 1)
            _insert(connection, added, now=block.at)
            return added

    def advance_block(
        self, block: JobBlock, state: BlockState, *, now: Nanoseconds, detail: str = ""
    ) -> JobBlock | None:
        """Record a new state; return None if the block has changed since it was read.

        Raises
        ------
        ValueError
            If the block has ended.
        """
        if not block.open:
            raise ValueError(f"block {block.id} has ended (`{block.state}`), cannot be changed")
        changed = replace(block, state=state, version=block.version + 1, detail=detail)
        with self.database.writing() as connection:
            try:
                with connection.begin_nested():
                    _insert(connection, changed, now=now)
            except IntegrityError:
                return None
        return changed

    def blocks(self) -> list[JobBlock]:
        """Return all blocks in their newest state, oldest first."""
        with self.database.reading() as connection:
            return _select(connection)

    def open_blocks(self) -> list[JobBlock]:
        """Return the blocks that have not ended, oldest first."""
        return [block for block in self.blocks() if block.open]


def _insert(connection: Connection, block: JobBlock, *, now: Nanoseconds) -> None:
    values = {name: getattr(block, name) for name in JobBlock.__slots__ if name != "id"}
    values |= {"block": block.id, "state": block.state.value, "changed_at": now}
    connection.execute(insert(job_blocks).values(**values))


def _select(connection: Connection) -> list[JobBlock]:
    newest = (
        select(job_blocks.c.block, func.max(job_blocks.c.version).label("version"))
        .group_by(job_blocks.c.block)
        .subquery()
    )
    same = (job_blocks.c.block == newest.c.block) & (job_blocks.c.version == newest.c.version)
    rows = connection.execute(select(job_blocks).join(newest, same).order_by(job_blocks.c.block))
    return [block for _, block in iter_readable(connection, job_blocks, rows.all(), _parse)]


def _parse(row: Row[Any]) -> JobBlock:
    return JobBlock(
        id=row.block,
        job=row.job,
        machine=row.machine,
        reason=row.reason,
        owner=row.owner,
        at=row.at,
        valid_until=row.valid_until,
        state=BlockState(row.state),
        version=row.version,
        detail=row.detail,
        job_owner=row.job_owner,
    )
