"""Results of a replay: decisions, and the actions that would have been taken."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding

__all__ = ["ReplayAction", "ReplayDecision"]

_BLOCKED_PHRASES = ("; blocked by: ", "; observed only: ", "blocked by: ")


@dataclass(frozen=True, slots=True)
class ReplayAction:
    """Action that would have been taken.

    Attributes
    ----------
    action : Action
    gpu_serial : str or None
    findings : tuple of Finding
        Supporting findings.
    until : int
        Nanoseconds since 1970 UTC: when it would have ended.
    """

    action: Action
    gpu_serial: str | None
    findings: tuple[Finding, ...]
    until: Nanoseconds


@dataclass(frozen=True, slots=True)
class ReplayDecision:
    """Decision of a replay; there is one whenever the decision or its reason changes.

    Attributes
    ----------
    decision : Decision
    machine : str
    gpu_serial : str or None
    cause : str
        Cause of the first supporting finding.
    done : bool
        An earlier action has done or answered it, or the machine was drained externally.
    taken : ReplayAction or None
    """

    decision: Decision
    machine: str
    gpu_serial: str | None
    cause: str
    done: bool = False
    taken: ReplayAction | None = None

    @property
    def blocked_by(self) -> str | None:
        """What blocked the step; None if nothing did, or the step is `TELL`."""
        if self.decision.ruling is Ruling.PROPOSE:
            return "a person has to look"
        if self.decision.ruling is Ruling.ACT:
            return None
        for mark in _BLOCKED_PHRASES:
            _, is_held, why = self.decision.reason.partition(mark)
            if is_held:
                return why
        return None
