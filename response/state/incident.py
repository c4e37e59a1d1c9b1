"""Incidents: all that is known, decided and done about one GPU, one machine or one event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision
from forewarn.response.state.finding import Finding

__all__ = ["Incident", "IncidentState", "Outcome"]


class IncidentState(StrEnum):
    """Whether anything is still to be done about an incident."""

    OPEN = "open"
    OVERRIDDEN = "overridden"
    CLOSED = "closed"


class Outcome(StrEnum):
    """What came of an incident.

    `CONFIRMED` by a ticket, a failure or a failed check. `NOT_CONFIRMED`: its horizon passed, and
    the machine was in service under load throughout. `UNKNOWN`: nobody can say, as of a machine
    that was drained and then found healthy.
    """

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not_confirmed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Incident:
    """What is known, decided and done about one GPU or machine, or about one event on many.

    Attributes
    ----------
    id : int
    machine : str
        Of a shared incident the one that was first.
    gpu_serial : str or None
    opened_at : int
        Nanoseconds since 1970 UTC.
    state : IncidentState
    shared : str
        What its machines have in common (`job 4711`, `rack r7`); empty for one machine.
    machines : tuple of str
        All of them, the first first.
    findings : tuple of Finding
        Newest last.
    decision : Decision or None
        The last one.
    actions : tuple of Action
        Oldest first.
    outcome : Outcome or None
    acknowledged : bool
        A person has said that it is theirs.
    """

    id: int
    machine: str
    gpu_serial: str | None
    opened_at: Nanoseconds
    state: IncidentState = IncidentState.OPEN
    shared: str = ""
    machines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None
    actions: tuple[Action, ...] = ()
    outcome: Outcome | None = None
    acknowledged: bool = False
