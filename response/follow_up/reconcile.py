"""Reconciliation: what became of our actions, by what the scheduler says now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.response.decision.killed_jobs import find_eviction_blocker
from forewarn.response.follow_up.action_transition import (
    ActionTransition,
    DriverCall,
    TrackedAction,
)
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.clock_readings import NO_SECOND_CLOCK
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Pool
from forewarn.response.state.step import DrainMode, Step

__all__ = ["reconcile", "stale_marks"]

_LATE_ANSWER_SPAN = Nanoseconds(15 * MINUTE)
"""A scheduler that did not answer may still do it so long after it was asked."""


def reconcile(
    watched: Sequence[TrackedAction],
    fleet: Mapping[str, Machine],
    *,
    controller: str,
    configured: str = "",
    pools: Mapping[str, Pool],
    recent: Sequence[Action],
    stopped: bool,
    now: Nanoseconds,
    clock_alone: bool = False,
) -> list[ActionTransition]:
    """Return what is done about each open action.

    Parameters
    ----------
    watched : sequence of Watched
        All open actions.
    fleet : mapping of str to Machine
        As read just now.
    controller : str
        The life of the scheduler that was read.
    configured : str, optional
        Changes when the scheduler read its configuration anew; weights are lost then.
    pools : mapping of str to Pool
    recent : sequence of Action
        All of the last days, for the limit of killed jobs.
    stopped : bool
        The kill switch is on: nothing is isolated, also not again.
    now : int
        Nanoseconds since 1970 UTC.
    clock_alone : bool, optional
        No second clock confirms `now`: no job is ended.

    Returns
    -------
    list of Course
        In the order of the deadlines, and of the actions where there is none.
    """
    ordered = sorted(watched, key=lambda w: (w.action.valid_until, w.action.id))
    reset = _weights_reset(watched, fleet)
    reading = _SchedulerReading(fleet, controller, configured or controller, reset, stopped, now)
    courses = _release_overridden([_next_transition(w, reading) for w in ordered])
    reasons = {"the kill switch is on": stopped, NO_SECOND_CLOCK: clock_alone}
    forbidden = next((reason for reason, holds in reasons.items() if holds), "")
    return [_with_eviction(course, fleet, pools, recent, forbidden, now) for course in courses]


def stale_marks(fleet: Iterable[Machine], open_actions: Iterable[int]) -> list[Machine]:
    """Return machines that bear our mark although its action has ended: it is to be taken off.

    A scheduler that gave no answer may do a thing much later.
    """
    numbers = set(open_actions)
    return [m for m in fleet if m.action is not None and m.action not in numbers]


@dataclass(frozen=True, slots=True)
class _SchedulerReading:
    """What was read now; `reset`: no machine that was avoided is avoided any more."""

    fleet: Mapping[str, Machine]
    controller: str
    configured: str
    reset: bool
    stopped: bool
    now: Nanoseconds


def _weights_reset(watched: Iterable[TrackedAction], fleet: Mapping[str, Machine]) -> bool:
    """Tell whether all machines that were avoided are so no longer, as after a new configuration.

    With a single one nobody can tell that from a person who undid it, unless the scheduler counts
    how often it was told to.
    """
    names = {w.action.machine for w in watched if w.controller and w.action.step is Step.AVOID}
    return len(names) > 1 and not any(name in fleet and fleet[name].avoided for name in names)


def _next_transition(watched: TrackedAction, reading: _SchedulerReading) -> ActionTransition:
    action, machine = watched.action, reading.fleet.get(watched.action.machine)
    stopped, now = reading.stopped, reading.now
    if machine is None:
        return ActionTransition(
            action, action.state, detail="the scheduler does not list the machine"
        )
    if machine.state is ServiceState.UNKNOWN and not machine.reason:
        return ActionTransition(
            action, action.state, detail="the scheduler does not know the machine yet"
        )
    match action.state:
        case ActionState.INTENDED:
            return _intended(action, machine, stopped, now)
        case ActionState.SENT:
            return _sent(action, machine, stopped, now)
        case ActionState.RELEASING:
            return _releasing(action, machine)
        case _:
            return _holding(watched, machine, reading)


def _holds(action: Action, machine: Machine) -> bool:
    if action.step is Step.AVOID:
        return machine.avoided
    return machine.out and machine.action == action.id


def _taken_by_others(action: Action, machine: Machine) -> bool:
    """Tell whether somebody else has the machine out of service."""
    return action.step.isolates and machine.out and machine.action != action.id


def _drained_or_holding(action: Action, machine: Machine) -> ActionState:
    empty = not machine.jobs and machine.state is not ServiceState.DRAINING
    rested = action.step.isolates and empty and machine.state is not ServiceState.UNKNOWN
    return ActionState.DRAINED if rested else ActionState.HOLDING


def _intended(
    action: Action, machine: Machine, stopped: bool, now: Nanoseconds
) -> ActionTransition:
    if _holds(action, machine):  # it was sent, and we were ended before we could write that
        return ActionTransition(
            action, _drained_or_holding(action, machine), detail="read back", confirmed=True
        )
    if _taken_by_others(action, machine):
        words = f"somebody else took the machine out first: {machine.reason}"
        return ActionTransition(action, ActionState.EXPIRED, detail=words)
    if now >= action.valid_until:
        return ActionTransition(
            action, ActionState.EXPIRED, detail="never sent, and no longer valid"
        )
    if stopped:
        return ActionTransition(action, action.state, detail="not sent: the kill switch is on")
    return ActionTransition(action, ActionState.SENT, DriverCall.APPLY)


def _sent(action: Action, machine: Machine, stopped: bool, now: Nanoseconds) -> ActionTransition:
    """Ask again until it holds: without an answer nobody knows whether it was done."""
    if _holds(action, machine):
        return ActionTransition(
            action, _drained_or_holding(action, machine), detail="read back", confirmed=True
        )
    if _taken_by_others(action, machine):
        words = f"somebody else took the machine out first: {machine.reason}"
        return ActionTransition(action, ActionState.FAILED, detail=words)
    if not stopped and now < action.valid_until:
        return ActionTransition(
            action, action.state, DriverCall.APPLY, detail="it does not hold yet"
        )
    if now < action.changed_at + _LATE_ANSWER_SPAN:
        return ActionTransition(action, action.state, detail="unknown whether it was done")
    words = "it never held, and is not asked for any more"
    return ActionTransition(action, ActionState.RELEASING, DriverCall.UNDO, detail=words)


def _releasing(action: Action, machine: Machine) -> ActionTransition:
    if _holds(action, machine):
        return ActionTransition(action, action.state, DriverCall.UNDO)
    return ActionTransition(action, ActionState.RELEASED, detail="read back")


def _holding(
    watched: TrackedAction, machine: Machine, reading: _SchedulerReading
) -> ActionTransition:
    action = watched.action
    if _holds(action, machine):
        drained = action.state is ActionState.DRAINED
        state = action.state if drained else _drained_or_holding(action, machine)
        return ActionTransition(action, state, confirmed=True)
    if _taken_by_others(action, machine):
        words = f"somebody else set another reason: {machine.reason}"
        return ActionTransition(action, ActionState.OVERRIDDEN, detail=words)
    lost = _lost(watched, machine, reading)
    # A drain is set again once. A weight is lost with every new configuration, by nobody's wish.
    if not lost or (watched.reapplied and action.step.isolates):
        return ActionTransition(action, ActionState.OVERRIDDEN, detail="somebody undid it")
    if reading.now >= action.valid_until:
        words = f"lost: {lost}, and it is no longer valid"
        return ActionTransition(action, ActionState.RELEASED, detail=words)
    if reading.stopped:
        return ActionTransition(action, action.state, detail=f"lost: {lost}; the kill switch is on")
    words = f"set again: {lost}"
    return ActionTransition(
        action, ActionState.SENT, DriverCall.APPLY, detail=words, reapplied=True
    )


def _lost(watched: TrackedAction, machine: Machine, reading: _SchedulerReading) -> str:
    """Return why an action may be gone although nobody undid it; empty if nothing says so."""
    avoids = watched.action.step is Step.AVOID
    life = reading.configured if avoids else reading.controller
    if watched.controller and life != watched.controller:
        more = " or read its configuration anew" if avoids else ""
        return f"the scheduler was started anew{more}"
    if watched.boot and machine.boot != watched.boot:
        return "the machine is a new one"
    if avoids and reading.reset:
        return "the weights of all machines were reset"
    return ""


def _release_overridden(courses: list[ActionTransition]) -> list[ActionTransition]:
    """Take off all our marks of an incident of which one action was overridden."""
    overridden = {
        (course.action.incident, course.action.machine)
        for course in courses
        if course.state is ActionState.OVERRIDDEN
    }
    return [
        _released(course)
        if course.state not in (ActionState.OVERRIDDEN, ActionState.RELEASED)
        and (course.action.incident, course.action.machine) in overridden
        else course
        for course in courses
    ]


def _released(course: ActionTransition) -> ActionTransition:
    words = "another action of the incident was overridden"
    if course.action.state is ActionState.INTENDED:
        return ActionTransition(course.action, ActionState.EXPIRED, detail=words)
    return ActionTransition(course.action, ActionState.RELEASING, DriverCall.UNDO, detail=words)


def _with_eviction(
    course: ActionTransition,
    fleet: Mapping[str, Machine],
    pools: Mapping[str, Pool],
    recent: Sequence[Action],
    forbidden: str,
    now: Nanoseconds,
) -> ActionTransition:
    """End the jobs of a drain whose deadline is reached, as far as the limit lets us.

    `forbidden` says why no job is ended now; empty if jobs may be.
    """
    action, machine = course.action, fleet.get(course.action.machine)
    if course.state is not ActionState.HOLDING or course.call or machine is None:
        return course
    reached = action.mode is DrainMode.NOW or now >= action.valid_until
    if action.mode in (None, DrainMode.FINISH) or not reached or not machine.jobs:
        return course
    if forbidden:
        return replace(course, detail=f"no job is ended: {forbidden}")
    pool = pools.get(action.pool)
    if pool is None:
        return replace(course, detail=f"no job is ended: pool {action.pool} has no rules")
    held = find_eviction_blocker(action, len(machine.jobs), pool=pool, recent=recent, now=now)
    if held is not None:
        return replace(course, detail=f"no job is ended: {held.reason}")
    return replace(course, call=DriverCall.EVICT, jobs=machine.jobs, detail="jobs are ended")
