"""Out-of-service spans of machines according to the ledger, by forewarn or others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

from sqlalchemy import select

from forewarn.features.records.failures import NEVER
from forewarn.features.records.out_of_service import OutOfServiceSpan, merge_spans
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import findings, services
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.decision.situation import group_by_machine
from forewarn.response.follow_up.external_drain import SCHEDULER_SOURCE

__all__ = ["read_absences"]

_EPOCH = Nanoseconds(0)


def read_absences(ledger: Ledger) -> list[OutOfServiceSpan]:
    """Return when machines were out of service: drained by forewarn, or observed out of service.

    A machine that only new jobs avoid is in service. Between observations, a machine counts as out
    of service until it is observed in service again, because unknown labels are the safe choice.
    """
    return merge_spans(
        [
            *_drained_by_forewarn(ledger),
            *_observed_outages(ledger),
            *_before_first_observation(ledger),
        ]
    )


def _drained_by_forewarn(ledger: Ledger) -> Iterator[OutOfServiceSpan]:
    for action in ledger.recent_actions(_EPOCH):
        if action.step.isolates and action.started:
            end = Nanoseconds(NEVER) if action.open else action.changed_at
            yield OutOfServiceSpan(action.machine, None, action.at, end)


def _observed_outages(ledger: Ledger) -> Iterator[OutOfServiceSpan]:
    """Yield the outages in the service log of machines that were out of service at some time."""
    log = services.c
    out = select(log.machine).where(log.in_service.is_(False))
    query = select(services).where(log.machine.in_(out)).order_by(log.machine, log.at)
    watched = group_by_machine(ledger.open_incidents())
    with ledger.database.reading() as connection:
        selected = connection.execute(query).all()
        rows = [row for row, _ in iter_readable(connection, services, selected, tuple)]
    for machine, of_machine in groupby(rows, lambda row: row.machine):
        looks = list(of_machine)
        for look, following in pairwise(looks):
            if not look.in_service:
                yield OutOfServiceSpan(machine, None, look.at, following.at)
        if not looks[-1].in_service:
            # A machine without an open incident is no longer observed.
            end = NEVER if machine in watched else looks[-1].at + DAY
            yield OutOfServiceSpan(machine, None, looks[-1].at, Nanoseconds(end))


def _before_first_observation(ledger: Ledger) -> Iterator[OutOfServiceSpan]:
    """Yield the time for which external drains had lasted at their first observation."""
    columns = (findings.c.id, findings.c.machine, findings.c.at, findings.c.taken_at)
    query = select(*columns).where(findings.c.source == SCHEDULER_SOURCE)
    with ledger.database.reading() as connection:
        drains: Any = connection.execute(query).all()
        for row, _ in iter_readable(connection, findings, drains, tuple):
            yield OutOfServiceSpan(row.machine, None, row.at, max(row.at, row.taken_at))
