"""Spare machines of a pool: idle machines that take over the jobs of those that are drained."""

from __future__ import annotations

from forewarn.response.decision.situation import Situation
from forewarn.response.state.action import ActionState
from forewarn.response.state.machine import Machine

__all__ = ["find_spare_shortage"]


def find_spare_shortage(machine: Machine, situation: Situation) -> str:
    """Return why no spare is left for a machine; empty if there is one, or its pool needs none.

    A spare is another GPU machine of the pool that is in service, runs no job and is not avoided.
    Each machine that forewarn is draining will need one.

    Parameters
    ----------
    machine : Machine
        To be drained.
    situation : Situation
    """
    pool = situation.pools.get(machine.pool or "")
    if pool is None or not pool.needs_spare:
        return ""
    draining = {
        action.machine
        for action in situation.recent
        if action.open
        and action.step.isolates
        and action.state is not ActionState.DRAINED
        and action.pool == pool.name
        and action.machine != machine.name
    }
    n_spares = sum(
        other.pool == pool.name and _is_spare(other) and other.name not in draining
        for other in situation.fleet.values()
        if other.name != machine.name
    )
    if n_spares > len(draining):
        return ""
    claimed = f" ({n_spares} for {len(draining)} that are draining)" if n_spares else ""
    return f"no spare is left in pool {pool.name}{claimed}"


def _is_spare(machine: Machine) -> bool:
    return machine.gpus > 0 and not machine.impaired and not machine.jobs and not machine.avoided
