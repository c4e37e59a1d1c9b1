"""How much of each limit is used, for metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.counted_outages import (
    LimitContext,
    reversible_outages,
    unexplained_mark_expiries,
)
from forewarn.response.state.action import Action
from forewarn.response.state.finding import is_predicted_cause
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Pool, share_to_count
from forewarn.response.state.step import Step

__all__ = ["limit_use"]

_NO_TIME: Final = Nanoseconds(0)
_NO_ACTION: Final = Action(
    *(0, 0, "", "", None, None, "", Step.DRAIN, None),
    *(_NO_TIME, _NO_TIME, _NO_TIME),
)


def limit_use(
    pools: Mapping[str, Pool],
    fleet: Sequence[Machine],
    recent: Sequence[Action],
    now: Nanoseconds,
) -> dict[tuple[str, str], float]:
    """Return the used part of `share`, `fleet_rate` and its half for predictions.

    1: the next drain is blocked. It is infinite if the limit permits none. The keys are
    (limit, pool).

    Parameters
    ----------
    pools : mapping of str to Pool
    fleet : sequence of Machine
    recent : sequence of Action
        Open actions, and those that started within the longest `refill`.
    now : int
        Nanoseconds since 1970 UTC.
    """
    machines, use = {machine.name: machine for machine in fleet}, dict[tuple[str, str], float]()
    for name, pool in pools.items():
        context = LimitContext(_NO_ACTION, pool, machines, recent, now)
        ours = reversible_outages(context)
        n_ours = sum(outage.until is None and outage.pool == name for outage in ours)
        started = [action for action in recent if context.counts_against_rate(action)]
        drained = len(started) + len(unexplained_mark_expiries(context))
        predicted = sum(is_predicted_cause(action.cause) for action in started)
        bound = share_to_count(pool.limits.share, context.pool_size)
        use["share", name] = _part(n_ours, bound)
        use["fleet_rate", name] = _part(drained, context.max_fleet_rate)
        use["predictions", name] = _part(predicted, context.max_predicted_rate)
    return use


def _part(used: int, bound: int) -> float:
    return used / bound if bound > 0 else float("inf")
