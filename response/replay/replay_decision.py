"""What a replay says: decisions, and the actions that would have been taken."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding

__all__ = ["ReplayAction", "ReplayDecision"]

_BLOCKED_PHRASES = ("; held back: ", "; observed only: ", "held back: ")


@dataclass(frozen=True, slots=True)
class ReplayAction:
    """An action that would have been taken.

    Attributes
    ----------
    action : Action
    gpu_serial : str or None
    findings : tuple of Finding
        Those it rests on.
    until : int
        Nanoseconds since 1970 UTC: when it would have ended.
    """

    action: Action
    gpu_serial: str | None
    findings: tuple[Finding, ...]
    until: Nanoseconds


@dataclass(frozen=True, slots=True)
class ReplayDecision:
    """A decision; there is one whenever it or its reason changes.

    Attributes
    ----------
    decision : Decision
    machine : str
    gpu_serial : str or None
    cause : str
        Of the finding that it rests on.
    done : bool
        An earlier action does it already or has answered it, or others took the machine out.
    taken : Taken or None
    """

    decision: Decision
    machine: str
    gpu_serial: str | None
    cause: str
    done: bool = False
    taken: ReplayAction | None = None

    @property
    def blocked_by(self) -> str | None:
        """What kept the step from being taken; None if nothing did, or it was only to tell."""
        if self.decision.ruling is Ruling.PROPOSE:
            return "a person has to look"
        if self.decision.ruling is Ruling.ACT:
            return None
        for mark in _BLOCKED_PHRASES:
            _, is_held, why = self.decision.reason.partition(mark)
            if is_held:
                return why
        return None
