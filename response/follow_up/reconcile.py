"""Reconciliation of open actions with the state of the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

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

__all__ = ["REPLACED", "reconcile", "stale_marks"]

REPLACED: Final = "replaced_by_other"
"""Detail of an action whose machine the scheduler has removed."""

_LATE_ANSWER_SPAN = Nanoseconds(15 * MINUTE)
"""How late a scheduler may still carry out a call that it did not answer."""


def reconcile(
    tracked: Sequence[TrackedAction],
    fleet: Mapping[str, Machine],
    *,
    controller: str,
    configured: str = "",
    pools: Mapping[str, Pool],
    recent: Sequence[Action],
    stopped: bool,
    now: Nanoseconds,
    clock_alone: bool = False,
    lasting: bool = False,
) -> list[ActionTransition]:
    """Return the next transition of each open action.

    Parameters
    ----------
    tracked : sequence of TrackedAction
        All open actions.
    fleet : mapping of str to Machine
        As just read.
    controller : str
        Start of the scheduler's controller.
    configured : str, optional
        Changes when the controller rereads its configuration, which resets weights.
    pools : mapping of str to Pool
    recent : sequence of Action
        All of the last days, for the limit of killed jobs.
    stopped : bool
        Whether the kill switch is on: nothing is isolated, or isolated again.
    now : int
        Nanoseconds since 1970 UTC.
    clock_alone : bool, optional
        No second clock confirms `now`: no job is ended.
    lasting : bool, optional
        The scheduler loses neither marks nor machines by itself.

    Returns
    -------
    list of ActionTransition
        Ordered by deadline, then by action.
    """
    ordered = sorted(tracked, key=lambda w: (w.action.valid_until, w.action.id))
    reset = not lasting and _weights_reset(tracked, fleet)
    reading = _SchedulerReading(
        fleet, controller, configured or controller, reset, lasting, stopped, now
    )
    transitions = _release_overridden([_next_transition(w, reading) for w in ordered])
    reasons = {"the kill switch is on": stopped, NO_SECOND_CLOCK: clock_alone}
    forbidden = next((reason for reason, holds in reasons.items() if holds), "")
    return [
        _with_eviction(transition, fleet, pools, recent, forbidden, now)
        for transition in transitions
    ]


def stale_marks(fleet: Iterable[Machine], open_actions: Iterable[int]) -> list[Machine]:
    """Return machines that carry marks of ended actions, to remove them.

    A scheduler may carry out a call long after it failed to answer.
    """
    numbers = set(open_actions)
    return [m for m in fleet if m.actions - numbers]


@dataclass(frozen=True, slots=True)
class _SchedulerReading:
    """State of the scheduler; `reset`: no avoided machine is avoided any more."""

    fleet: Mapping[str, Machine]
    controller: str
    configured: str
    reset: bool
    lasting: bool
    stopped: bool
    now: Nanoseconds


def _weights_reset(tracked: Iterable[TrackedAction], fleet: Mapping[str, Machine]) -> bool:
    """Tell whether all weights were reset at once, such as by a new configuration.

    With a single avoided machine a manual change looks the same, unless the scheduler counts
    reconfigurations.
    """
    names = {w.action.machine for w in tracked if w.controller and w.action.step is Step.AVOID}
    return len(names) > 1 and not any(name in fleet and fleet[name].avoided for name in names)


def _next_transition(tracked: TrackedAction, reading: _SchedulerReading) -> ActionTransition:
    action, machine = tracked.action, reading.fleet.get(tracked.action.machine)
    stopped, now = reading.stopped, reading.now
    if machine is None and reading.lasting and tracked.controller in ("", reading.controller):
        sent = action.state is not ActionState.INTENDED
        state = ActionState.RELEASED if sent else ActionState.EXPIRED
        call = DriverCall.UNDO if sent else None  # a mark of its GPU is no part of the machine
        return ActionTransition(action, state, call, detail=f"{REPLACED}: the machine is gone")
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
            return _continue_action(tracked, machine, reading)


def _is_applied(action: Action, machine: Machine) -> bool:
    if action.step is Step.AVOID:
        return machine.avoided
    by_device = action.id in machine.device_actions
    return by_device or (machine.out and machine.action == action.id)


def _taken_by_others(action: Action, machine: Machine) -> bool:
    """Tell whether the machine is out of service externally."""
    return action.step.isolates and machine.out and machine.action != action.id


def _drained_or_holding(action: Action, machine: Machine) -> ActionState:
    if action.id in machine.device_actions:
        empty = not machine.device_actions[action.id]
        return ActionState.DRAINED if empty else ActionState.HOLDING
    empty = not machine.jobs and machine.state is not ServiceState.DRAINING
    is_drained = action.step.isolates and empty and machine.state is not ServiceState.UNKNOWN
    return ActionState.DRAINED if is_drained else ActionState.HOLDING


def _read_back(action: Action, machine: Machine) -> ActionTransition:
    mark = "one GPU" if action.id in machine.device_actions else machine.reason
    detail = f"read back: {mark}" if mark else "read back"
    state = _drained_or_holding(action, machine)
    return ActionTransition(action, state, detail=detail, confirmed=True)


def _intended(
    action: Action, machine: Machine, stopped: bool, now: Nanoseconds
) -> ActionTransition:
    if _is_applied(action, machine):  # it was sent, and the process ended before that was written
        return _read_back(action, machine)
    if _taken_by_others(action, machine):
        words = f"drained externally first: {machine.reason}"
        return ActionTransition(action, ActionState.EXPIRED, detail=words)
    if now >= action.valid_until:
        return ActionTransition(
            action, ActionState.EXPIRED, detail="never sent, and no longer valid"
        )
    if stopped:
        return ActionTransition(action, action.state, detail="not sent: the kill switch is on")
    return ActionTransition(action, ActionState.SENT, DriverCall.APPLY)


def _sent(action: Action, machine: Machine, stopped: bool, now: Nanoseconds) -> ActionTransition:
    """Repeat the call until the scheduler shows it: without an answer its result is unknown."""
    if _is_applied(action, machine):
        return _read_back(action, machine)
    if _taken_by_others(action, machine):
        words = f"drained externally first: {machine.reason}"
        return ActionTransition(action, ActionState.FAILED, detail=words)
    if not stopped and now < action.valid_until:
        return ActionTransition(action, action.state, DriverCall.APPLY, detail="not applied yet")
    if now < action.changed_at + _LATE_ANSWER_SPAN:
        return ActionTransition(action, action.state, detail="unknown whether it was applied")
    words = "never applied, and no longer requested"
    return ActionTransition(action, ActionState.RELEASING, DriverCall.UNDO, detail=words)


def _releasing(action: Action, machine: Machine) -> ActionTransition:
    if _is_applied(action, machine):
        return ActionTransition(action, action.state, DriverCall.UNDO)
    return ActionTransition(action, ActionState.RELEASED, detail="read back")


def _continue_action(
    tracked: TrackedAction, machine: Machine, reading: _SchedulerReading
) -> ActionTransition:
    action = tracked.action
    if _is_applied(action, machine):
        drained = action.state is ActionState.DRAINED
        state = action.state if drained else _drained_or_holding(action, machine)
        return ActionTransition(action, state, confirmed=True)
    if _taken_by_others(action, machine):
        words = f"the reason was changed manually: {machine.reason}"
        return ActionTransition(action, ActionState.OVERRIDDEN, detail=words, by=machine.reason_by)
    loss = _loss_reason(tracked, machine, reading)
    # A drain is applied again once. Every new configuration resets weights without any manual
    # change.
    if not loss or (tracked.reapplied and action.step.isolates):
        return ActionTransition(
            action, ActionState.OVERRIDDEN, detail="undone manually", by=machine.reason_by
        )
    if reading.now >= action.valid_until:
        words = f"lost: {loss}; no longer valid"
        return ActionTransition(action, ActionState.RELEASED, detail=words)
    if reading.stopped:
        return ActionTransition(action, action.state, detail=f"lost: {loss}; the kill switch is on")
    words = f"applied again: {loss}"
    return ActionTransition(
        action, ActionState.SENT, DriverCall.APPLY, detail=words, reapplied=True
    )


def _loss_reason(tracked: TrackedAction, machine: Machine, reading: _SchedulerReading) -> str:
    """Return why an action may be lost without a manual change; empty if nothing explains it."""
    is_avoid = tracked.action.step is Step.AVOID
    life = reading.configured if is_avoid else reading.controller
    if tracked.controller and life != tracked.controller:
        more = " or reread its configuration" if is_avoid else ""
        return f"the scheduler restarted{more}"
    if tracked.boot and machine.boot != tracked.boot:
        return "the machine was replaced"
    if is_avoid and reading.reset:
        return "the weights of all machines were reset"
    return ""


def _release_overridden(transitions: list[ActionTransition]) -> list[ActionTransition]:
    """Release all marks of an incident of which one action was overridden."""
    overridden = {
        (transition.action.incident, transition.action.machine)
        for transition in transitions
        if transition.state is ActionState.OVERRIDDEN
    }
    return [
        _released(transition)
        if transition.state not in (ActionState.OVERRIDDEN, ActionState.RELEASED)
        and (transition.action.incident, transition.action.machine) in overridden
        else transition
        for transition in transitions
    ]


def _released(transition: ActionTransition) -> ActionTransition:
    words = "another action of the incident was overridden"
    if transition.action.state is ActionState.INTENDED:
        return ActionTransition(transition.action, ActionState.EXPIRED, detail=words)
    return ActionTransition(transition.action, ActionState.RELEASING, DriverCall.UNDO, detail=words)


def _with_eviction(
    transition: ActionTransition,
    fleet: Mapping[str, Machine],
    pools: Mapping[str, Pool],
    recent: Sequence[Action],
    forbidden: str,
    now: Nanoseconds,
) -> ActionTransition:
    """End the jobs of a drain whose deadline is reached, within the limit.

    `forbidden` says why no job may be ended now; empty if jobs may be.
    """
    action, machine = transition.action, fleet.get(transition.action.machine)
    if transition.state is not ActionState.HOLDING or transition.call or machine is None:
        return transition
    reached = action.mode is DrainMode.NOW or now >= action.valid_until
    jobs = machine.jobs_under(action.id)
    if action.mode in (None, DrainMode.FINISH, DrainMode.MOVED) or not reached or not jobs:
        return transition
    if forbidden:
        return replace(transition, detail=f"no job is ended: {forbidden}")
    pool = pools.get(action.pool)
    if pool is None:
        return replace(transition, detail=f"no job is ended: pool {action.pool} has no rules")
    blocker = find_eviction_blocker(action, len(jobs), pool=pool, recent=recent, now=now)
    if blocker is not None:
        return replace(transition, detail=f"no job is ended: {blocker.reason}")
    return replace(transition, call=DriverCall.EVICT, jobs=jobs, detail="jobs are ended")
