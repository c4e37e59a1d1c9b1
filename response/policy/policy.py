"""Policy: rules for the severity and step of findings, inhibition and escalation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.time_units import Nanoseconds
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.policy.escalation import (
    MachineHistory,
    count_taken,
    escalate,
    next_after_failure,
)
from forewarn.response.policy.fault_level import (
    MINDCLUSTER_NAMES,
    UNKNOWN_LEVEL,
    FaultLevel,
    LevelRule,
)
from forewarn.response.policy.inhibition import drop_inhibited
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.policy.policy_rule import (
    ReturnLimit,
    Rule,
    SeverityDefault,
    XidRule,
    code_in_cause,
    xid_code,
)
from forewarn.response.state.action import Action
from forewarn.response.state.finding import Finding, FindingKind, Provenance, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.independent_evidence import independent_evidence, rests_on_metrics
from forewarn.response.state.step import DrainMode, Step

__all__ = ["Policy", "PolicyChoice"]

_MODES = list(DrainMode)
_RULE_EVIDENCE_KEYS = ("action", "at_most", "check", "severity")  # evidence that selects a rule
_STEPS = frozenset(map(str, Step))
_MAX_CACHED_RULES = 10_000
_RECOVERY_CAUSES = ("xid 154", "needs_reset")
_NOT_CONFIRMED = "no other kind of evidence confirms it"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """Step that a policy prescribes for an incident, before permissions and limits.

    Attributes
    ----------
    severity : Severity
    step : Step
    mode : DrainMode or None
        None where the step does not isolate.
    reason : str
        Stable while the findings stay the same.
    findings : tuple of Finding
        Findings that ask for this step, oldest first.
    needs_person : bool
        The step was taken repeatedly without effect.
    """

    severity: Severity
    step: Step
    mode: DrainMode | None
    reason: str
    findings: tuple[Finding, ...] = ()
    needs_person: bool = False


@dataclass(frozen=True, slots=True)
class _FindingStep:
    finding: Finding
    severity: Severity
    step: Step
    mode: DrainMode | None
    why: str
    is_manual: bool

    @property
    def order(self) -> tuple[int, int, int, int, str, str]:
        """Sort key: step, mode, severity.

        Among equals the oldest comes last, so that a repeat does not change the reason.
        """
        mode = -1 if self.mode is None else _MODES.index(self.mode)
        names = (self.finding.source, self.finding.id)
        return (self.step.rank, mode, self.severity.rank, -self.finding.at, *names)


@dataclass(frozen=True)
class Policy:
    """Rules that map findings to steps.

    Attributes
    ----------
    standards : mapping of Severity to SeverityDefault
        Step of each severity; a higher severity never has a weaker step.
    kinds : mapping of FindingKind to Rule
        One for each kind; that of `XID` applies to codes missing in `xids`.
    xids : mapping of int to XidRule
    together : int
        Nanoseconds between codes that belong to one event.
    returned : ReturnLimit
        If a cause returns after releases, the step had no effect, and the next harder one is taken.
    manual : ReturnLimit
        At this time of one step on one machine a person has to look.
    recoveries : mapping of str to Rule
        Rules for the recovery action that the driver requests (Xid 154, `needs_reset`).
    levels : mapping of FaultLevel to LevelRule
    ladder : LadderRules
        Time limits and retries of jobs that were interrupted.
    version : str
        Digest of the rules, without the names of the codes.
    """

    standards: Mapping[Severity, SeverityDefault]
    kinds: Mapping[FindingKind, Rule]
    xids: Mapping[int, XidRule]
    together: Nanoseconds
    returned: ReturnLimit
    manual: ReturnLimit
    recoveries: Mapping[str, Rule] = field(default_factory=dict)
    levels: Mapping[FaultLevel, LevelRule] = field(default_factory=dict)
    ladder: LadderRules = field(default_factory=lambda: LadderRules({}))
    version: str = field(init=False, compare=False)
    _rules: dict[tuple[object, ...], Rule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", _digest(self))

    def rule(self, finding: Finding) -> Rule:
        """Return the rule of a finding by itself, with the severity that its source states.

        Certain damage is at least drained, unless the site does not report its code. A finding of a
        shared token leads at most to `avoid`: any host may have sent it.
        """
        stated = (repr(finding.evidence.get(name)) for name in _RULE_EVIDENCE_KEYS)
        key = (finding.kind, finding.cause, finding.severity, finding.vouched, *stated)
        if key not in self._rules:
            if len(self._rules) >= _MAX_CACHED_RULES:  # causes contain names of sources
                self._rules.clear()
            self._rules[key] = self._rule_for(finding)
        return self._rules[key]

    def _rule_for(self, finding: Finding) -> Rule:
        rule = self._stated_rule(finding)
        if rule.reported and finding.severity is not None:
            rule = replace(rule, severity=finding.severity)
        bound = finding.evidence.get("at_most")  # of an alert; it can only be weaker
        if isinstance(bound, str) and bound in _STEPS:
            rule = replace(rule, at_most=_weaker(rule.at_most, Step(bound)))
        if finding.vouched is Provenance.SHARED:
            rule = replace(rule, at_most=_weaker(rule.at_most, Step.AVOID))
        rule = self.bounded(rule, finding.kind)
        return self._raise_to_drain(rule) if is_certain(finding) else rule

    def _stated_rule(self, finding: Finding) -> Rule:
        """Return the rule of a code, a kind, or the recovery action that the driver requests."""
        code = xid_code(finding)
        xid = None if code is None else self.xids.get(code)
        rule = self._level_rule(finding) if xid is None else xid.rule
        stated = None
        if finding.cause in _RECOVERY_CAUSES:
            stated = self.recoveries.get(str(finding.evidence.get("action")))
        elif xid is not None and finding.evidence.get("severity") == "fatal":
            stated = xid.fatal
        if stated is None:
            return rule
        return replace(stated, at_most=_weaker(stated.at_most, rule.at_most))

    def _level_rule(self, finding: Finding) -> Rule:
        """Return the rule of a kind, with the level of MindCluster that a fault of a GPU names.

        A code without a known level goes to a person.
        """
        rule = self.kinds[finding.kind]
        if not finding.cause.startswith(f"{GPU_ERROR} "):
            return rule
        if finding.cause.endswith(UNKNOWN_LEVEL):
            return replace(rule, at_most=Step.TELL)
        level = MINDCLUSTER_NAMES.get(finding.cause.rpartition(" ")[2])
        if level is None or level not in self.levels:
            return rule
        own = self.levels[level]
        return replace(
            rule,
            severity=own.severity,
            step=own.step,
            mode=own.mode,
            level=level,
            reported=False,
        )

    def _raise_to_drain(self, rule: Rule) -> Rule:
        severity = max(rule.severity, Severity.ERROR, key=lambda s: s.rank)
        return replace(
            rule,
            severity=severity,
            step=_weaker(_stronger(rule.step, Step.DRAIN), rule.at_most),
            mode=rule.mode or self.standards[severity].mode or DrainMode.FINISH,
            confirmed_by=frozenset(),
        )

    def level(self, cause: str) -> FaultLevel | None:
        """Return the level of a cause before it escalates; None if its rule names none."""
        xid = self.xids.get(code_in_cause(cause) or 0)
        if xid is not None:
            return xid.rule.level
        name = cause.rpartition(" ")[2] if cause.startswith(f"{GPU_ERROR} ") else ""
        return MINDCLUSTER_NAMES.get(name)

    def bounded(self, rule: Rule, kind: FindingKind) -> Rule:
        """Return a rule with at least the step of its severity, within the bound of its evidence.

        A prediction drains in mode `finish` at most, and missing data isolates nothing.
        """
        standard = self.standards[rule.severity]
        at_most = rule.at_most
        if kind is FindingKind.AT_RISK:
            at_most = _weaker(at_most, Step.DRAIN)
        elif kind is FindingKind.BLIND:
            at_most = _weaker(at_most, Step.AVOID)
        step = _weaker(_stronger(rule.step, standard.step), at_most)
        mode = rule.mode or standard.mode or DrainMode.FINISH
        if kind is FindingKind.AT_RISK:
            mode = DrainMode.FINISH
        return replace(rule, step=step, at_most=at_most, mode=mode if step.isolates else None)

    def step_for(
        self,
        incident: Incident,
        other_incidents: Sequence[Incident],
        earlier: Sequence[Action],
        now: Nanoseconds,
    ) -> PolicyChoice:
        """Return the step for an incident.

        Parameters
        ----------
        incident : Incident
        other_incidents : sequence of Incident
            Incidents of the same machine confirm a verdict, inhibit a finding, and count for
            frequent causes. Others are ignored.
        earlier : sequence of Action
            Earlier actions, on any machine.
        now : int
            Nanoseconds since 1970 UTC; later findings and actions are ignored.

        Returns
        -------
        PolicyChoice
            The strongest step that any valid finding asks for, with the highest severity.
        """
        machines = {incident.machine, *incident.machines}
        own = self._active(incident.findings, now)
        others = [
            finding
            for other in other_incidents
            if other.id != incident.id
            for finding in other.findings
            if finding.machine in machines  # a shared incident has thousands of others
        ]
        events = {
            finding.key
            for each in (incident, *other_incidents)
            if each.shared
            for finding in each.findings
        }
        context = self._active(others, now)
        known = _known([*incident.findings, *others], now)
        uninhibited = drop_inhibited(
            own, known, xids=self.xids, rule=self.rule, together=self.together
        )
        history = MachineHistory(
            findings=[finding for finding in known if finding.key not in events],
            actions=[action for action in earlier if action.machine in machines],
            now=now,
        )
        judged = [self._judged(finding, [*own, *context], history) for finding in uninhibited]
        if not judged:
            return PolicyChoice(Severity.NOTICE, Step.TELL, None, "no finding may be acted on")
        return self._chosen(judged, history)

    def step_after_failure(
        self, failed: Step, incident: Incident, history: MachineHistory
    ) -> Step | None:
        """Return the next harder step after one that failed; None if a person has to decide."""
        bounds = [self.rule(finding).at_most for finding in incident.findings]
        at_most = max(bounds, key=lambda step: step.rank, default=Step.TELL)
        return next_after_failure(
            *(failed, history),
            at_most=at_most,
            most=self.manual.times - 1,
            within=self.manual.within,
        )

    def _active(self, findings: Sequence[Finding], now: Nanoseconds) -> list[Finding]:
        """Return the findings that are valid for actions."""
        known = _known(findings, now)
        return [f for f in known if f.valid(now) and now - f.last_reported <= self.rule(f).max_age]

    def _judged(
        self, finding: Finding, active: Sequence[Finding], history: MachineHistory
    ) -> _FindingStep:
        """Return the step of a finding, and the reason."""
        rule = self.rule(finding)
        escalated = escalate(
            *(finding, rule, history),
            levels=self.levels,
            returned=self.returned,
            together=self.together,
        )
        step, why = escalated.step, escalated.why
        needed, measured = rule.confirmed_by, rests_on_metrics(finding)
        second = self._second(finding, active) if needed or measured else ""
        if second:
            why = f"confirmed by {second}"
        elif needed:
            step, why = _weaker(step, rule.alone), _NOT_CONFIRMED
        if measured and not second and step.isolates:  # whatever the policy says
            step, why = Step.AVOID, _NOT_CONFIRMED
        step, severity = _weaker(step, rule.at_most), rule.severity
        if step.isolates and not rule.step.isolates and not finding.predicts:
            severity = max(severity, Severity.ERROR, key=lambda s: s.rank)
        mode = rule.mode or self.standards[severity].mode or DrainMode.FINISH
        level = escalated.level
        if level is not None and step is self.levels[level].step:
            severity = max(severity, self.levels[level].severity, key=lambda s: s.rank)
            mode = self.levels[level].mode or mode
        if finding.predicts:
            mode = DrainMode.FINISH
        words = self.words(finding)
        text = f"{words}: {step}" + (f" ({why})" if why else "")
        is_manual = level is FaultLevel.ISOLATE_MANUAL and step.isolates
        return _FindingStep(
            finding, severity, step, mode if step.isolates else None, text, is_manual
        )

    def _second(self, finding: Finding, active: Sequence[Finding]) -> str:
        """Return the cause of the most severe finding that confirms this one by other evidence.

        An application error confirms nothing, because it never isolates.
        """
        needed = self.rule(finding).confirmed_by or frozenset(EvidenceKind)
        confirming = [
            (self.rule(other).severity.rank, other.cause)
            for other in active
            if independent_evidence(other, finding) & needed
            and other.machine == finding.machine
            and self.rule(other).at_most.isolates
            and self.rule(other).severity.rank > Severity.NOTICE.rank
        ]
        return max(confirming)[1] if confirming else ""

    def _chosen(self, judged: Sequence[_FindingStep], history: MachineHistory) -> PolicyChoice:
        strongest = max(judged, key=lambda assessment: assessment.order)
        asking = [j.finding for j in judged if (j.step, j.mode) == (strongest.step, strongest.mode)]
        taken = count_taken(strongest.step, history, within=self.manual.within)
        most = self.manual.times - 1
        was_taken = strongest.step.isolates and taken >= most
        needs_person = was_taken or any(
            each.is_manual for each in judged if each.step is strongest.step
        )
        reason = strongest.why
        if was_taken:
            reason += f"; {strongest.step} was taken {most} times, a person has to look"
        elif needs_person:
            reason += "; a person has to look"
        return PolicyChoice(
            severity=max((j.severity for j in judged), key=lambda severity: severity.rank),
            step=strongest.step,
            mode=strongest.mode,
            reason=reason,
            findings=tuple(sorted(asking, key=lambda f: (f.at, f.source, f.id))),
            needs_person=needs_person,
        )

    def words(self, finding: Finding) -> str:
        """Return the cause of a finding, with the meaning of an Xid."""
        code = xid_code(finding)
        xid = None if code is None else self.xids.get(code)
        return finding.cause if xid is None or not xid.name else f"{finding.cause} ({xid.name})"


def _stronger(first: Step, second: Step) -> Step:
    return max(first, second, key=lambda step: step.rank)


def _weaker(first: Step, second: Step) -> Step:
    return min(first, second, key=lambda step: step.rank)


def _known(findings: Sequence[Finding], now: Nanoseconds) -> list[Finding]:
    return [finding for finding in findings if finding.at <= now]


def _digest(policy: Policy) -> str:
    """Return a digest that differs for policies that decide differently."""
    content = {
        "standards": policy.standards,
        "kinds": policy.kinds,
        "xids": {
            str(code): replace(value, name="", action="") for code, value in policy.xids.items()
        },
        "recoveries": policy.recoveries,
        "levels": policy.levels,
        "ladder": policy.ladder,
        "together": policy.together,
        "limits": [policy.returned, policy.manual],
    }
    # `asdict` would copy each value deeply, which took most of the time of reading a policy.
    text = json.dumps(content, sort_keys=True, default=_members)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _members(value: Any) -> Any:
    """Return the fields of a dataclass, or the sorted items of a set."""
    if is_dataclass(value):
        return {member.name: getattr(value, member.name) for member in fields(value)}
    return sorted(value)
