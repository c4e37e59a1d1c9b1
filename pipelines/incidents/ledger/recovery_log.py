"""Events of the recovery of jobs in the ledger; an event that is recorded twice is one row."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, insert, select

from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import recovery_events as table
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.recovery.job_crash import JobCrash
from forewarn.response.recovery.recovery_state import (
    CheckpointSaved,
    RecoveryEvent,
    RungBegun,
    RungFailed,
    StepMade,
)

__all__ = ["Decide", "decide_once", "read_events", "record_events"]

Decide = Callable[[list[RecoveryEvent]], Iterable[RecoveryEvent]]
_KINDS: Final[Mapping[str, type[RecoveryEvent]]] = {
    "saved": CheckpointSaved,
    "step": StepMade,
    "crash": JobCrash,
    "failed": RungFailed,
    "begun": RungBegun,
}
_READERS: Final[Mapping[str, TypeAdapter[RecoveryEvent]]] = {
    name: TypeAdapter(kind) for name, kind in _KINDS.items()
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def read_events(ledger: Ledger, jobs: Collection[str]) -> list[RecoveryEvent]:
    """Return the events of a job under any of its names, oldest first."""
    with ledger.database.reading() as connection:
        return _select(connection, jobs)


def record_events(ledger: Ledger, job: str, events: Iterable[RecoveryEvent], *, who: str) -> None:
    """Record events; those that are known change nothing."""
    with ledger.database.writing() as connection:
        _insert(connection, job, events, who)


def decide_once(
    ledger: Ledger, job: str, jobs: Collection[str], decide: Decide, *, who: str
) -> list[RecoveryEvent]:
    """Decide about a job and record what was decided, in one transaction.

    Of two callers at once the second one sees what the first one has decided. Carry a decision out
    only after this has returned.

    Parameters
    ----------
    ledger : Ledger
    job : str
        Name under which it is recorded.
    jobs : collection of str
        All names of the job.
    decide : callable
        Returns the events to record, from those that are known.
    who : str
    """
    with ledger.database.writing() as connection:
        decided = list(decide(_select(connection, jobs)))
        _insert(connection, job, decided, who)
    return decided


def _select(connection: Connection, jobs: Collection[str]) -> list[RecoveryEvent]:
    query = select(table).where(table.c.job.in_(jobs)).order_by(table.c.at, table.c.id)
    rows = connection.execute(query).all()
    return [event for _, event in iter_readable(connection, table, rows, _parse)]


def _insert(connection: Connection, job: str, events: Iterable[RecoveryEvent], who: str) -> None:
    for event in events:
        values = {"job": job, "at": event.at, "kind": _NAMES[type(event)], "value": _text(event)}
        same = [table.c[name] == value for name, value in values.items()]
        if connection.execute(select(table.c.id).where(*same)).first() is None:
            connection.execute(insert(table).values(**values, who=who))


def _text(event: RecoveryEvent) -> str:
    fields = (name for name in type(event).__slots__ if name != "at")
    return json.dumps({name: getattr(event, name) for name in fields}, sort_keys=True)


def _parse(row: Row[Any]) -> RecoveryEvent:
    values = json.loads(row.value)
    if not isinstance(values, dict):
        raise ValueError(f"`value` is {ascii(values)[:60]}, expected an object")
    return _READERS[row.kind].validate_python({**values, "at": row.at})
