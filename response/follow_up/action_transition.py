"""Transitions of open actions, and the state that is tracked for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.response.state.action import Action, ActionState

__all__ = ["ActionTransition", "DriverCall", "TrackedAction"]


class DriverCall(StrEnum):
    """Call of the scheduler driver."""

    APPLY = "apply"
    UNDO = "undo"
    EVICT = "evict"


@dataclass(frozen=True, slots=True)
class TrackedAction:
    """Open action with its tracked state.

    Attributes
    ----------
    action : Action
    controller, boot : str
        Start of the controller and of the machine when the action was last confirmed; empty if it
        never was.
    reapplied : bool
        Whether it was lost once and applied again.
    """

    action: Action
    controller: str = ""
    boot: str = ""
    reapplied: bool = False


@dataclass(frozen=True, slots=True)
class ActionTransition:
    """Next state of an open action, and the driver call that leads to it.

    Attributes
    ----------
    action : Action
        As read; a writer passes its version.
    state : ActionState
        Next state; equal to that of the action if nothing changed.
    call : DriverCall or None
        Made after the state is written.
    jobs : tuple of str
        Jobs to end, for `EVICT`.
    detail : str
    confirmed : bool
        The scheduler shows the action: store the start of the controller and of the machine.
    reapplied : bool
        It is applied for the second time.
    by : str
        Who overrode the action; empty if unknown.
    """

    action: Action
    state: ActionState
    call: DriverCall | None = None
    jobs: tuple[str, ...] = ()
    detail: str = ""
    confirmed: bool = False
    reapplied: bool = False
    by: str = ""
