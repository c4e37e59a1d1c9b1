"""Steps that are carried out, as changes of their action in the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.follow_up.step_progress import StepChange, StepEvent, parse_change
from forewarn.response.state.action import Action
from forewarn.response.state.site_step import REMEDIES

__all__ = ["read_changes", "read_requests", "record_change", "request_text"]

_WHO = "forewarn"


def read_changes(ledger: Ledger, action: int) -> list[StepChange]:
    """Return what happened to the steps of an action, oldest first."""
    rows = [row for row in ledger.action_states(action) if row.who == _WHO]
    changes = [parse_change(row.detail, row.at, row.version) for row in rows]
    return [change for change in changes if change is not None]


def record_change(ledger: Ledger, action: Action, change: StepChange) -> Action | None:
    """Record what happened; return None if the action has changed since it was read."""
    return ledger.advance(action, action.state, now=change.at, who=_WHO, detail=change.text)


def read_requests(ledger: Ledger, open_actions: Iterable[Action]) -> dict[int, StepChange]:
    """Return what a person was asked to do, by action, where nothing has happened since."""
    remedies = [action.id for action in open_actions if action.step in REMEDIES]
    changes = {number: read_changes(ledger, number) for number in remedies}
    return {
        number: rows[-1]
        for number, rows in changes.items()
        if rows and rows[-1].event is StepEvent.HANDED_OVER
    }


def request_text(request: StepChange) -> str:
    """Return what a person was asked to do, and when."""
    return f"{request.detail} (asked at {format_iso(request.at)})"
