"""Machines that others should not remove while the evidence about them is collected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from forewarn.features.time_units import MINUTE
from forewarn.response.decision.situation import Situation
from forewarn.response.state.incident import Incident
from forewarn.response.state.pool import PoolMode

__all__ = ["HOLD_SPAN", "machines_to_hold"]

HOLD_SPAN: Final = 10 * MINUTE
"""Time after the first finding in which logs, dumps and diagnoses arrive."""


def machines_to_hold(incidents: Iterable[Incident], situation: Situation) -> set[str]:
    """Return machines with a recent first finding, in pools that act.

    Parameters
    ----------
    incidents : iterable of Incident
        Open ones. Shared incidents hold nothing: they may concern the whole fleet.
    situation : Situation
    """
    if any(interlock.kill_switch for interlock in situation.interlocks):
        return set()
    recent = {
        incident.machine
        for incident in incidents
        if not incident.shared and 0 <= situation.now - incident.opened_at < HOLD_SPAN
    }
    acting = {name for name, pool in situation.pools.items() if pool.mode is PoolMode.ACT}
    return {
        machine.name
        for machine in situation.fleet.values()
        if machine.name in recent and machine.pool in acting and not machine.opted_out
    }
