"""Unknown marks: machines with a mark of forewarn that no action in the ledger explains."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import Step

__all__ = ["find_unknown_marks", "unknown_marks_alert"]

_MAX_LISTED_MACHINES = 5


def find_unknown_marks(machines: Iterable[Machine], actions: Collection[Action]) -> list[Machine]:
    """Return the machines with unknown marks, such as after the loss of the ledger.

    Action numbers start at 1 in each ledger, so number and machine must both match.

    Parameters
    ----------
    machines : iterable of Machine
        As read before the actions.
    actions : collection of Action
        Actions that the marks name, and all of the last days.
    """
    known = {(action.machine, action.id) for action in actions}
    avoided = {action.machine for action in actions if action.step is Step.AVOID}
    return [
        machine
        for machine in machines
        if any((machine.name, number) not in known for number in machine.actions)
        or (machine.avoided and machine.name not in avoided)
    ]


def unknown_marks_alert(machines: Collection[Machine]) -> str:
    """Return an alert about unknown marks; empty if there are none."""
    if not machines:
        return ""
    names = sorted(machine.name for machine in machines)
    more = (
        f" and {len(names) - _MAX_LISTED_MACHINES} more"
        if len(names) > _MAX_LISTED_MACHINES
        else ""
    )
    carry, pronoun = ("machine carries", "it") if len(names) == 1 else ("machines carry", "them")
    return (
        f"{len(names)} {carry} a mark of forewarn without an action in the ledger: "
        f"{', '.join(names[:_MAX_LISTED_MACHINES])}{more}; `forewarn incidents` lists {pronoun}"
    )
