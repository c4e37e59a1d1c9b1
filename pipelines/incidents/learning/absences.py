"""Absences: when machines were out of service, by whomever, as the ledger tells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from sqlalchemy import select

from forewarn.features.records.failures import NEVER
from forewarn.features.records.out_of_service import Absence, joined_absences
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger.damaged_rows import readable
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.tables import findings, services
from forewarn.response.decision.situation import by_machine
from forewarn.response.follow_up.foreign_drain import FROM_SCHEDULER

__all__ = ["absences_of"]

_EVER = Nanoseconds(0)


def absences_of(ledger: Ledger) -> list[Absence]:
    """Return when machines were out of service: what we took out, and what was seen out.

    A machine that only new jobs avoid is in service. Where nobody looked, a machine counts as out
    until it was seen in service again: unknown is the safe word for both.
    """
    return joined_absences([*_by_us(ledger), *_seen(ledger), *_before_seen(ledger)])


def _by_us(ledger: Ledger) -> Iterator[Absence]:
    for action in ledger.recent_actions(_EVER):
        if action.step.isolates and action.begun:
            end = Nanoseconds(NEVER) if action.open else action.changed_at
            yield Absence(action.machine, None, action.at, end)


def _seen(ledger: Ledger) -> Iterator[Absence]:
    """Yield what the service log saw of machines that were out at some time."""
    log = services.c
    out = select(log.machine).where(log.in_service.is_(False))
    query = select(services).where(log.machine.in_(out)).order_by(log.machine, log.at)
    watched = by_machine(ledger.open_incidents())
    with ledger.database.reading() as connection:
        selected = connection.execute(query).all()
        rows = [row for row, _ in readable(connection, services, selected, tuple)]
    for machine, of_machine in groupby(rows, lambda row: row.machine):
        looks = list(of_machine)
        for look, following in pairwise(looks):
            if not look.in_service:
                yield Absence(machine, None, look.at, following.at)
        if not looks[-1].in_service:
            # A machine without an open incident is no longer looked at.
            end = NEVER if machine in watched else looks[-1].at + DAY
            yield Absence(machine, None, looks[-1].at, Nanoseconds(end))


def _before_seen(ledger: Ledger) -> Iterator[Absence]:
    """Yield how long drains by others had lasted when they were seen first."""
    columns = (findings.c.id, findings.c.machine, findings.c.at, findings.c.taken_at)
    query = select(*columns).where(findings.c.source == FROM_SCHEDULER)
    with ledger.database.reading() as connection:
        drains: Any = connection.execute(query).all()
        for row, _ in readable(connection, findings, drains, tuple):
            yield Absence(row.machine, None, row.at, max(row.at, row.taken_at))
