"""A policy: from a finding to its severity, from that to a step, and how steps grow harder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.policy.escalation import MachineHistory, count_taken, escalate
from forewarn.response.policy.inhibition import drop_inhibited
from forewarn.response.policy.policy_rule import Rule, SeverityDefault, XidRule, xid_code
from forewarn.response.state.action import Action
from forewarn.response.state.finding import Finding, FindingKind, Provenance, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import DrainMode, Step

__all__ = ["Policy", "PolicyChoice"]

_MODES = list(DrainMode)
_RULE_EVIDENCE_KEYS = ("action", "check", "severity")  # evidence that says which rule holds
_MAX_CACHED_RULES = 10_000
_RECOVERY_CAUSES = ("xid 154", "needs_reset")


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """What a policy wants done about an incident; who may do it is asked elsewhere.

    Attributes
    ----------
    severity : Severity
    step : Step
    mode : DrainMode or None
        None where the step does not isolate.
    reason : str
        In words; it says nothing that changes while nothing happens.
    findings : tuple of Finding
        Those that ask for this step, the oldest first.
    needs_person : bool
        The step was taken often enough without help: a person has to look.
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

    @property
    def order(self) -> tuple[int, int, int, int, str, str]:
        """Place among others: by step, mode and severity.

        Of several the oldest comes last, so that one more of the same changes no reason.
        """
        mode = -1 if self.mode is None else _MODES.index(self.mode)
        names = (self.finding.source, self.finding.id)
        return (self.step.rank, mode, self.severity.rank, -self.finding.at, *names)


@dataclass(frozen=True)
class Policy:
    """What is done about which finding.

    Attributes
    ----------
    standards : mapping of Severity to Standard
        The step of each severity; a graver one never has a milder step.
    kinds : mapping of FindingKind to Rule
        All of them; that of `XID` is for codes that `xids` lacks.
    xids : mapping of int to XidRule
    together : int
        Nanoseconds between codes that are one event.
    again : int
        A cause that is seen within so long after a release was not helped by the step.
    most, within : int
        How often one step is taken on one machine, and in which span; then a person looks.
    recoveries : mapping of str to Rule
        Where the driver itself says which recovery a GPU needs (Xid 154, `needs_reset`).
    version : str
        Digest of all this but the names of the codes.
    """

    standards: Mapping[Severity, SeverityDefault]
    kinds: Mapping[FindingKind, Rule]
    xids: Mapping[int, XidRule]
    together: Nanoseconds
    again: Nanoseconds
    most: int
    within: Nanoseconds
    recoveries: Mapping[str, Rule] = field(default_factory=dict)
    version: str = field(init=False, compare=False)
    _rules: dict[tuple[object, ...], Rule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", _digest(self))

    def rule(self, finding: Finding) -> Rule:
        """Return what is said about a finding by itself, the severity of its source in it.

        Evidence of certain damage is answered with a drain at least, unless the site does not
        report its code at all. What only a shared token says leads at most to `avoid`: any host may
        have sent it.
        """
        stated = (repr(finding.evidence.get(name)) for name in _RULE_EVIDENCE_KEYS)
        key = (finding.kind, finding.cause, finding.severity, finding.vouched, *stated)
        if key not in self._rules:
            if len(self._rules) >= _MAX_CACHED_RULES:  # causes have names of their sources
                self._rules.clear()
            self._rules[key] = self._rule_for(finding)
        return self._rules[key]

    def _rule_for(self, finding: Finding) -> Rule:
        rule = self._rule_in_words(finding)
        if rule.reported and finding.severity is not None:
            rule = replace(rule, severity=finding.severity)
        if finding.vouched is Provenance.SHARED:
            rule = replace(rule, at_most=_milder(rule.at_most, Step.AVOID))
        rule = self.bounded(rule, finding.kind)
        return self._at_least_drain(rule) if is_certain(finding) else rule

    def _rule_in_words(self, finding: Finding) -> Rule:
        """Return the rule of a code or kind, or of what the driver itself says of the fault."""
        code = xid_code(finding)
        xid = None if code is None else self.xids.get(code)
        rule = self.kinds[finding.kind] if xid is None else xid.rule
        stated = None
        if finding.cause in _RECOVERY_CAUSES:
            stated = self.recoveries.get(str(finding.evidence.get("action")))
        elif xid is not None and finding.evidence.get("severity") == "fatal":
            stated = xid.fatal
        if stated is None:
            return rule
        return replace(stated, at_most=_milder(stated.at_most, rule.at_most))

    def _at_least_drain(self, rule: Rule) -> Rule:
        severity = max(rule.severity, Severity.ERROR, key=lambda s: s.rank)
        return replace(
            rule,
            severity=severity,
            step=_milder(_harder(rule.step, Step.DRAIN), rule.at_most),
            mode=rule.mode or self.standards[severity].mode or DrainMode.FINISH,
            confirmed_by=frozenset(),
        )

    def bounded(self, rule: Rule, kind: FindingKind) -> Rule:
        """Give a rule at least what its severity asks for, and no more than it may do.

        A prediction drains in mode `finish` at most, and blindness isolates nothing.
        """
        standard = self.standards[rule.severity]
        at_most = rule.at_most
        if kind is FindingKind.AT_RISK:
            at_most = _milder(at_most, Step.DRAIN)
        elif kind is FindingKind.BLIND:
            at_most = _milder(at_most, Step.AVOID)
        step = _milder(_harder(rule.step, standard.step), at_most)
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
        """Return what is to be done about an incident.

        Parameters
        ----------
        incident : Incident
        other_incidents : sequence of Incident
            Others: those of the same machine confirm a verdict, explain an echo, and count where
            a cause comes often.
        earlier : sequence of Action
            What was done before, to any machine.
        now : int
            Nanoseconds since 1970 UTC; nothing later is looked at.

        Returns
        -------
        Choice
            The hardest step that a finding which counts asks for, with the highest severity.
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
        around = self._active(others, now)
        known = _known([*incident.findings, *others], now)
        sounding = drop_inhibited(
            own, known, xids=self.xids, rule=self.rule, together=self.together
        )
        history = MachineHistory(
            findings=known,
            actions=[action for action in earlier if action.machine in machines],
            now=now,
        )
        judged = [self._judged(finding, [*own, *around], history) for finding in sounding]
        if not judged:
            return PolicyChoice(
                Severity.NOTICE, Step.TELL, None, "nothing that may be acted on is left"
            )
        return self._chosen(judged, history)

    def _active(self, findings: Sequence[Finding], now: Nanoseconds) -> list[Finding]:
        """Return the findings that may be acted on."""
        known = _known(findings, now)
        return [f for f in known if f.valid(now) and now - f.last_reported <= self.rule(f).max_age]

    def _judged(
        self, finding: Finding, active: Sequence[Finding], history: MachineHistory
    ) -> _FindingStep:
        """Return which step a finding asks for, and why."""
        rule = self.rule(finding)
        step, why = escalate(finding, rule, history, again=self.again)
        needed = rule.confirmed_by
        second = needed and self._second(finding, active)
        if needed and not second:
            step, why = _milder(step, rule.alone), "nothing of another kind confirms it"
        elif second:
            why = f"confirmed by {second}"
        step, severity = _milder(step, rule.at_most), rule.severity
        if step.isolates and not rule.step.isolates and not finding.predicts:
            severity = max(severity, Severity.ERROR, key=lambda s: s.rank)
        mode = rule.mode or self.standards[severity].mode or DrainMode.FINISH
        if finding.predicts:
            mode = DrainMode.FINISH
        words = self.words(finding)
        text = f"{words}: {step}" + (f" ({why})" if why else "")
        return _FindingStep(finding, severity, step, mode if step.isolates else None, text)

    def _second(self, finding: Finding, active: Sequence[Finding]) -> str:
        """Return the cause of the gravest finding of another kind that confirms this one.

        An application error confirms nothing: it never isolates, and neither may it so.
        """
        confirming = [
            (self.rule(other).severity.rank, other.cause)
            for other in active
            if other.kind in self.rule(finding).confirmed_by
            and other.machine == finding.machine
            and self.rule(other).at_most.isolates
            and self.rule(other).severity.rank > Severity.NOTICE.rank
        ]
        return max(confirming)[1] if confirming else ""

    def _chosen(self, judged: Sequence[_FindingStep], history: MachineHistory) -> PolicyChoice:
        hardest = max(judged, key=lambda judgement: judgement.order)
        asking = [j.finding for j in judged if (j.step, j.mode) == (hardest.step, hardest.mode)]
        taken = count_taken(hardest.step, history, within=self.within)
        person = hardest.step.isolates and taken >= self.most
        reason = hardest.why
        if person:
            reason += f"; {hardest.step} was taken {self.most} times already, a person has to look"
        return PolicyChoice(
            severity=max((j.severity for j in judged), key=lambda severity: severity.rank),
            step=hardest.step,
            mode=hardest.mode,
            reason=reason,
            findings=tuple(sorted(asking, key=lambda f: (f.at, f.source, f.id))),
            needs_person=person,
        )

    def words(self, finding: Finding) -> str:
        """Return what a finding is, with the meaning of an Xid."""
        code = xid_code(finding)
        xid = None if code is None else self.xids.get(code)
        return finding.cause if xid is None or not xid.name else f"{finding.cause} ({xid.name})"


def _harder(first: Step, second: Step) -> Step:
    return max(first, second, key=lambda step: step.rank)


def _milder(first: Step, second: Step) -> Step:
    return min(first, second, key=lambda step: step.rank)


def _known(findings: Sequence[Finding], now: Nanoseconds) -> list[Finding]:
    return [finding for finding in findings if finding.at <= now]


def _digest(policy: Policy) -> str:
    """Return what is different for policies that decide differently."""
    content = {
        "standards": {name: asdict(value) for name, value in policy.standards.items()},
        "kinds": {name: asdict(value) for name, value in policy.kinds.items()},
        "xids": {
            str(code): asdict(replace(value, name="", action=""))
            for code, value in policy.xids.items()
        },
        "recoveries": {name: asdict(value) for name, value in policy.recoveries.items()},
        "spans": [policy.together, policy.again, policy.most, policy.within],
    }
    text = json.dumps(content, sort_keys=True, default=sorted)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
