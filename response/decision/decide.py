"""Decision about an incident: the step, and what blocks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.group_wait import find_group_wait, soften_drain
from forewarn.response.decision.holdout import in_holdout
from forewarn.response.decision.limits import find_blocker
from forewarn.response.decision.remediation import DRAIN_MODES, Remediation, choose_remediation
from forewarn.response.decision.situation import Situation
from forewarn.response.decision.spare_machines import find_spare_shortage
from forewarn.response.decision.usable_findings import find_answering_action, find_finding_blocker
from forewarn.response.grouping.shared_incidents import describe_event, first_affected_machines
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.policy.policy import Policy
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker, BlockerKind
from forewarn.response.state.clock_readings import NO_SECOND_CLOCK
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, Severity
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Pool, PoolMode
from forewarn.response.state.step import DrainMode, Step

__all__ = ["decide", "decide_observe_only", "make_action", "rests_on_certain_damage", "urgency"]


def urgency(incident: Incident, policy: Policy) -> tuple[int, float, int]:
    """Return the sort key of incidents: most severe first, then most likely, then oldest.

    The first incident gets the last machine that the limits allow.
    """
    ranks = [policy.rule(finding).severity.rank for finding in incident.findings]
    likely = [finding.probability for finding in incident.findings]
    return (-max(ranks, default=0), -max(likely, default=0.0), incident.id)


def decide(incident: Incident, situation: Situation) -> Decision:
    """Return the decision about an incident at this moment.

    The same situation gives an equal decision, so the ledger adds no duplicate row.

    Parameters
    ----------
    incident : Incident
        An open one.
    situation : Situation

    Returns
    -------
    Decision
        `ACT` only for a step that changes a machine; `TELL` is `OBSERVE`.
    """
    if incident.shared:
        return _decide_shared(incident, situation)
    refused = [(finding, find_finding_blocker(finding, situation)) for finding in incident.findings]
    usable = [finding for finding, blocker in refused if blocker is None]
    if not usable:
        return _without_findings(
            incident, [blocker for _, blocker in refused if blocker], situation
        )
    remediation = choose_remediation(incident, usable, situation)
    wait = None
    if remediation.step.isolates:
        wait = find_group_wait(incident, remediation, situation)
        remediation = (
            remediation.at_most_avoid(wait.reason)
            if wait
            else soften_drain(incident, remediation, situation)
        )
    if situation.clock_alone:
        remediation = remediation.at_most_finish(NO_SECOND_CLOCK)
    remediation = _with_spare(incident, remediation, situation)
    decision = _draft(incident, remediation, situation, wait.until if wait else None)
    if remediation.step is Step.TELL:
        return decision
    blocker = _untouchable(incident, situation) or _already_handled(
        incident, remediation, situation
    )
    if blocker is not None:
        ruling, why = blocker
        return _with_blocker(decision, ruling, why)
    return _by_mode(decision, remediation, incident, situation)


def decide_observe_only(incident: Incident, situation: Situation, why: str) -> Decision:
    """Return the decision about an incident with the ruling `OBSERVE`."""
    decision = decide(incident, situation)
    reason = f"observed only: {why}"
    return replace(
        decision,
        ruling=Ruling.OBSERVE,
        reason=reason,
        until=None,
        blocked_by=BlockerKind.INTERLOCK,
    )


def make_action(
    decision: Decision,
    incident: Incident,
    machine: Machine,
    now: Nanoseconds,
    *,
    fleet: Iterable[Machine] = (),
) -> Action:
    """Return the action of a decision, without a number.

    Its mode is `MOVED` where the scheduler does not let jobs finish on a closed machine.
    """
    supporting = _supporting_findings(decision, incident)
    jobs = [finding.job for finding in supporting if finding.job is not None]
    job = next(iter([*jobs, *machine.jobs]), None)
    moved = machine.moves_jobs and decision.step.isolates and decision.mode is not DrainMode.NOW
    return Action(
        id=0,
        incident=incident.id,
        machine=machine.name,
        pool=machine.pool or "",
        rack=machine.rack,
        job=job,
        cause=supporting[0].cause if supporting else "",
        step=decision.step,
        mode=DrainMode.MOVED if moved else decision.mode,
        at=now,
        valid_until=decision.valid_until,
        changed_at=now,
        jobs=len(machine.jobs),
        gpu_serial=incident.gpu_serial,
        gpus=machine.gpus,
        job_gpus=sum(other.gpus for other in fleet if job is not None and job in other.jobs),
    )


def rests_on_certain_damage(decision: Decision, incident: Incident) -> bool:
    """Tell whether a supporting finding is evidence of certain damage."""
    return any(is_certain(finding) for finding in _supporting_findings(decision, incident))


def _supporting_findings(decision: Decision, incident: Incident) -> list[Finding]:
    by_key = {finding.key: finding for finding in incident.findings}
    return [by_key[key] for key in decision.findings if key in by_key]


def _draft(
    incident: Incident, remediation: Remediation, situation: Situation, until: Nanoseconds | None
) -> Decision:
    versions = [f.model_version for f in remediation.findings if f.model_version]
    return Decision(
        incident=incident.id,
        at=situation.now,
        ruling=Ruling.OBSERVE,
        step=remediation.step,
        mode=remediation.mode,
        severity=remediation.severity,
        reason=remediation.reason,
        until=until,
        valid_until=remediation.valid_until,
        findings=tuple(finding.key for finding in remediation.findings),
        policy_version=situation.policy.version,
        model_version=versions[0] if versions else "",
    )


def _with_spare(incident: Incident, remediation: Remediation, situation: Situation) -> Remediation:
    """Return the mildest remediation if it isolates and no spare could take over the jobs."""
    machine = situation.fleet.get(incident.machine)
    if machine is None or machine.out or not remediation.step.isolates:
        return remediation
    shortage = find_spare_shortage(machine, situation)
    return remediation.mildest(shortage) if shortage else remediation


def _with_blocker(decision: Decision, ruling: Ruling, blocker: Blocker) -> Decision:
    verb = "observed only" if ruling is Ruling.OBSERVE else "blocked by"
    reason = f"{decision.reason}; {verb}: {blocker.reason}"
    until = decision.until if blocker.until is None else blocker.until
    return replace(decision, ruling=ruling, reason=reason, until=until, blocked_by=blocker.kind)


def _without_findings(
    incident: Incident, blockers: list[Blocker], situation: Situation
) -> Decision:
    """Return a decision that takes no step, with the blocker of each finding."""
    words = (
        "; ".join(dict.fromkeys(blocker.reason for blocker in blockers))
        or "the incident has no findings"
    )
    untils = [blocker.until for blocker in blockers if blocker.until is not None]
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
        reason=f"blocked by: {words}",
        until=min(untils, default=None),
        valid_until=max((f.valid_until for f in incident.findings), default=situation.now),
        findings=tuple(finding.key for finding in incident.findings),
        policy_version=situation.policy.version,
        blocked_by=blockers[0].kind if blockers else None,
    )


def _decide_shared(incident: Incident, situation: Situation) -> Decision:
    """Return the decision about a shared incident, which drains no machine."""
    possible = first_affected_machines(incident.findings, incident.shared, situation.settings)
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
        blocked_by=BlockerKind.EVENT,
    )


# --- the machine ----------------------------------------------------------------------------------


def _untouchable(incident: Incident, situation: Situation) -> tuple[Ruling, Blocker] | None:
    """Return what excludes this machine from every step."""
    name = incident.machine
    if incident.state is not IncidentState.OPEN:
        return Ruling.HOLD, Blocker(f"the incident is {incident.state}", None, BlockerKind.HANDLED)
    machine = situation.fleet.get(name)
    if machine is None:
        return Ruling.HOLD, Blocker(
            f"the scheduler does not know {name}", None, BlockerKind.EXCLUDED
        )
    if machine.pool is None or machine.pool not in situation.pools:
        return Ruling.OBSERVE, Blocker(
            f"{name} is in no pool of the configuration", None, BlockerKind.EXCLUDED
        )
    if machine.opted_out:
        return Ruling.OBSERVE, Blocker(
            f"{name} is opted out by its label", None, BlockerKind.EXCLUDED
        )
    if machine.out and machine.action is None:
        reason = f" ({machine.reason})" if machine.reason else ""
        return Ruling.HOLD, Blocker(
            f"{name} is out of service already{reason}", None, BlockerKind.OUT
        )
    return None


def _already_handled(
    incident: Incident, remediation: Remediation, situation: Situation
) -> tuple[Ruling, Blocker] | None:
    """Return the action that is active on this machine, or has answered all these findings."""
    for action in situation.recent:
        spared = action.spares(situation.fleet.get(action.machine), incident.gpu_serial)
        if action.machine == incident.machine and action.open and not spared:
            if action.step.isolates:
                return _already_drained(action, incident, remediation, situation)
            if action.step is remediation.step:
                return Ruling.HOLD, Blocker(
                    f"action {action.id} already does this", None, BlockerKind.HANDLED
                )
    ended = find_answering_action(
        incident.machine, remediation.findings, situation.recent, isolates=remediation.step.isolates
    )
    if ended is not None:
        words = f"action {ended.id} answered this, and is {ended.state}"
        return Ruling.HOLD, Blocker(words, None, BlockerKind.HANDLED)
    return None


def _already_drained(
    action: Action, incident: Incident, remediation: Remediation, situation: Situation
) -> tuple[Ruling, Blocker]:
    """Return what the machine waits for; the approval of a replacement is proposed."""
    request = situation.requests.get(action.id, "")
    words = f"action {action.id} already drains it" + (f"; {request}" if request else "")
    pool = situation.pools.get(action.pool)
    proposes = (
        bool(request)
        and pool is not None
        and Step.REPLACE in pool.steps
        and action.step is remediation.step is Step.REPLACE
        and action.incident == incident.id
        and not situation.replacement_approved(action)
    )
    return Ruling.PROPOSE if proposes else Ruling.HOLD, Blocker(words, None, BlockerKind.HANDLED)


# --- permission to act ----------------------------------------------------------------------------


def _assign_holdout(
    decision: Decision, remediation: Remediation, machine: Machine, pool: Pool, situation: Situation
) -> Decision:
    """Assign a drain by prediction alone to the holdout or not, before a person sees it."""
    if not remediation.predicted:
        return decision
    if pool.mode is PoolMode.OBSERVE:
        return replace(decision, propensity=1.0)
    if not pool.control:
        return decision
    salt = situation.settings.salt
    drawn = in_holdout(machine.name, decision.incident, share=pool.control, salt=salt)
    return replace(decision, propensity=pool.control, control=drawn)


def _by_mode(
    decision: Decision, remediation: Remediation, incident: Incident, situation: Situation
) -> Decision:
    machine = situation.fleet[incident.machine]
    pool = situation.pools[machine.pool or ""]
    decision = _assign_holdout(decision, remediation, machine, pool, situation)
    blocker = _observe_only_blocker(decision, remediation, pool, situation)
    if blocker is not None:
        return _with_blocker(decision, Ruling.OBSERVE, blocker)
    approver = _approver(decision, situation)
    if approver is None and (remediation.needs_person or pool.mode is PoolMode.PROPOSE):
        return replace(decision, ruling=Ruling.PROPOSE, blocked_by=BlockerKind.PERSON)
    decision = replace(decision, who=approver or decision.who)
    return _within_limits(decision, incident, machine, situation)


def _observe_only_blocker(
    decision: Decision, remediation: Remediation, pool: Pool, situation: Situation
) -> Blocker | None:
    """Return why the step may only be observed."""
    if decision.control:
        return Blocker("left in service as part of the holdout", None, BlockerKind.HOLDOUT)
    for interlock in situation.interlocks:
        if interlock.blocks(remediation.findings):
            return Blocker(interlock.reason, interlock.until, BlockerKind.INTERLOCK)
    if pool.mode is PoolMode.OBSERVE:
        return Blocker(f"pool {pool.name} is in mode observe", None, BlockerKind.MODE)
    return None


def _approver(decision: Decision, situation: Situation) -> str | None:
    """Return who approved this step or a more disruptive one, while the proposal is valid."""
    approval = situation.approvals.get(decision.incident)
    if approval is None:
        return None
    shown = approval.decision
    in_time = approval.at <= situation.now < shown.valid_until
    less_disruptive_step = decision.step.rank <= shown.step.rank
    less_disruptive_mode = DRAIN_MODES.index(decision.mode) <= DRAIN_MODES.index(shown.mode)
    same = shown.incident == decision.incident
    return (
        approval.who if in_time and less_disruptive_step and less_disruptive_mode and same else None
    )


def _within_limits(
    decision: Decision, incident: Incident, machine: Machine, situation: Situation
) -> Decision:
    blocker = find_blocker(
        make_action(decision, incident, machine, situation.now),
        pools=situation.pools,
        fleet=list(situation.fleet.values()),
        recent=situation.recent,
        now=situation.now,
        certain=rests_on_certain_damage(decision, incident),
    )
    if blocker is not None:
        return _with_blocker(decision, Ruling.HOLD, blocker)
    return replace(decision, ruling=Ruling.ACT)
