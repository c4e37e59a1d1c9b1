"""What is done about an open action now, and what is remembered of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.response.state.action import Action, ActionState

__all__ = ["ActionTransition", "DriverCall", "TrackedAction"]


class DriverCall(StrEnum):
    """What is asked of the driver."""

    APPLY = "apply"
    UNDO = "undo"
    EVICT = "evict"


@dataclass(frozen=True, slots=True)
class TrackedAction:
    """An open action, and what is remembered of it.

    Attributes
    ----------
    action : Action
    controller, boot : str
        Those of the scheduler and of the machine when it was read to hold; empty if it never was.
    set_again : bool
        It was lost once, and set again.
    """

    action: Action
    controller: str = ""
    boot: str = ""
    reapplied: bool = False


@dataclass(frozen=True, slots=True)
class ActionTransition:
    """What is done about an open action now.

    Attributes
    ----------
    action : Action
        As it was read; whoever changes it names its version.
    state : ActionState
        To come to; the same as that of the action where nothing changed.
    call : Call or None
        What is asked of the driver, after the state is written.
    jobs : tuple of str
        To be ended, for `EVICT`.
    detail : str
        In words.
    holds : bool
        It was read to hold: remember the life of the controller and of the machine.
    set_again : bool
        It is set for the second time; remember that.
    """

    action: Action
    state: ActionState
    call: DriverCall | None = None
    jobs: tuple[str, ...] = ()
    detail: str = ""
    confirmed: bool = False
    reapplied: bool = False
