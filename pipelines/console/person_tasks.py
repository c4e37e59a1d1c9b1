"""What waits for a person: approvals, steps that forewarn cannot do, and returns to service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.incident_summaries import IncidentHead
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import (
    CHECK_BEGUN,
    CHECK_FAILED,
    CHECK_PASSED,
)
from forewarn.pipelines.incidents.ledger.step_changes import read_changes
from forewarn.response.follow_up.release import release_due_at
from forewarn.response.follow_up.step_progress import StepEvent
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.site_step import REMEDIES
from forewarn.response.state.step import Step

__all__ = ["PersonTask", "approval_tasks", "machine_tasks"]


class PersonTask(NamedTuple):
    """Work that only a person can do; `since` in nanoseconds since 1970 UTC."""

    since: Nanoseconds
    incident: int
    machine: str
    step: Step
    what: str
    why: str


def approval_tasks(heads: Sequence[IncidentHead]) -> list[PersonTask]:
    """Return the proposals that no person has approved yet, oldest first."""
    return sorted(
        PersonTask(
            head.decided_at, head.id, head.machine, head.step, "approve or undo", head.reason
        )
        for head in heads
        if head.ruling is Ruling.PROPOSE and head.step is not None and not head.approved
    )


def machine_tasks(
    ledger: Ledger, actions: Sequence[Action], now: Nanoseconds, loop_every: Nanoseconds
) -> dict[int, PersonTask]:
    """Return what a person has to do about drained machines, by action.

    Parameters
    ----------
    ledger : Ledger
    actions : sequence of Action
        Ended ones and those that keep a machine in service are left out.
    now : int
        Nanoseconds since 1970 UTC.
    loop_every : int
        Nanoseconds within which the loop itself would have acted.
    """
    held = (ActionState.HOLDING, ActionState.DRAINED)
    tasks = {}
    for action in actions:
        if action.step.isolates and action.state in held:
            task = _requested(ledger, action) or _to_return(ledger, action, now, loop_every)
            if task is not None:
                tasks[action.id] = task
    return tasks


def _requested(ledger: Ledger, action: Action) -> PersonTask | None:
    """Return the step that a person was asked to carry out, if nothing has happened since."""
    changes = read_changes(ledger, action.id) if action.step in REMEDIES else []
    if not changes or changes[-1].event is not StepEvent.HANDED_OVER:
        return None
    last = changes[-1]
    return _task(action, Nanoseconds(last.at), last.step, last.detail)


def _to_return(
    ledger: Ledger, action: Action, now: Nanoseconds, loop_every: Nanoseconds
) -> PersonTask | None:
    """Return that a person has to return a machine, if nothing else does."""
    if action.state is not ActionState.DRAINED:
        return None
    checks = [row for row in ledger.action_states(action.id) if row.detail.startswith("check ")]
    last = checks[-1] if checks else None
    late = now - (last.at if last else action.changed_at) >= loop_every
    what = ""
    if last is not None and last.detail.startswith(CHECK_PASSED):
        what = "return it: the check passed, and forewarn keeps it out" if late else ""
    elif action.step in REMEDIES or (last is not None and last.detail.startswith(CHECK_BEGUN)):
        pass  # the loop carries out the step, or waits for the check
    elif last is not None and last.detail.startswith(CHECK_FAILED):
        what = "repair it: the check failed"
    elif action.step is Step.CHECK:
        what = "check it: no check of the site has begun" if late else ""
    elif _only_person_returns(ledger, action, Nanoseconds(now - loop_every)):
        what = "repair it, then return it"
    return _task(action, action.changed_at, action.step, what) if what else None


def _only_person_returns(ledger: Ledger, action: Action, until: Nanoseconds) -> bool:
    """Tell whether forewarn should have returned a machine until a time, or never returns it."""
    incident = ledger.incident(action.incident)
    due = None if incident is None else release_due_at(action, incident)
    return due is None or until >= due


def _task(action: Action, since: Nanoseconds, step: Step, what: str) -> PersonTask:
    return PersonTask(since, action.incident, action.machine, step, what, action.cause)
