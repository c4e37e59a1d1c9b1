"""Manual drains: carried out in a pool of any mode, within its limits."""

from __future__ import annotations

from dataclasses import replace

from forewarn.response.decision.decide import make_action
from forewarn.response.decision.limits import find_blocker
from forewarn.response.decision.situation import Situation
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker, BlockerKind
from forewarn.response.state.clock_readings import NO_SECOND_CLOCK
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import DrainMode, Step

__all__ = ["decide_manual_drain"]


def decide_manual_drain(incident: Incident, situation: Situation) -> Decision | None:
    """Return the decision about a manual drain; None if no person asked for one.

    Pool mode and safety interlocks apply to forewarn's own decisions only. Limits, the kill switch
    and external drains apply here as well.
    """
    requests = [
        finding
        for finding in incident.findings
        if finding.cause == MANUAL_CAUSE
        and finding.machine == incident.machine
        and finding.valid(situation.now)
    ]
    if incident.shared or not requests or _is_handled(requests[-1], incident.actions):
        return None
    request = requests[-1]
    decision = _decision(incident, request, situation)
    machine = situation.fleet.get(incident.machine)
    blocker = _manual_blocker(decision, incident, machine, situation)
    if blocker is None:
        return decision
    reason = f"{decision.reason}; blocked by: {blocker.reason}"
    held = _decision(incident, request, situation, ruling=Ruling.HOLD, reason=reason)
    return replace(held, blocked_by=blocker.kind)


def _is_handled(request: Finding, actions: tuple[Action, ...]) -> bool:
    return any(action.at >= request.at and action.step.isolates for action in actions)


def _decision(
    incident: Incident,
    request: Finding,
    situation: Situation,
    *,
    ruling: Ruling = Ruling.ACT,
    reason: str = "",
) -> Decision:
    why = str(request.evidence.get("why", ""))
    return Decision(
        incident=incident.id,
        at=situation.now,
        ruling=ruling,
        step=Step.DRAIN,
        mode=_mode(request),
        severity=request.severity or Severity.ERROR,
        reason=reason or (f"{MANUAL_CAUSE}: {why}" if why else MANUAL_CAUSE),
        until=None,
        valid_until=request.valid_until,
        findings=(request.key,),
        policy_version=situation.policy.version,
        who=request.source,
    )


def _mode(request: Finding) -> DrainMode:
    """Return the requested drain mode; `FINISH` if it is missing or unknown."""
    mode = request.evidence.get("mode")
    return next((known for known in DrainMode if known == mode), DrainMode.FINISH)


def _manual_blocker(
    decision: Decision, incident: Incident, machine: Machine | None, situation: Situation
) -> Blocker | None:
    """Return what blocks the manual drain now."""
    if machine is None:
        return Blocker(
            f"the scheduler does not know {incident.machine}", None, BlockerKind.EXCLUDED
        )
    if machine.pool is None or machine.pool not in situation.pools:
        return Blocker(f"{machine.name} is in no pool", None, BlockerKind.EXCLUDED)
    mode = DrainMode(decision.mode or DrainMode.FINISH)
    if situation.clock_alone and mode is not DrainMode.FINISH:
        words = f"mode {mode} ends jobs, and {NO_SECOND_CLOCK}: expected mode finish"
        return Blocker(words, None, BlockerKind.INTERLOCK)
    kill_switch = next(
        (interlock for interlock in situation.interlocks if interlock.kill_switch), None
    )
    if kill_switch is not None:
        return Blocker(kill_switch.reason, kill_switch.until, BlockerKind.INTERLOCK)
    return find_blocker(
        make_action(decision, incident, machine, situation.now),
        pools=situation.pools,
        fleet=list(situation.fleet.values()),
        recent=situation.recent,
        now=situation.now,
    )
