"""Decisions: from an incident and the situation to what is done, or what holds it back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.control import is_control
from forewarn.response.decision.evidence import answer, not_usable
from forewarn.response.decision.limits import held_back
from forewarn.response.decision.remedy import DRAIN_MODES, Remedy, remedy
from forewarn.response.decision.settling import gentle, waits_for_others
from forewarn.response.decision.situation import Situation
from forewarn.response.grouping.shared_incidents import candidates, storm_in_words
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.policy.policy import Policy
from forewarn.response.state.action import Action
from forewarn.response.state.clocks import NO_SECOND_CLOCK
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, Severity
from forewarn.response.state.held import Held
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Mode, Pool
from forewarn.response.state.step import Step

__all__ = ["action_of", "decide", "only_observe", "rests_on_certain_damage", "urgency"]


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
        return _of_shared(incident, situation)
    refused = [(finding, not_usable(finding, situation)) for finding in incident.findings]
    usable = [finding for finding, held in refused if held is None]
    if not usable:
        return _without_findings(incident, [held for _, held in refused if held], situation)
    wish = remedy(incident, usable, situation)
    waiting = None
    if wish.step.isolates:
        waiting = waits_for_others(incident, wish, situation)
        wish = wish.at_most_avoid(waiting.reason) if waiting else gentle(incident, wish, situation)
    if situation.clock_alone:
        wish = wish.at_most_finish(NO_SECOND_CLOCK)
    decision = _draft(incident, wish, situation, waiting.until if waiting else None)
    if wish.step is Step.TELL:
        return decision
    held = _out_of_reach(incident, situation) or _done_already(incident, wish, situation)
    if held is not None:
        ruling, why = held
        return _held(decision, ruling, why)
    return _by_mode(decision, wish, incident, situation)


def only_observe(incident: Incident, situation: Situation, why: str) -> Decision:
    """Return a decision by which nothing is done, whatever the incident asks for."""
    decision = decide(incident, situation)
    reason = f"observed only: {why}"
    return replace(decision, ruling=Ruling.OBSERVE, reason=reason, until=None)


def action_of(
    decision: Decision,
    incident: Incident,
    machine: Machine,
    now: Nanoseconds,
    *,
    fleet: Iterable[Machine] = (),
) -> Action:
    """Return the action that a decision asks for, as long as nobody has written it."""
    bearing = _bearing(decision, incident)
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
    return any(is_certain(finding) for finding in _bearing(decision, incident))


def _bearing(decision: Decision, incident: Incident) -> list[Finding]:
    by_key = {finding.key: finding for finding in incident.findings}
    return [by_key[key] for key in decision.findings if key in by_key]


def _draft(
    incident: Incident, wish: Remedy, situation: Situation, until: Nanoseconds | None
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


def _held(decision: Decision, ruling: Ruling, held: Held) -> Decision:
    verb = "held back" if ruling is Ruling.HOLD else "observed only"
    reason = f"{decision.reason}; {verb}: {held.reason}"
    until = decision.until if held.until is None else held.until
    return replace(decision, ruling=ruling, reason=reason, until=until)


def _without_findings(incident: Incident, helds: list[Held], situation: Situation) -> Decision:
    """Return that nothing is done, and why none of the findings may be acted on."""
    words = "; ".join(dict.fromkeys(held.reason for held in helds)) or "it has no findings"
    untils = [held.until for held in helds if held.until is not None]
    severities = [situation.policy.rule(finding).severity for finding in incident.findings]
    choice = situation.policy.step_for(
        incident, situation.beside(incident), situation.recent, situation.now
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


def _of_shared(incident: Incident, situation: Situation) -> Decision:
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
        reason=storm_in_words(incident.shared, len(incident.machines), possible),
        until=None,
        valid_until=max((f.valid_until for f in incident.findings), default=situation.now),
        findings=tuple(finding.key for finding in incident.findings),
        policy_version=situation.policy.version,
    )


# --- the machine ----------------------------------------------------------------------------------


def _out_of_reach(incident: Incident, situation: Situation) -> tuple[Ruling, Held] | None:
    """Return why nothing is done to this machine, whatever the step."""
    name = incident.machine
    if incident.state is not IncidentState.OPEN:
        return Ruling.HOLD, Held(f"the incident is {incident.state}", None)
    machine = situation.fleet.get(name)
    if machine is None:
        return Ruling.HOLD, Held(f"the scheduler does not know {name}", None)
    if machine.pool is None or machine.pool not in situation.pools:
        return Ruling.OBSERVE, Held(f"{name} is in no pool in which anybody may act", None)
    if machine.opted_out:
        return Ruling.OBSERVE, Held(f"{name} is opted out by its label", None)
    if machine.out and machine.action is None:
        said_why = f" ({machine.reason})" if machine.reason else ""
        return Ruling.HOLD, Held(f"{name} is out of service already{said_why}", None)
    return None


def _done_already(
    incident: Incident, wish: Remedy, situation: Situation
) -> tuple[Ruling, Held] | None:
    """Return the action that is on this machine, or was its answer to all these findings."""
    for action in situation.recent:
        if action.machine == incident.machine and action.open:
            if action.step.isolates:
                return Ruling.HOLD, Held(f"action {action.id} takes it out already", None)
            if action.step is wish.step:
                return Ruling.HOLD, Held(f"action {action.id} does so already", None)
    ended = answer(incident.machine, wish.findings, situation.recent, isolates=wish.step.isolates)
    if ended is not None:
        words = f"action {ended.id} answered this, and is {ended.state}"
        return Ruling.HOLD, Held(words, None)
    return None


# --- who may act ----------------------------------------------------------------------------------


def _with_lot(
    decision: Decision, wish: Remedy, machine: Machine, pool: Pool, situation: Situation
) -> Decision:
    """Draw the lot of a drain by prediction alone, before anybody sees the decision."""
    if not wish.predicted:
        return decision
    if pool.mode is Mode.OBSERVE:
        return replace(decision, propensity=1.0)
    if not pool.control:
        return decision
    salt = situation.settings.salt
    drawn = is_control(machine.name, decision.incident, share=pool.control, salt=salt)
    return replace(decision, propensity=pool.control, control=drawn)


def _by_mode(
    decision: Decision, wish: Remedy, incident: Incident, situation: Situation
) -> Decision:
    machine = situation.fleet[incident.machine]
    pool = situation.pools[machine.pool or ""]
    decision = _with_lot(decision, wish, machine, pool, situation)
    held = _only_observed(decision, wish, pool, situation)
    if held is not None:
        return _held(decision, Ruling.OBSERVE, held)
    approver = _approver(decision, situation)
    if approver is None and (wish.needs_person or pool.mode is Mode.PROPOSE):
        return replace(decision, ruling=Ruling.PROPOSE)
    decision = replace(decision, who=approver or decision.who)
    return _within_limits(decision, incident, machine, situation)


def _only_observed(
    decision: Decision, wish: Remedy, pool: Pool, situation: Situation
) -> Held | None:
    """Return why nobody may act on this now."""
    if decision.control:
        return Held("it is left in service and watched, as one of the control share", None)
    for brake in situation.brakes:
        if brake.stops(wish.findings):
            return Held(brake.reason, brake.until)
    if pool.mode is Mode.OBSERVE:
        return Held(f"pool {pool.name} is in mode observe", None)
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
    held = held_back(
        action_of(decision, incident, machine, situation.now),
        pools=situation.pools,
        fleet=list(situation.fleet.values()),
        recent=situation.recent,
        now=situation.now,
        certain=rests_on_certain_damage(decision, incident),
    )
    if held is not None:
        return _held(decision, Ruling.HOLD, held)
    return replace(decision, ruling=Ruling.ACT)
