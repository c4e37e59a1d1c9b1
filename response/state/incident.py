"""Incidents: findings, decisions and actions about one GPU, one machine or one event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision
from forewarn.response.state.finding import Finding

__all__ = ["Incident", "IncidentState", "Outcome"]


class IncidentState(StrEnum):
    """Whether an incident is open, overridden by a person, or closed."""

    OPEN = "open"
    OVERRIDDEN = "overridden"
    CLOSED = "closed"


class Outcome(StrEnum):
    """Outcome of an incident.

    `CONFIRMED` by a ticket, a failure or a failed check. `NOT_CONFIRMED`: the horizon passed, and
    the machine was in service under load throughout. `UNKNOWN`: the evidence cannot tell, such as
    after a drain.
    """

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not_confirmed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings, decisions and actions about one GPU, machine or shared event.

    Attributes
    ----------
    id : int
    machine : str
        Of a shared incident, the machine that was affected first.
    gpu_serial : str or None
    opened_at : int
        Nanoseconds since 1970 UTC.
    state : IncidentState
    shared : str
        What its machines have in common (`job 4711`, `rack r7`); empty for one machine.
    machines : tuple of str
        All machines, the first affected first.
    findings : tuple of Finding
        Newest last.
    decision : Decision or None
        The last one.
    actions : tuple of Action
        Oldest first.
    outcome : Outcome or None
    acknowledged : bool
        Whether a person has taken the incident on.
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
