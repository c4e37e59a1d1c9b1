"""Fleet of a replay: machines out of service, and the actions that would have been taken."""

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
    """Machines and actions at the current time of the replay.

    A machine is out of service while an action isolates it, and while it is drained externally:
    from a failure until its repair.

    Parameters
    ----------
    past : FleetHistory
    out_for : int
        Nanoseconds that a machine is out of service if no repair is known.
    """

    def __init__(self, past: FleetHistory, out_for: Nanoseconds) -> None:
        self._initial = {machine.name: machine for machine in past.machines}
        self._machines = dict(self._initial)
        self._out_for = out_for
        self._out: set[str] = set()
        self._failed_gpus: Counter[str] = Counter()
        self._failures: dict[str, list[PastFailure]] = defaultdict(list)
        for failure in past.failures:
            self._failures[failure.machine].append(failure)
        self._actions: dict[int, Action] = {}
        self._numbers = count(1)
        self.returned_at: dict[str, Nanoseconds] = {}

    @property
    def machines(self) -> Mapping[str, Machine]:
        """All machines by name, as a scheduler would report them now."""
        return self._machines

    def full(self, pool: Pool, *, certain: bool) -> bool:
        """Tell whether the limits of a pool allow no further machine out of service.

        `share` applies only without certain damage.
        """
        limits = pool.limits
        if limits.machines is not None and len(self._out) >= limits.machines:
            return True
        if certain:
            return False
        size = sum(machine.pool == pool.name for machine in self._initial.values())
        ours = sum(
            action.open and action.step.isolates and not is_certain_cause(action.cause)
            for action in self._actions.values()
        )
        return ours >= share_to_count(limits.share, size)

    def recent(self, now: Nanoseconds) -> list[Action]:
        """Return the actions that still count, and drop the others."""
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
        """Drain a machine externally for a failure; return when it is back."""
        self._failed_gpus[failure.machine] += 1
        self._update(failure.machine)
        return max(self._back_at(failure), now)

    def repair(self, machine: str, now: Nanoseconds) -> None:
        """End a failure of a machine; it returns to service after the last one."""
        self._failed_gpus[machine] -= 1
        self._update(machine)
        if machine in self._machines and not self._machines[machine].out:
            self.returned_at[machine] = now

    def apply(self, action: Action) -> Action:
        """Apply an action at once; return it with its number and the confirmed state."""
        intended = replace(action, id=next(self._numbers))
        self._actions[intended.id] = intended
        self._update(action.machine)
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
        """Release an action; return its final state."""
        action = replace(self._actions[number], state=ActionState.RELEASED, changed_at=now)
        self._actions[number] = action
        self._update(action.machine)
        return action

    def ends_at(self, action: Action, over: Nanoseconds | None) -> Nanoseconds:
        """Return when an action would have ended, by present knowledge.

        `over` is the time at which forewarn releases it; None means the usual time out of service.
        A drained machine that is known to have failed by then is back after its repair.
        """
        planned = action.at + self._out_for if over is None else over
        if not action.step.isolates:
            return Nanoseconds(planned)
        failures = self._failures[action.machine]
        returns: Iterable[int] = (
            self._back_at(failure) for failure in failures if failure.known_at <= planned
        )
        return Nanoseconds(max([planned, *(back for back in returns if back > action.at)]))

    def _back_at(self, failure: PastFailure) -> Nanoseconds:
        if failure.repaired_at is None:
            return Nanoseconds(failure.failed_at + self._out_for)
        return failure.repaired_at

    def _update(self, name: str) -> None:
        """Update the state of a machine as a scheduler would report it."""
        machine = self._initial.get(name)
        if machine is None:
            return
        actions = self.open_actions(name)
        isolating = [action for action in actions if action.step.isolates]
        avoided = any(action.step is Step.AVOID for action in actions)
        if isolating:
            reason = f"{MARK_PREFIX}{isolating[0].id} {isolating[0].cause}"
            machine = replace(machine, state=ServiceState.DRAINED, reason=reason)
        elif self._failed_gpus[name] > 0:
            machine = replace(machine, state=ServiceState.DOWN, reason="a GPU has failed")
        self._machines[name] = replace(machine, avoided=avoided)
        (self._out.add if machine.out else self._out.discard)(name)
