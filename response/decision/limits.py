"""Limits on machines out of service, checked before each action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.counted_outages import (
    CountedOutage,
    LimitContext,
    capacity_free_at,
    counted_outages,
    jobs_on_machine,
    reversible_outages,
    unexplained_mark_expiries,
)
from forewarn.response.decision.killed_jobs import exceeded_kill_limit
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker, BlockerKind
from forewarn.response.state.finding import is_predicted_cause
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Pool, share_to_count
from forewarn.response.state.step import DrainMode, Step

__all__ = ["Blocker", "find_blocker", "high_outage_alert"]


def find_blocker(
    action: Action,
    *,
    pools: Mapping[str, Pool],
    fleet: Sequence[Machine],
    recent: Sequence[Action],
    now: Nanoseconds,
    certain: bool = False,
) -> Blocker | None:
    """Return the limit that blocks a new action; None if none does.

    Limits apply to drains and to `avoid`. Intended actions count like machines that are already
    out; a machine that is both counts once. Predictions may use half of `fleet_rate`, so that
    certain damage never waits for them.

    Parameters
    ----------
    action : Action
        Not started.
    pools : mapping of str to Pool
        Pools in which actions are configured.
    fleet : sequence of Machine
        All machines, as last read.
    recent : sequence of Action
        All open actions, and all that started within the longest `refill`.
    now : int
        Nanoseconds since 1970 UTC.
    certain : bool, optional
        Whether certain damage supports the action: `share` and `rack` do not apply then.

    Returns
    -------
    Blocker or None
        Of several limits the one that blocks longest.
    """
    pool = pools.get(action.pool)
    if pool is None:
        return Blocker(f"pool {action.pool} has no rules", None, BlockerKind.EXCLUDED)
    others = [other for other in recent if other.id != action.id]
    machines = {machine.name: machine for machine in fleet}
    context = LimitContext(action, pool, machines, others, now)
    if action.step is Step.AVOID:
        return _too_many_avoided(context)
    if not action.step.isolates:
        return None
    return _out_already(context) or _longest_blocker(_exceeded(context, certain))


def high_outage_alert(fleet: Iterable[Machine], pools: Iterable[str], *, share: float) -> str:
    """Return an alert about pools with too many machines out of service, for any reason.

    Empty if there is none. One machine out never raises it.

    Parameters
    ----------
    fleet : iterable of Machine
    pools : iterable of str
    share : float
        Of the GPU machines of a pool.
    """
    machines = [machine for machine in fleet if machine.gpus > 0]
    sizes = Counter(machine.pool for machine in machines)
    out = Counter(machine.pool for machine in machines if machine.impaired)
    names = [name for name in pools if out[name] > max(1, share * sizes[name])]
    if not names:
        return ""
    word = "pool" if len(names) == 1 else "pools"
    return (
        f"more than {share:.0%} of the machines of {word} {', '.join(sorted(names))} are out of "
        "service, for any reason"
    )


def _longest_blocker(blockers: Iterable[Blocker]) -> Blocker | None:
    return max(
        blockers, key=lambda blocker: (blocker.until is None, blocker.until or 0), default=None
    )


def _out_already(context: LimitContext) -> Blocker | None:
    name, serial = context.action.machine, context.action.gpu_serial
    for other in context.others:
        spared = other.spares(context.machines.get(name), serial)
        if other.machine == name and other.open and other.step.isolates and not spared:
            return Blocker(f"action {other.id} already drains {name}", None, BlockerKind.HANDLED)
    if name in context.machines and context.machines[name].out:
        return Blocker(f"{name} is out of service already", None, BlockerKind.OUT)
    return None


def _exceeded(context: LimitContext, certain: bool) -> Iterable[Blocker]:
    """Yield each limit that one more drain would exceed."""
    limits, action, out = context.limits, context.action, counted_outages(context)
    if not certain:
        yield from _reversible_exceeded(context)
    yield from _number_exceeded(context, out)
    for job in sorted(jobs_on_machine(context)):
        under = [outage.until for outage in out if job in outage.jobs]
        yield from _over(
            under, limits.job, f"of job {job} out now or {context.rate_words}", BlockerKind.JOB
        )
    started = [other for other in context.others if context.counts_against_rate(other)]
    same = [context.refilled_at(other) for other in started if other.cause == action.cause]
    yield from _over(
        same, limits.cause, f"{context.rate_words} for cause {action.cause}", BlockerKind.CAUSE
    )
    fleet = [
        *unexplained_mark_expiries(context),
        *(context.refilled_at(other) for other in started),
    ]
    yield from _over(
        fleet,
        context.max_fleet_rate,
        f"{context.rate_words} in the whole fleet",
        BlockerKind.FLEET_RATE,
    )
    if is_predicted_cause(action.cause) and not certain:
        predicted = [
            context.refilled_at(other) for other in started if is_predicted_cause(other.cause)
        ]
        words = f"{context.rate_words} for predictions in the whole fleet"
        yield from _over(predicted, context.max_predicted_rate, words, BlockerKind.PREDICTIONS)
    if action.mode in (DrainMode.MOVED, DrainMode.NOW):
        yield from exceeded_kill_limit(context.others, _jobs_at_stake(context), context)


def _jobs_at_stake(context: LimitContext) -> int:
    machine = context.machines.get(context.action.machine)
    seen = len(machine.jobs) if machine else 0
    return max(context.action.jobs, seen, int(context.action.job is not None))


def _number_exceeded(context: LimitContext, out: Sequence[CountedOutage]) -> Iterable[Blocker]:
    """Yield the limit on machines of the pool that are out, for any reason."""
    bound, name = context.limits.machines, context.pool.name
    n_out = sum(outage.until is None and outage.pool == name for outage in out)
    if bound is not None and n_out >= bound:
        words = f"{n_out} of {context.pool_size} machines of pool {name} {_are(n_out)} out"
        yield Blocker(f"{words}, at most {bound}", None, BlockerKind.MACHINES)


def _reversible_exceeded(context: LimitContext) -> Iterable[Blocker]:
    """Yield the limits on drains by forewarn that may have been wrong.

    External drains count against neither: some 3 % of a fleet are always out of service.
    """
    limits, name, size = context.limits, context.pool.name, context.pool_size
    ours, rack = reversible_outages(context), context.action.rack
    bound = share_to_count(limits.share, size)
    n_ours = sum(outage.until is None and outage.pool == name for outage in ours)
    if n_ours >= bound:
        words = f"forewarn has {n_ours} of {size} machines of pool {name} out, at most {bound}"
        yield Blocker(words, None, BlockerKind.SHARE)
    if rack is not None:
        in_rack = [outage.until for outage in ours if outage.rack == rack]
        yield from _over(
            in_rack,
            limits.rack,
            f"of rack {rack} out by forewarn or {context.rate_words}",
            BlockerKind.RACK,
        )


def _over(
    untils: Sequence[Nanoseconds | None], limit: int, which: str, kind: BlockerKind
) -> Iterable[Blocker]:
    number = len(untils)
    if number >= limit:
        words = f"{number} {_machines(number)} {which}, at most {limit}"
        yield Blocker(words, capacity_free_at(untils, limit, 1), kind)


def _too_many_avoided(context: LimitContext) -> Blocker | None:
    name, size = context.pool.name, context.pool_size
    avoided = {machine.name for machine in context.machines.values() if _avoided(machine, name)}
    avoided |= {
        other.machine
        for other in context.others
        if other.step is Step.AVOID and other.open and other.pool == name
    }
    number = len(avoided - {context.action.machine})
    bound = share_to_count(context.limits.avoided, size)
    if number < bound:
        return None
    words = f"{number} of {size} machines of pool {name} {_are(number)} avoided, at most {bound}"
    return Blocker(words, None, BlockerKind.AVOIDED)


def _avoided(machine: Machine, pool: str) -> bool:
    return (machine.avoided or machine.blocked) and machine.gpus > 0 and machine.pool == pool


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _machines(number: int) -> str:
    return "machine" if number == 1 else "machines"
