"""Marks of forewarn in the scheduler that no action of the ledger explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.action_ledger import LIMIT_LOOKBACK
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.follow_up.unknown_marks import find_unknown_marks
from forewarn.response.state.machine import Machine

__all__ = ["mark_line", "mark_text", "read_unknown_marks"]


def read_unknown_marks(
    ledger: Ledger, machines: Sequence[Machine], *, now: Nanoseconds
) -> list[Machine]:
    """Return the machines with a mark of forewarn that the ledger does not explain.

    Parameters
    ----------
    ledger : Ledger
    machines : sequence of Machine
        As read from the scheduler just before.
    now : int
        Nanoseconds since 1970 UTC.
    """
    recent = ledger.recent_actions(Nanoseconds(now - LIMIT_LOOKBACK), with_open=True)
    actions = {action.id: action for action in recent}
    numbers = {number for machine in machines for number in machine.actions}
    older = [ledger.action(number) for number in sorted(numbers - actions.keys())]
    return find_unknown_marks(machines, [*actions.values(), *filter(None, older)])


def _mark(machine: Machine) -> str:
    if machine.action is not None:
        return machine.reason
    if machine.device_actions:
        return f"device taints of actions {', '.join(map(str, sorted(machine.device_actions)))}"
    return "avoided: raised node weight"


def mark_line(machine: Machine) -> dict[str, Any]:
    """Return a mark as `forewarn incidents --json` prints it."""
    return {
        "incident": None,
        "state": "mark without action",
        "machine": machine.name,
        "mark": _mark(machine),
        "since": None if machine.reason_at is None else format_iso(machine.reason_at),
    }


def mark_text(machine: Machine) -> str:
    """Format a mark as one line of text."""
    since = "" if machine.reason_at is None else f" since {format_iso(machine.reason_at)}"
    return f"-  {machine.name}  mark without an action in the ledger{since}: {_mark(machine)}"
