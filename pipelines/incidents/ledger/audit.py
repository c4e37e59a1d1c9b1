"""Switch changes, notes and heartbeats in the ledger."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import Connection, Row, func, insert, select

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.database import LedgerDatabase
from forewarn.pipelines.incidents.ledger.ledger_entries import AuditNote, SwitchChange
from forewarn.pipelines.incidents.ledger.ledger_tables import beats, notes, switches, versions
from forewarn.pipelines.incidents.ledger.quarantined_rows import DamagedRow, iter_readable

__all__ = ["Audit", "add_heartbeat", "add_note"]


_HEARTBEATS_READ: Final = 8  # the newest readable one counts


class Audit:
    """Ledger methods about records that belong to no incident."""

    database: LedgerDatabase

    def quarantined_rows(self, *tables: str) -> list[DamagedRow]:
        """Return the unreadable rows seen so far, of the given tables or of all.

        They cause no action on a machine, and all other rows are processed.
        """
        quarantine = self.database.quarantine
        return quarantine.in_tables(*tables) if tables else list(quarantine.rows.values())

    def switch(self, acting: bool, *, now: Nanoseconds, who: str, why: str) -> None:
        """Record that acting was switched off (the kill switch) or on again."""
        with self.database.writing() as connection:
            values = {"acting": acting, "at": now, "who": who, "why": why}
            connection.execute(insert(switches).values(**values))

    def last_switch(self) -> SwitchChange | None:
        """Return the last switch change; None if there is none."""
        with self.database.reading() as connection:
            query = select(switches).order_by(switches.c.id.desc()).limit(1)
            rows = connection.execute(query).all()
            read = [
                switch for _, switch in iter_readable(connection, switches, rows, _parse_switch)
            ]
        if rows and not read:  # an unreadable switch may be one that stops
            return SwitchChange(
                False, Nanoseconds(0), "forewarn", "the last switch change is unreadable"
            )
        return next(iter(read), None)

    def switched_off(self) -> SwitchChange | None:
        """Return the change that switched acting off; None if it is on."""
        last = self.last_switch()
        return None if last is None or last.acting else last

    def note(self, *, now: Nanoseconds, who: str, act: str, target: str, detail: str) -> None:
        """Add a note on an act over the API or the command line."""
        with self.database.writing() as connection:
            add_note(connection, now=now, who=who, act=act, target=target, detail=detail)

    def last_notes(self, act: str, targets: Collection[str]) -> dict[str, str]:
        """Return the detail of the last note on an act, of each target that has any."""
        same = (notes.c.act == act) & notes.c.target.in_(targets)
        newest = select(func.max(notes.c.id)).where(same).group_by(notes.c.target)
        query = select(notes.c.target, notes.c.detail).where(notes.c.id.in_(newest))
        with self.database.reading() as connection:
            return {str(row.target): str(row.detail or "") for row in connection.execute(query)}

    def notes(self, limit: int = 100) -> list[AuditNote]:
        """Return the last notes, newest first."""
        with self.database.reading() as connection:
            rows = connection.execute(select(notes).order_by(notes.c.id.desc()).limit(limit)).all()
            return [entry for _, entry in iter_readable(connection, notes, rows, _parse_note)]

    def record_heartbeat(self, name: str, now: Nanoseconds) -> None:
        """Record a heartbeat."""
        with self.database.writing() as connection:
            add_heartbeat(connection, name, now)

    def last_heartbeat(self, name: str) -> Nanoseconds | None:
        """Return the time of the last heartbeat; None if there is none."""
        with self.database.reading() as connection:
            query = select(beats).where(beats.c.name == name).order_by(beats.c.at.desc())
            rows = connection.execute(query.limit(_HEARTBEATS_READ)).all()
            times = (at for _, at in iter_readable(connection, beats, rows, lambda row: row.at))
            at = next(times, None)
        return None if at is None else Nanoseconds(at)

    def first_seen(self, what: str, version: str, now: Nanoseconds) -> Nanoseconds:
        """Return the time of the first use of a version, such as a policy's; record new ones."""
        same = (versions.c.what == what) & (versions.c.version == version)
        query = select(versions).where(same)
        with self.database.reading() as connection:
            rows = connection.execute(query).all()
            times = [at for _, at in iter_readable(connection, versions, rows, lambda row: row.at)]
        if rows:  # with an unreadable time it counts as new
            return Nanoseconds(times[0]) if times else now
        with self.database.writing() as connection:
            at = connection.scalar(query.with_only_columns(versions.c.at))
            if at is None:
                connection.execute(insert(versions).values(what=what, version=version, at=now))
        return Nanoseconds(at) if isinstance(at, int) else now


def _parse_switch(row: Row[Any]) -> SwitchChange:
    return SwitchChange(row.acting, row.at, row.who, row.why)


def _parse_note(row: Row[Any]) -> AuditNote:
    return AuditNote(row.at, row.who, row.act, row.target, row.detail)


def add_note(
    connection: Connection, *, now: Nanoseconds, who: str, act: str, target: str, detail: str
) -> None:
    """Add a note."""
    values = {"at": now, "who": who, "act": act, "target": target, "detail": detail}
    connection.execute(insert(notes).values(**values))


def add_heartbeat(connection: Connection, name: str, now: Nanoseconds) -> None:
    """Add a heartbeat, unless the same is recorded."""
    same = (beats.c.name == name) & (beats.c.at == now)
    if connection.scalar(select(beats.c.at).where(same)) is None:
        connection.execute(insert(beats).values(name=name, at=now))
