"""Decisions: from an incident and the situation to what is done, or what holds it back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.group_wait import find_group_wait, soften_drain
from forewarn.response.decision.holdout import in_holdout
from forewarn.response.decision.limits import find_blocker
from forewarn.response.decision.remediation import DRAIN_MODES, Remediation, choose_remediation
from forewarn.response.decision.situation import Situation
from forewarn.response.decision.usable_findings import find_answering_action, find_finding_blocker
from forewarn.response.grouping.shared_incidents import candidates, describe_event
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.policy.policy import Policy
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker
from forewarn.response.state.clock_readings import NO_SECOND_CLOCK
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, Severity
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Pool, PoolMode
from forewarn.response.state.step import Step

__all__ = ["decide", "decide_observe_only", "make_action", "rests_on_certain_damage", "urgency"]


def urgency(incident: Incident, policy: Policy) -> tuple[int, float, int]:
    """Return what incidents are decided by: the gravest first, then the likeliest, then the oldest.

    The first one takes the last machine that may go.
    """
    ranks = [policy.rule(finding).severity.rank for finding in incident.findings]
    likely = [finding.probability for finding in incident.findings]
    return (-max(ranks, default=0), -max(likely, default=0.0), incident.id)


def decide(incident: Incident, situation: Situation) -> Decision:
    """Return what is to be done about an incident now.

    Nothing in it changes while nothing happens, so that a ledger adds no row for the same again.

    Parameters
    ----------
    incident : Incident
        Open.
    situation : Situation

    Returns
    -------
    Decision
        `ACT` only for a step that changes something; to tell is to observe.
    """
    if incident.shared:
        return _decide_shared(incident, situation)
    refused = [(finding, find_finding_blocker(finding, situation)) for finding in incident.findings]
    usable = [finding for finding, held in refused if held is None]
    if not usable:
        return _without_findings(incident, [held for _, held in refused if held], situation)
    wish = choose_remediation(incident, usable, situation)
    waiting = None
    if wish.step.isolates:
        waiting = find_group_wait(incident, wish, situation)
        wish = (
            wish.at_most_avoid(waiting.reason)
            if waiting
            else soften_drain(incident, wish, situation)
        )
    if situation.clock_alone:
        wish = wish.at_most_finish(NO_SECOND_CLOCK)
    decision = _draft(incident, wish, situation, waiting.until if waiting else None)
    if wish.step is Step.TELL:
        return decision
    held = _untouchable(incident, situation) or _already_handled(incident, wish, situation)
    if held is not None:
        ruling, why = held
        return _with_blocker(decision, ruling, why)
    return _by_mode(decision, wish, incident, situation)


def decide_observe_only(incident: Incident, situation: Situation, why: str) -> Decision:
    """Return a decision by which nothing is done, whatever the incident asks for."""
    decision = decide(incident, situation)
    reason = f"observed only: {why}"
    return replace(decision, ruling=Ruling.OBSERVE, reason=reason, until=None)


def make_action(
    decision: Decision,
    incident: Incident,
    machine: Machine,
    now: Nanoseconds,
    *,
    fleet: Iterable[Machine] = (),
) -> Action:
    """Return the action that a decision asks for, as long as nobody has written it."""
    bearing = _supporting_findings(decision, incident)
    jobs = [finding.job for finding in bearing if finding.job is not None]
    job = next(iter([*jobs, *machine.jobs]), None)
    return Action(
        id=0,
        incident=incident.id,
        machine=machine.name,
        pool=machine.pool or "",
        rack=machine.rack,
        job=job,
        cause=bearing[0].cause if bearing else "",
        step=decision.step,
        mode=decision.mode,
        at=now,
        valid_until=decision.valid_until,
        changed_at=now,
        jobs=len(machine.jobs),
        gpu_serial=incident.gpu_serial,
        gpus=machine.gpus,
        job_gpus=sum(other.gpus for other in fleet if job is not None and job in other.jobs),
    )


def rests_on_certain_damage(decision: Decision, incident: Incident) -> bool:
    """Tell whether a finding that a decision rests on proves damage."""
    return any(is_certain(finding) for finding in _supporting_findings(decision, incident))


def _supporting_findings(decision: Decision, incident: Incident) -> list[Finding]:
    by_key = {finding.key: finding for finding in incident.findings}
    return [by_key[key] for key in decision.findings if key in by_key]


def _draft(
    incident: Incident, wish: Remediation, situation: Situation, until: Nanoseconds | None
) -> Decision:
    versions = [f.model_version for f in wish.findings if f.model_version]
    return Decision(
        incident=incident.id,
        at=situation.now,
        ruling=Ruling.OBSERVE,
        step=wish.step,
        mode=wish.mode,
        severity=wish.severity,
        reason=wish.reason,
        until=until,
        valid_until=wish.valid_until,
        findings=tuple(finding.key for finding in wish.findings),
        policy_version=situation.policy.version,
        model_version=versions[0] if versions else "",
    )


def _with_blocker(decision: Decision, ruling: Ruling, held: Blocker) -> Decision:
    verb = "held back" if ruling is Ruling.HOLD else "observed only"
    reason = f"{decision.reason}; {verb}: {held.reason}"
    until = decision.until if held.until is None else held.until
    return replace(decision, ruling=ruling, reason=reason, until=until)


def _without_findings(incident: Incident, helds: list[Blocker], situation: Situation) -> Decision:
    """Return that nothing is done, and why none of the findings may be acted on."""
    words = "; ".join(dict.fromkeys(held.reason for held in helds)) or "it has no findings"
    untils = [held.until for held in helds if held.until is not None]
    severities = [situation.policy.rule(finding).severity for finding in incident.findings]
    choice = situation.policy.step_for(
        incident, situation.other_incidents(incident), situation.recent, situation.now
    )
    return Decision(
        incident=incident.id,
        at=situation.now,
        ruling=Ruling.HOLD,
        step=choice.step,
        mode=choice.mode,
        severity=max(severities, key=lambda s: s.rank, default=choice.severity),
        reason=f"held back: {words}",
        until=min(untils, default=None),
        valid_until=max((f.valid_until for f in incident.findings), default=situation.now),
        findings=tuple(finding.key for finding in incident.findings),
        policy_version=situation.policy.version,
    )


def _decide_shared(incident: Incident, situation: Situation) -> Decision:
    """Return what an event on many machines says; it takes none of them out."""
    possible = candidates(incident.findings, incident.shared, situation.settings)
    severities = [situation.policy.rule(finding).severity for finding in incident.findings]
    return Decision(
        incident=incident.id,
        at=situation.now,
        ruling=Ruling.OBSERVE,
        step=Step.TELL,
        mode=None,
        severity=max(severities, key=lambda s: s.rank, default=Severity.NOTICE),
        reason=describe_event(incident.shared, len(incident.machines), possible),
        until=None,
        valid_until=max((f.valid_until for f in incident.findings), default=situation.now),
        findings=tuple(finding.key for finding in incident.findings),
        policy_version=situation.policy.version,
    )


# --- the machine ----------------------------------------------------------------------------------


def _untouchable(incident: Incident, situation: Situation) -> tuple[Ruling, Blocker] | None:
    """Return why nothing is done to this machine, whatever the step."""
    name = incident.machine
    if incident.state is not IncidentState.OPEN:
        return Ruling.HOLD, Blocker(f"the incident is {incident.state}", None)
    machine = situation.fleet.get(name)
    if machine is None:
        return Ruling.HOLD, Blocker(f"the scheduler does not know {name}", None)
    if machine.pool is None or machine.pool not in situation.pools:
        return Ruling.OBSERVE, Blocker(f"{name} is in no pool in which anybody may act", None)
    if machine.opted_out:
        return Ruling.OBSERVE, Blocker(f"{name} is opted out by its label", None)
    if machine.out and machine.action is None:
        said_why = f" ({machine.reason})" if machine.reason else ""
        return Ruling.HOLD, Blocker(f"{name} is out of service already{said_why}", None)
    return None


def _already_handled(
    incident: Incident, wish: Remediation, situation: Situation
) -> tuple[Ruling, Blocker] | None:
    """Return the action that is on this machine, or was its answer to all these findings."""
    for action in situation.recent:
        if action.machine == incident.machine and action.open:
            if action.step.isolates:
                return Ruling.HOLD, Blocker(f"action {action.id} takes it out already", None)
            if action.step is wish.step:
                return Ruling.HOLD, Blocker(f"action {action.id} does so already", None)
    ended = find_answering_action(
        incident.machine, wish.findings, situation.recent, isolates=wish.step.isolates
    )
    if ended is not None:
        words = f"action {ended.id} answered this, and is {ended.state}"
        return Ruling.HOLD, Blocker(words, None)
    return None


# --- who may act ----------------------------------------------------------------------------------


def _assign_holdout(
    decision: Decision, wish: Remediation, machine: Machine, pool: Pool, situation: Situation
) -> Decision:
    """Draw the lot of a drain by prediction alone, before anybody sees the decision."""
    if not wish.predicted:
        return decision
    if pool.mode is PoolMode.OBSERVE:
        return replace(decision, propensity=1.0)
    if not pool.control:
        return decision
    salt = situation.settings.salt
    drawn = in_holdout(machine.name, decision.incident, share=pool.control, salt=salt)
    return replace(decision, propensity=pool.control, control=drawn)


def _by_mode(
    decision: Decision, wish: Remediation, incident: Incident, situation: Situation
) -> Decision:
    machine = situation.fleet[incident.machine]
    pool = situation.pools[machine.pool or ""]
    decision = _assign_holdout(decision, wish, machine, pool, situation)
    held = _observe_only_blocker(decision, wish, pool, situation)
    if held is not None:
        return _with_blocker(decision, Ruling.OBSERVE, held)
    approver = _approver(decision, situation)
    if approver is None and (wish.needs_person or pool.mode is PoolMode.PROPOSE):
        return replace(decision, ruling=Ruling.PROPOSE)
    decision = replace(decision, who=approver or decision.who)
    return _within_limits(decision, incident, machine, situation)


def _observe_only_blocker(
    decision: Decision, wish: Remediation, pool: Pool, situation: Situation
) -> Blocker | None:
    """Return why nobody may act on this now."""
    if decision.control:
        return Blocker("it is left in service and watched, as one of the control share", None)
    for interlock in situation.interlocks:
        if interlock.blocks(wish.findings):
            return Blocker(interlock.reason, interlock.until)
    if pool.mode is PoolMode.OBSERVE:
        return Blocker(f"pool {pool.name} is in mode observe", None)
    return None


def _approver(decision: Decision, situation: Situation) -> str | None:
    """Return who approved this step or a harder one, while what was shown is valid."""
    approval = situation.approvals.get(decision.incident)
    if approval is None:
        return None
    shown = approval.decision
    in_time = approval.at <= situation.now < shown.valid_until
    milder = decision.step.rank <= shown.step.rank
    gentler = DRAIN_MODES.index(decision.mode) <= DRAIN_MODES.index(shown.mode)
    same = shown.incident == decision.incident
    return approval.who if in_time and milder and gentler and same else None


def _within_limits(
    decision: Decision, incident: Incident, machine: Machine, situation: Situation
) -> Decision:
    held = find_blocker(
        make_action(decision, incident, machine, situation.now),
        pools=situation.pools,
        fleet=list(situation.fleet.values()),
        recent=situation.recent,
        now=situation.now,
        certain=rests_on_certain_damage(decision, incident),
    )
    if held is not None:
        return _with_blocker(decision, Ruling.HOLD, held)
    return replace(decision, ruling=Ruling.ACT)
