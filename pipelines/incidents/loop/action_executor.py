"""Action executor: sends a decided step to the scheduler and records the result.

The ledger is written before the scheduler is called, and the scheduler is read back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.schedulers.driver import (
    Driver,
    DriverError,
    DriverTimeoutError,
    Fleet,
)
from forewarn.pipelines.runtime.progress import note
from forewarn.response.follow_up.action_transition import (
    ActionTransition,
    DriverCall,
    TrackedAction,
)
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.incident import IncidentState
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import Step

__all__ = ["apply_transitions", "finish_marks", "remove_stale_marks", "start_action"]


def start_action(
    ledger: Ledger, driver: Driver, action: Action, *, why: str, now: Nanoseconds
) -> None:
    """Send a new action to the scheduler, unless another responder has started it.

    The responder that moves the action from `INTENDED` to `SENT` calls the scheduler. Jobs are
    notified once the action is read back as set, whether the scheduler answered the call or not.
    """
    if action.state is not ActionState.INTENDED:
        return
    sent = ledger.advance(action, ActionState.SENT, now=now)
    if sent is not None:
        _apply(ledger, driver, sent, why=why, now=now)


def apply_transitions(
    ledger: Ledger,
    driver: Driver,
    transitions: Iterable[ActionTransition],
    tracked: Iterable[TrackedAction],
    fleet: Fleet,
    *,
    now: Nanoseconds,
) -> dict[str, str]:
    """Record the transitions of open actions, and make the scheduler calls that they require.

    If another responder has recorded a transition first, that responder makes the call.

    Returns
    -------
    dict of str to str
        Of each eviction the subject of an alert, and why it was refused; empty if it was not.
    """
    refusals: dict[str, str] = {}
    machines = {machine.name: machine for machine in fleet.machines}
    tracked_by_id = {entry.action.id: entry for entry in tracked}
    for transition in transitions:
        machine, entry = (
            machines.get(transition.action.machine),
            tracked_by_id.get(transition.action.id),
        )
        identity = (
            _identity(transition.action, machine, fleet)
            if transition.confirmed and machine
            else ("", "")
        )
        known = (entry.controller, entry.boot) if entry else ("", "")
        action: Action | None = transition.action
        if (
            transition.state is ActionState.OVERRIDDEN
        ):  # before the action, so that an interruption cannot lose the override
            _override(ledger, transition, now=now)
        if transition.state is not transition.action.state or (
            transition.confirmed and identity != known
        ):
            action = ledger.advance(
                transition.action,
                transition.state,
                now=now,
                who=transition.by or _default_author(transition),
                detail=transition.detail,
                identity=identity,
            )
        if action is not None:
            if machine is not None and _confirmed_first(transition, entry):
                _notify_jobs(driver, machine, action)
            refusal = _make_call(ledger, driver, action, transition, now=now)
            if transition.call is DriverCall.EVICT:
                subject = f"eviction from {action.machine}"
                refusals[subject] = refusal and f"{subject}: a person has to end jobs ({refusal})"
    return refusals


def remove_stale_marks(ledger: Ledger, driver: Driver, machines: Iterable[Machine]) -> None:
    """Undo the marks of actions that have ended.

    A scheduler that gave no answer may set a mark much later.
    """
    for machine in machines:
        for action in map(ledger.action, sorted(machine.actions)):
            if action is not None and action.machine == machine.name and not action.open:
                call = partial(driver.undo, action)
                _attempt(call, f"{machine.name}: stale mark not removed, will retry")


def finish_marks(ledger: Ledger, driver: Driver, machines: Iterable[Machine]) -> None:
    """Complete the marks of actions that hold, and remove what is left of those that have ended."""
    for machine in machines:
        action = None if machine.unfinished is None else ledger.action(machine.unfinished)
        if action is None or action.machine != machine.name:
            continue
        if action.state in (ActionState.HOLDING, ActionState.DRAINED):
            call = partial(driver.apply, action, why=action.cause)
            _attempt(call, f"{machine.name}: mark not completed, will retry")
        elif not action.open:
            call = partial(driver.undo, action)
            _attempt(call, f"{machine.name}: rest of a mark not removed, will retry")


def _override(ledger: Ledger, transition: ActionTransition, *, now: Nanoseconds) -> None:
    action = transition.action
    incident = ledger.incident(action.incident)
    if incident is not None and incident.state is IncidentState.OPEN:
        why = f"{action.machine}: {transition.detail}"
        who = transition.by or _default_author(transition)
        ledger.end_incident(incident.id, IncidentState.OVERRIDDEN, now=now, who=who, why=why)


def _default_author(transition: ActionTransition) -> str:
    """Return who made a change that the scheduler attributes to no person."""
    return "somebody" if transition.state is ActionState.OVERRIDDEN else "forewarn"


def _make_call(
    ledger: Ledger,
    driver: Driver,
    action: Action,
    transition: ActionTransition,
    *,
    now: Nanoseconds,
) -> str:
    """Make the call of a transition; return why it was refused if it is made once more."""
    match transition.call:
        case DriverCall.APPLY:
            _apply(ledger, driver, action, why=action.cause, now=now)
        case DriverCall.UNDO:
            return _attempt(
                lambda: driver.undo(action), f"{action.machine}: release failed, will retry"
            )
        case DriverCall.EVICT:
            return _attempt(
                lambda: driver.evict(action, transition.jobs),
                f"{action.machine}: eviction of jobs failed, will retry",
            )
        case None:
            pass
    return ""


def _identity(action: Action, machine: Machine, fleet: Fleet) -> tuple[str, str]:
    """Return the controller and boot identity; if one changes, the action may have been lost."""
    configuration = fleet.configured or fleet.controller
    controller = configuration if action.step is Step.AVOID else fleet.controller
    return controller, machine.boot


def _confirmed_first(transition: ActionTransition, entry: TrackedAction | None) -> bool:
    """Tell whether the action was read back as set for the first time.

    The ledger records this before jobs are notified, and the responder that records it sends the
    notice. Jobs are notified once, or not at all if the process ends in between.
    """
    started = transition.action.state in (ActionState.INTENDED, ActionState.SENT)
    return started and transition.confirmed and not (entry is not None and entry.reapplied)


def _apply(ledger: Ledger, driver: Driver, action: Action, *, why: str, now: Nanoseconds) -> None:
    """Apply an action: without an answer its state stays unknown, a refusal ends it."""
    try:
        driver.apply(action, why=why)
    except DriverTimeoutError as error:
        note(
            f"action {action.id} of {action.machine}: no answer, state will be read back ({error})"
        )
    except DriverError as error:
        note(f"action {action.id} of {action.machine}: refused by the scheduler ({error})")
        ledger.advance(action, ActionState.FAILED, now=now, detail=str(error))


def _notify_jobs(driver: Driver, machine: Machine, action: Action) -> None:
    jobs = machine.jobs_under(action.id)
    if jobs and action.step.isolates:
        message = f"forewarn drains {machine.name} ({action.cause}), mode {action.mode}"
        _attempt(lambda: driver.notify(jobs, message), f"{machine.name}: jobs were not notified")


def _attempt(call: Callable[[], None], message: str) -> str:
    """Make a call; note why it was refused, and return it."""
    try:
        call()
    except DriverError as error:
        note(f"{message} ({error})")
        return str(error)
    return ""
