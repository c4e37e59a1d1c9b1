"""Remedies: the step that the evidence bears, whoever may take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.situation import Situation
from forewarn.response.decision.usable_findings import may_drain, usable_until
from forewarn.response.policy.policy import PolicyChoice
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import DrainMode, Step

__all__ = ["DRAIN_MODES", "Remediation", "choose_remediation"]

DRAIN_MODES = (None, *DrainMode)
"""The mildest first; None isolates nothing."""

_CONFIRMING = frozenset(
    {FindingKind.XID, FindingKind.FAILURE, FindingKind.CHECK, FindingKind.DIAGNOSIS}
)


@dataclass(frozen=True, slots=True)
class Remediation:
    """What the evidence bears.

    Attributes
    ----------
    step : Step
    mode : DrainMode or None
    severity : Severity
    reason : str
    findings : tuple of Finding
        Those it rests on, the gravest first.
    valid_until : int
        It is not begun after it.
    predicted : bool
        It takes a machine out for a prediction alone.
    needs_person : bool
    """

    step: Step
    mode: DrainMode | None
    severity: Severity
    reason: str
    findings: tuple[Finding, ...]
    valid_until: Nanoseconds
    predicted: bool = False
    needs_person: bool = False

    def at_most_avoid(self, why: str) -> Remediation:
        """Return a milder one that leaves the machine in service."""
        reason = f"{self.reason}; at most avoid: {why}"
        return replace(self, step=Step.AVOID, mode=None, predicted=False, reason=reason)

    def at_most_finish(self, why: str) -> Remediation:
        """Return a milder one that only drains, and lets jobs run out."""
        if not self.step.isolates or (self.step, self.mode) == (Step.DRAIN, DrainMode.FINISH):
            return self
        reason = f"{self.reason}; at most drain in mode finish: {why}"
        return replace(self, step=Step.DRAIN, mode=DrainMode.FINISH, reason=reason)


def choose_remediation(
    incident: Incident, usable: Sequence[Finding], situation: Situation
) -> Remediation:
    """Return the step that findings bear.

    Findings that never drain, and verdicts, do not take part in the choice of a step that isolates:
    a verdict blocks its machine for its job only, and not without a second kind of evidence.

    Parameters
    ----------
    incident : Incident
    usable : sequence of Finding
        Its findings that may be acted on, at least one.
    situation : Situation
    """
    verdicts = [finding for finding in usable if finding.kind is FindingKind.VERDICT]
    mild = [f for f in usable if f not in verdicts and not may_drain(f, situation)]
    hard = [f for f in usable if f not in verdicts and f not in mild and not f.predicts]
    predictions = [f for f in usable if f not in mild and f.predicts]
    options = [
        *([_by_confirmed(incident, hard, usable, situation)] if hard else []),
        *([_by_prediction(incident, predictions, usable, situation)] if predictions else []),
        *([_by_verdict(incident, verdicts, hard, situation)] if verdicts else []),
        *([_by_mild(incident, mild, usable, situation)] if mild else []),
    ]
    hardest = max(options, key=lambda option: (option.step.rank, DRAIN_MODES.index(option.mode)))
    return replace(hardest, predicted=hardest.predicted and not hard)


def _by_confirmed(
    incident: Incident, hard: list[Finding], usable: Sequence[Finding], situation: Situation
) -> Remediation:
    return _of_choice(_choice(incident, hard, usable, situation), hard, situation)


def _by_prediction(
    incident: Incident, predictions: list[Finding], usable: Sequence[Finding], situation: Situation
) -> Remediation:
    """Return at most a drain that lets jobs run out, whatever the policy says."""
    choice = _choice(incident, predictions, usable, situation)
    option = _of_choice(choice, predictions, situation)
    if not option.step.isolates:
        return option
    return replace(option, step=Step.DRAIN, mode=DrainMode.FINISH, predicted=True)


def _by_mild(
    incident: Incident, mild: list[Finding], usable: Sequence[Finding], situation: Situation
) -> Remediation:
    option = _of_choice(_choice(incident, mild, usable, situation), mild, situation)
    if not option.step.isolates:
        return option
    return option.at_most_avoid("application errors, blindness and shared tokens drain nothing")


def _by_verdict(
    incident: Incident, verdicts: list[Finding], hard: list[Finding], situation: Situation
) -> Remediation:
    """Return to tell, or with a second kind of evidence to block the machine for the job."""
    option = _of_choice(_choice(incident, verdicts, verdicts, situation), verdicts, situation)
    second = [finding for finding in hard if finding.kind in _CONFIRMING]
    if not second:
        reason = f"{verdicts[-1].cause}: tell; nothing of another kind confirms it"
        return replace(option, step=Step.TELL, mode=None, predicted=False, reason=reason)
    job = verdicts[-1].job
    for_job = f"for job {job} only" if job else "for its job only"
    reason = f"{verdicts[-1].cause}, confirmed by {second[-1].cause}: avoid it {for_job}"
    findings = (*verdicts, second[-1])
    until = min(option.valid_until, usable_until(second[-1], situation))
    return replace(
        option, step=Step.AVOID, mode=None, reason=reason, findings=findings, valid_until=until
    )


def _choice(
    incident: Incident, chosen: list[Finding], usable: Sequence[Finding], situation: Situation
) -> PolicyChoice:
    """Ask the policy about some findings; the others of the incident stand beside it."""
    rest = tuple(finding for finding in usable if finding not in chosen)
    beside = situation.other_incidents(incident)
    if rest:
        # Another number, or the policy takes it for the incident itself.
        beside = [replace(incident, id=-incident.id - 1, findings=rest), *beside]
    asked_about = replace(incident, findings=tuple(chosen))
    return situation.policy.step_for(asked_about, beside, situation.recent, situation.now)


def _of_choice(choice: PolicyChoice, chosen: list[Finding], situation: Situation) -> Remediation:
    bearing = list(choice.findings) or chosen
    bearing.sort(key=lambda finding: -situation.policy.rule(finding).severity.rank)
    until = max(usable_until(finding, situation) for finding in bearing)
    return Remediation(
        step=choice.step,
        mode=choice.mode,
        severity=choice.severity,
        reason=choice.reason,
        findings=tuple(bearing),
        valid_until=until,
        needs_person=choice.needs_person,
    )
