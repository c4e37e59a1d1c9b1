"""Carrying out: the ledger is told before the scheduler, and the scheduler is read afterwards."""

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

__all__ = ["apply_transitions", "remove_stale_marks", "start_action"]


def start_action(
    ledger: Ledger, driver: Driver, action: Action, *, why: str, now: Nanoseconds
) -> None:
    """Send an action that was just written, unless somebody else has begun it already.

    Whoever brings it from `INTENDED` to `SENT` is the one who asks the scheduler. Jobs are told
    once it is read to hold, whether an answer came or not.
    """
    if action.state is not ActionState.INTENDED:
        return
    sent = ledger.advance(action, ActionState.SENT, now=now)
    if sent is not None:
        _applied(ledger, driver, sent, why=why, now=now)


def apply_transitions(
    ledger: Ledger,
    driver: Driver,
    courses: Iterable[ActionTransition],
    watched: Iterable[TrackedAction],
    fleet: Fleet,
    *,
    now: Nanoseconds,
) -> None:
    """Write what has become of open actions, and ask the scheduler for what is to be done.

    A change that somebody else has written first is theirs to carry out.
    """
    machines = {machine.name: machine for machine in fleet.machines}
    remembered = {entry.action.id: entry for entry in watched}
    for course in courses:
        machine, entry = machines.get(course.action.machine), remembered.get(course.action.id)
        life = _life(course.action, machine, fleet) if course.confirmed and machine else ("", "")
        known = (entry.controller, entry.boot) if entry else ("", "")
        action: Action | None = course.action
        if course.state is ActionState.OVERRIDDEN:  # first, so that nothing of it is lost
            _override(ledger, course, now=now)
        if course.state is not course.action.state or (course.confirmed and life != known):
            action = ledger.advance(
                course.action, course.state, now=now, detail=course.detail, life=life
            )
        if action is not None:
            if machine is not None and _holds_first(course, entry):
                _tell_jobs(driver, machine, action)
            _carry_on(ledger, driver, action, course, now=now)


def remove_stale_marks(ledger: Ledger, driver: Driver, machines: Iterable[Machine]) -> None:
    """Give back machines that bear the mark of an action which has ended.

    A scheduler that gave no answer may do a thing much later.
    """
    for machine in machines:
        action = None if machine.action is None else ledger.action(machine.action)
        if action is not None and action.machine == machine.name and not action.open:
            _tried(partial(driver.undo, action), f"{machine.name}: our mark stays")


def _override(ledger: Ledger, course: ActionTransition, *, now: Nanoseconds) -> None:
    action = course.action
    incident = ledger.incident(action.incident)
    if incident is not None and incident.state is IncidentState.OPEN:
        why = f"{action.machine}: {course.detail}"
        state = IncidentState.OVERRIDDEN
        ledger.end_incident(incident.id, state, now=now, who="somebody", why=why)


def _carry_on(
    ledger: Ledger, driver: Driver, action: Action, course: ActionTransition, *, now: Nanoseconds
) -> None:
    match course.call:
        case DriverCall.APPLY:
            _applied(ledger, driver, action, why=action.cause, now=now)
        case DriverCall.UNDO:
            _tried(lambda: driver.undo(action), f"{action.machine}: not released yet")
        case DriverCall.EVICT:
            _tried(lambda: driver.evict(action, course.jobs), f"{action.machine}: jobs stay")
        case None:
            pass


def _life(action: Action, machine: Machine, fleet: Fleet) -> tuple[str, str]:
    """Return what has to stay the same for an action to hold: else it may be lost by itself."""
    configuration = fleet.configured or fleet.controller
    controller = configuration if action.step is Step.AVOID else fleet.controller
    return controller, machine.boot


def _holds_first(course: ActionTransition, entry: TrackedAction | None) -> bool:
    """Tell whether it was just read to hold for the first time.

    The ledger knows it already, and whoever wrote that is the only one who tells the jobs: they
    hear of it once, or not at all if we are ended in between.
    """
    begun = course.action.state in (ActionState.INTENDED, ActionState.SENT)
    return begun and course.confirmed and not (entry is not None and entry.reapplied)


def _applied(ledger: Ledger, driver: Driver, action: Action, *, why: str, now: Nanoseconds) -> None:
    """Ask the scheduler for an action; no answer means unknown, and a refusal ends the action."""
    try:
        driver.apply(action, why=why)
    except DriverTimeoutError as error:
        note(f"action {action.id} of {action.machine}: no answer, to be read ({error})")
    except DriverError as error:
        note(f"action {action.id} of {action.machine}: refused ({error})")
        ledger.advance(action, ActionState.FAILED, now=now, detail=str(error))


def _tell_jobs(driver: Driver, machine: Machine, action: Action) -> None:
    if machine.jobs and action.step.isolates:
        words = f"forewarn drains {machine.name} ({action.cause}), mode {action.mode}"
        _tried(lambda: driver.notify(machine.jobs, words), f"{machine.name}: jobs were not told")


def _tried(call: Callable[[], None], words: str) -> None:
    try:
        call()
    except DriverError as error:
        note(f"{words} ({error})")
