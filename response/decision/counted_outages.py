"""Machines out of service, and machines that count as such for the limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.response.policy.certain_damage import is_certain_cause
from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Limits, Pool

__all__ = [
    "CountedOutage",
    "LimitContext",
    "capacity_free_at",
    "counted_outages",
    "jobs_on_machine",
    "reversible_outages",
    "unexplained_mark_expiries",
]


@dataclass(frozen=True, slots=True)
class CountedOutage:
    """Machine that is out of service (`until` None), or counts as such until a moment.

    Attributes
    ----------
    machine : str
    pool, rack : str or None
    jobs : frozenset of str
        Jobs that ran on it, as far as known.
    until : int or None
        Nanoseconds since 1970 UTC.
    """

    machine: str
    pool: str | None
    rack: str | None
    jobs: frozenset[str]
    until: Nanoseconds | None = None


@dataclass(frozen=True, slots=True)
class LimitContext:
    """Input of one limit check.

    Attributes
    ----------
    action : Action
        The action to check.
    pool : Pool
        Its pool, whose limits apply.
    machines : mapping of str to Machine
    others : sequence of Action
        Other open or recent actions.
    now : int
        Nanoseconds since 1970 UTC.
    """

    action: Action
    pool: Pool
    machines: Mapping[str, Machine]
    others: Sequence[Action]
    now: Nanoseconds

    @property
    def limits(self) -> Limits:
        """Limits of the pool."""
        return self.pool.limits

    @property
    def refill_words(self) -> str:
        """The `refill` span as text."""
        return format_duration(self.limits.refill / SECOND)

    @property
    def rate_words(self) -> str:
        """Description of what the rates count."""
        return f"drained within {self.refill_words}"

    @property
    def pool_size(self) -> int:
        """Number of GPU machines in the pool."""
        machines = self.machines.values()
        return sum(machine.gpus > 0 and machine.pool == self.pool.name for machine in machines)

    @property
    def max_fleet_rate(self) -> int:
        """Number of machines of the whole fleet that may be drained within `refill`."""
        return self.limits.max_rate(sum(machine.gpus > 0 for machine in self.machines.values()))

    @property
    def max_predicted_rate(self) -> int:
        """Number of these machines that predictions may drain."""
        return self.max_fleet_rate // 2

    def counts_against_rate(self, action: Action) -> bool:
        """Tell whether an action drained a machine within `refill`."""
        lately = self.refilled_at(action) > self.now
        return action.step.isolates and action.started and lately

    def refilled_at(self, action: Action) -> Nanoseconds:
        """Return the time at which an action no longer counts."""
        return Nanoseconds(action.at + self.limits.refill)


def counted_outages(context: LimitContext) -> list[CountedOutage]:
    """Return the other machines that are out of service, or were recently drained by forewarn."""
    return _collect_outages(context, context.machines.values(), context.others)


def reversible_outages(context: LimitContext) -> list[CountedOutage]:
    """Return the outages that forewarn caused without certain damage."""
    # A mark without an action is a drain by forewarn too, such as after the loss of a ledger.
    actions = {(other.machine, other.id): other for other in context.others}
    certain = {key for key, other in actions.items() if is_certain_cause(other.cause)}
    marks = {m.name: {(m.name, number) for number in m.actions} for m in context.machines.values()}
    return _collect_outages(
        context,
        [machine for name, machine in context.machines.items() if marks[name] - certain],
        [other for key, other in actions.items() if key not in certain],
    )


def unexplained_mark_expiries(context: LimitContext) -> list[Nanoseconds | None]:
    """Return until when each drain counts that was made before the ledger was lost."""
    known = {(other.machine, other.id) for other in context.others}
    marks = [(m, number) for m in context.machines.values() if m.impaired for number in m.actions]
    since = [m.reason_at if m.out else None for m, number in marks if (m.name, number) not in known]
    ends = [None if at is None else Nanoseconds(at + context.limits.refill) for at in since]
    return [end for end in ends if end is None or end > context.now]


def _collect_outages(
    context: LimitContext, machines: Iterable[Machine], actions: Iterable[Action]
) -> list[CountedOutage]:
    outages = {
        machine.name: CountedOutage(
            machine.name, machine.pool, machine.rack, _jobs_out(machine), None
        )
        for machine in machines
        if machine.impaired and machine.gpus > 0
    }
    for other in sorted(actions, key=lambda action: action.open, reverse=True):
        if other.step.isolates and (other.open or context.counts_against_rate(other)):
            outages[other.machine] = _with_action(outages.get(other.machine), other, context)
    outages.pop(context.action.machine, None)
    return list(outages.values())


def _jobs_out(machine: Machine) -> frozenset[str]:
    """Return the jobs of a machine, or those on its GPUs that are out of service."""
    by_gpu = (job for jobs in machine.device_actions.values() for job in jobs)
    return frozenset(machine.jobs if machine.out else by_gpu)


def _with_action(
    outage: CountedOutage | None, action: Action, context: LimitContext
) -> CountedOutage:
    jobs = frozenset() if action.job is None else frozenset({action.job})
    if outage is None:
        machine = context.machines.get(action.machine)
        pool, rack = (machine.pool, machine.rack) if machine else (action.pool, action.rack)
        until = None if action.open else context.refilled_at(action)
        return CountedOutage(action.machine, pool, rack, jobs, until)
    until = outage.until
    if until is not None and not action.open:
        until = max(until, context.refilled_at(action))
    return replace(outage, jobs=outage.jobs | jobs, until=until)


def jobs_on_machine(context: LimitContext) -> set[str]:
    """Return the jobs on the machine of the checked action."""
    machine = context.machines.get(context.action.machine)
    jobs = set(machine.jobs) if machine else set()
    return jobs | ({context.action.job} if context.action.job is not None else set())


def capacity_free_at(
    untils: Sequence[Nanoseconds | None], limit: int, more: int
) -> Nanoseconds | None:
    """Return when `more` machines fit again; None if it depends on machines, or never happens."""
    too_many = len(untils) + more - limit
    timed = sorted(until for until in untils if until is not None)
    return timed[too_many - 1] if too_many <= len(timed) else None
