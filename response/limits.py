"""Limits: how many machines may be out of service before we take out one more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.action import Action
from forewarn.response.census import Census, Outage, first_fit, jobs_under, outages
from forewarn.response.held import Held
from forewarn.response.killed_jobs import killed_exceeded
from forewarn.response.machine import Machine
from forewarn.response.pool import Pool
from forewarn.response.step import DrainMode, Step

__all__ = ["Held", "held_back"]


def held_back(
    action: Action,
    *,
    pools: Mapping[str, Pool],
    fleet: Sequence[Machine],
    recent: Sequence[Action],
    now: Nanoseconds,
) -> Held | None:
    """Return what holds a new action back; None if nothing does.

    Limits hold back what takes one more machine out, or lets jobs avoid one more; nothing else.
    What is intended and not yet seen in the fleet counts like what is seen, and a machine that is
    both counts once.

    Parameters
    ----------
    action : Action
        Not begun.
    pools : mapping of str to Pool
        Those in which anybody may act.
    fleet : sequence of Machine
        All machines, as they were read last.
    recent : sequence of Action
        All open ones, and all that began within the longest `refill`.
    now : int
        Nanoseconds since 1970 UTC.

    Returns
    -------
    Held or None
        Of several limits the one that holds longest.
    """
    pool = pools.get(action.pool)
    if pool is None:
        return Held(f"pool {action.pool} has no rules", None)
    others = [other for other in recent if other.id != action.id]
    machines = {machine.name: machine for machine in fleet}
    census = Census(action, pool, machines, others, now)
    if action.step is Step.AVOID:
        return _too_many_avoided(census)
    if not action.step.isolates:
        return None
    return _out_already(census) or _longest(_exceeded(census))


def _longest(helds: Iterable[Held]) -> Held | None:
    return max(helds, key=lambda held: (held.until is None, held.until or 0), default=None)


def _out_already(census: Census) -> Held | None:
    name = census.action.machine
    for other in census.others:
        if other.machine == name and other.open and other.step.isolates:
            return Held(f"action {other.id} takes {name} out already", None)
    if name in census.machines and census.machines[name].out:
        return Held(f"{name} is out of service already", None)
    return None


def _exceeded(census: Census) -> Iterable[Held]:
    """Yield each limit that does not let one more machine out."""
    limits, action, out = census.limits, census.action, outages(census)
    yield from _pool_exceeded(census, out)
    if action.rack is not None:
        rack = [outage.until for outage in out if outage.rack == action.rack]
        yield from _over(rack, limits.rack, f"of rack {action.rack} out now or {census.taken}")
    for job in sorted(jobs_under(census)):
        under = [outage.until for outage in out if job in outage.jobs]
        yield from _over(under, limits.job, f"of job {job} out now or {census.taken}")
    begun = [other for other in census.others if census.counts(other)]
    same = [census.refilled(other) for other in begun if other.cause == action.cause]
    yield from _over(same, limits.cause, f"{census.taken} for cause {action.cause}")
    fleet = [census.refilled(other) for other in begun]
    yield from _over(fleet, limits.fleet_rate, f"{census.taken} in the whole fleet")
    if action.mode is DrainMode.NOW:
        yield from killed_exceeded(census.others, _jobs_at_stake(census), census)


def _jobs_at_stake(census: Census) -> int:
    machine = census.machines.get(census.action.machine)
    seen = len(machine.jobs) if machine else 0
    return max(census.action.jobs, seen, int(census.action.job is not None))


def _pool_exceeded(census: Census, out: Sequence[Outage]) -> Iterable[Held]:
    """Yield the limit of the pool; a small one may lose one machine while none is out."""
    limits, name, size = census.limits, census.pool.name, census.size
    bound = _share(limits.share, size)
    if limits.machines is not None:
        bound = min(bound, limits.machines)
    n_out = sum(outage.until is None and outage.pool == name for outage in out)
    if n_out >= bound:
        words = f"{n_out} of {size} machines of pool {name} {_are(n_out)} out, at most {bound}"
        yield Held(words, None)


def _share(share: float, size: int) -> int:
    # 0.29 * 100 is a little less than 29.
    return max(1, int(share * size + 1e-9)) if share > 0 else 0


def _over(untils: Sequence[Nanoseconds | None], limit: int, which: str) -> Iterable[Held]:
    number = len(untils)
    if number >= limit:
        words = f"{number} {_machines(number)} {which}, at most {limit}"
        yield Held(words, first_fit(untils, limit, 1))


def _too_many_avoided(census: Census) -> Held | None:
    name, size = census.pool.name, census.size
    avoided = {machine.name for machine in census.machines.values() if _avoided(machine, name)}
    avoided |= {
        other.machine
        for other in census.others
        if other.step is Step.AVOID and other.open and other.pool == name
    }
    number = len(avoided - {census.action.machine})
    bound = _share(census.limits.avoided, size)
    if number < bound:
        return None
    words = f"{number} of {size} machines of pool {name} {_are(number)} avoided, at most {bound}"
    return Held(words, None)


def _avoided(machine: Machine, pool: str) -> bool:
    return machine.avoided and machine.gpus > 0 and machine.pool == pool


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _machines(number: int) -> str:
    return "machine" if number == 1 else "machines"
