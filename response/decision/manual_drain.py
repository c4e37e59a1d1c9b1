"""What a person wants done to a machine: done in any pool, within its limits."""

from __future__ import annotations

from forewarn.response.decision.decide import make_action
from forewarn.response.decision.limits import find_blocker
from forewarn.response.decision.situation import Situation
from forewarn.response.state.action import Action
from forewarn.response.state.clock_readings import NO_SECOND_CLOCK
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import DrainMode, Step

__all__ = ["decide_manual_drain"]


def decide_manual_drain(incident: Incident, situation: Situation) -> Decision | None:
    """Return the decision about a drain that a person asked for; None where nobody did.

    The mode of the pool and the brakes are about what forewarn wants by itself. The limits, the
    kill switch and machines that others have taken out are respected here, too.
    """
    wishes = [
        finding
        for finding in incident.findings
        if finding.cause == MANUAL_CAUSE
        and finding.machine == incident.machine
        and finding.valid(situation.now)
    ]
    if incident.shared or not wishes or _answered(wishes[-1], incident.actions):
        return None
    wish = wishes[-1]
    decision = _decision(incident, wish, situation)
    machine = situation.fleet.get(incident.machine)
    held = _held(decision, incident, machine, situation)
    if held is None:
        return decision
    reason = f"{decision.reason}; held back: {held}"
    return _decision(incident, wish, situation, ruling=Ruling.HOLD, reason=reason)


def _answered(wish: Finding, actions: tuple[Action, ...]) -> bool:
    return any(action.at >= wish.at and action.step.isolates for action in actions)


def _decision(
    incident: Incident,
    wish: Finding,
    situation: Situation,
    *,
    ruling: Ruling = Ruling.ACT,
    reason: str = "",
) -> Decision:
    why = str(wish.evidence.get("why", ""))
    return Decision(
        incident=incident.id,
        at=situation.now,
        ruling=ruling,
        step=Step.DRAIN,
        mode=_mode(wish),
        severity=wish.severity or Severity.ERROR,
        reason=reason or (f"{MANUAL_CAUSE}: {why}" if why else MANUAL_CAUSE),
        until=None,
        valid_until=wish.valid_until,
        findings=(wish.key,),
        policy_version=situation.policy.version,
        who=wish.source,
    )


def _mode(wish: Finding) -> DrainMode:
    """Return how a person wants jobs to end; the mildest way where nobody can tell."""
    mode = wish.evidence.get("mode")
    return next((known for known in DrainMode if known == mode), DrainMode.FINISH)


def _held(
    decision: Decision, incident: Incident, machine: Machine | None, situation: Situation
) -> str | None:
    """Return why it is not done now."""
    if machine is None:
        return f"the scheduler does not know {incident.machine}"
    if machine.pool is None or machine.pool not in situation.pools:
        return f"{machine.name} is in no pool"
    mode = DrainMode(decision.mode or DrainMode.FINISH)
    if situation.clock_alone and mode is not DrainMode.FINISH:
        return f"mode {mode} ends jobs, and {NO_SECOND_CLOCK}: expected mode finish"
    stop = next((interlock for interlock in situation.interlocks if interlock.kill_switch), None)
    if stop is not None:
        return stop.reason
    held = find_blocker(
        make_action(decision, incident, machine, situation.now),
        pools=situation.pools,
        fleet=list(situation.fleet.values()),
        recent=situation.recent,
        now=situation.now,
    )
    return None if held is None else held.reason
