"""Unknown marks: machines that bear our mark, and of which the ledger knows no action."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import Step

__all__ = ["find_unknown_marks", "unknown_marks_alert"]

_MAX_LISTED_MACHINES = 5  # machines in one line


def find_unknown_marks(machines: Iterable[Machine], actions: Collection[Action]) -> list[Machine]:
    """Return the machines whose mark nobody in the ledger has set, as after the ledger was lost.

    Numbers of actions begin at 1 in each ledger, so number and machine have to agree.

    Parameters
    ----------
    machines : iterable of Machine
        As they were read before the actions.
    actions : collection of Action
        Those that the marks name, and all of the last days.
    """
    known = {(action.machine, action.id) for action in actions}
    avoided = {action.machine for action in actions if action.step is Step.AVOID}
    return [
        machine
        for machine in machines
        if (machine.action is not None and (machine.name, machine.action) not in known)
        or (machine.avoided and machine.name not in avoided)
    ]


def unknown_marks_alert(machines: Collection[Machine]) -> str:
    """Return an alert about such machines; empty if there is none."""
    if not machines:
        return ""
    names = sorted(machine.name for machine in machines)
    more = (
        f" and {len(names) - _MAX_LISTED_MACHINES} more"
        if len(names) > _MAX_LISTED_MACHINES
        else ""
    )
    bear, pronoun = ("machine bears", "it") if len(names) == 1 else ("machines bear", "them")
    return (
        f"{len(names)} {bear} a mark of forewarn without an action in the ledger: "
        f"{', '.join(names[:_MAX_LISTED_MACHINES])}{more}; `forewarn incidents` lists {pronoun}"
    )
