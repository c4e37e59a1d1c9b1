"""A fleet of the past: which machines were out of service, and what we would have done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.follow_up.action_transition import TrackedAction
from forewarn.response.follow_up.reconcile import reconcile
from forewarn.response.policy.certain_damage import is_certain_cause
from forewarn.response.replay.fleet_history import FleetHistory, PastFailure
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState
from forewarn.response.state.pool import Pool, share_to_count
from forewarn.response.state.step import Step

__all__ = ["ReplayFleet"]

_ACTION_RETENTION = 8 * DAY


class ReplayFleet:
    """Machines and actions while time goes on.

    A machine is out of service while an action of ours isolates it, and from when others have
    taken it out for a failure until that is repaired.

    Parameters
    ----------
    past : Past
    out_for : int
        Nanoseconds that a machine is out of service where no repair is known.
    """

    def __init__(self, past: FleetHistory, out_for: Nanoseconds) -> None:
        self._whole = {machine.name: machine for machine in past.machines}
        self._machines = dict(self._whole)
        self._out_for = out_for
        self._out: set[str] = set()
        self._broken: Counter[str] = Counter()
        self._failures: dict[str, list[PastFailure]] = defaultdict(list)
        for failure in past.failures:
            self._failures[failure.machine].append(failure)
        self._actions: dict[int, Action] = {}
        self._numbers = count(1)
        self.returned_at: dict[str, Nanoseconds] = {}

    @property
    def machines(self) -> Mapping[str, Machine]:
        """All machines by name, as a scheduler would show them now."""
        return self._machines

    def full(self, pool: Pool, *, certain: bool) -> bool:
        """Tell whether as many machines of a pool are out of service as may be.

        `share` holds for what is no certain damage only.
        """
        limits = pool.limits
        if limits.machines is not None and len(self._out) >= limits.machines:
            return True
        if certain:
            return False
        size = sum(machine.pool == pool.name for machine in self._whole.values())
        ours = sum(
            action.open and action.step.isolates and not is_certain_cause(action.cause)
            for action in self._actions.values()
        )
        return ours >= share_to_count(limits.share, size)

    def recent(self, now: Nanoseconds) -> list[Action]:
        """Return the actions that count; those that do not any more are forgotten."""
        old = [
            a.id for a in self._actions.values() if not a.open and a.at < now - _ACTION_RETENTION
        ]
        for number in old:
            del self._actions[number]
        return list(self._actions.values())

    def open_actions(self, machine: str) -> list[Action]:
        """Return the open actions on a machine."""
        return [a for a in self._actions.values() if a.open and a.machine == machine]

    def take_out(self, failure: PastFailure, now: Nanoseconds) -> Nanoseconds:
        """Let others take a machine out for a failure; return when it is back."""
        self._broken[failure.machine] += 1
        self._show(failure.machine)
        return max(self._back_at(failure), now)

    def repair(self, machine: str, now: Nanoseconds) -> None:
        """Let a failure of a machine be over; others give it back once no other one is left."""
        self._broken[machine] -= 1
        self._show(machine)
        if machine in self._machines and not self._machines[machine].out:
            self.returned_at[machine] = now

    def apply(self, action: Action) -> Action:
        """Let a scheduler do an action at once; return it with its number, as it is read back."""
        intended = replace(action, id=next(self._numbers))
        self._actions[intended.id] = intended
        self._show(action.machine)
        (course,) = reconcile(
            [TrackedAction(intended)],
            self._machines,
            controller="",
            pools={},
            recent=(),
            stopped=False,
            now=action.at,
        )
        self._actions[intended.id] = replace(intended, state=course.state)
        return self._actions[intended.id]

    def release(self, number: int, now: Nanoseconds) -> Action:
        """Let an action end; return it as it is then."""
        action = replace(self._actions[number], state=ActionState.RELEASED, changed_at=now)
        self._actions[number] = action
        self._show(action.machine)
        return action

    def ends_at(self, action: Action, over: Nanoseconds | None) -> Nanoseconds:
        """Return when an action would have ended, as it is known today.

        `over` is when forewarn ends it by itself; another one ends after the usual time. A machine
        that was taken out and is known to have failed by then is back when it was repaired.
        """
        planned = action.at + self._out_for if over is None else over
        if not action.step.isolates:
            return Nanoseconds(planned)
        failures = self._failures[action.machine]
        backs: Iterable[int] = (
            self._back_at(failure) for failure in failures if failure.known_at <= planned
        )
        return Nanoseconds(max([planned, *(back for back in backs if back > action.at)]))

    def _back_at(self, failure: PastFailure) -> Nanoseconds:
        if failure.repaired_at is None:
            return Nanoseconds(failure.failed_at + self._out_for)
        return failure.repaired_at

    def _show(self, name: str) -> None:
        """Show a machine as a scheduler would."""
        machine = self._whole.get(name)
        if machine is None:
            return
        actions = self.open_actions(name)
        isolating = [action for action in actions if action.step.isolates]
        avoided = any(action.step is Step.AVOID for action in actions)
        if isolating:
            reason = f"{MARK_PREFIX}{isolating[0].id} {isolating[0].cause}"
            machine = replace(machine, state=ServiceState.DRAINED, reason=reason)
        elif self._broken[name] > 0:
            machine = replace(machine, state=ServiceState.DOWN, reason="a GPU has failed")
        self._machines[name] = replace(machine, avoided=avoided)
        (self._out.add if machine.out else self._out.discard)(name)
