"""Remediation: the step that the evidence supports, before permissions and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.situation import Situation
from forewarn.response.decision.usable_findings import may_drain, usable_until
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.policy.policy import PolicyChoice
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.independent_evidence import independent_evidence
from forewarn.response.state.step import DrainMode, Step

__all__ = ["DRAIN_MODES", "Remediation", "choose_remediation"]

DRAIN_MODES = (None, *DrainMode)
"""Least disruptive first; None isolates nothing."""


@dataclass(frozen=True, slots=True)
class Remediation:
    """Step that the evidence supports.

    Attributes
    ----------
    step : Step
    mode : DrainMode or None
    severity : Severity
    reason : str
    findings : tuple of Finding
        Supporting findings, most severe first.
    valid_until : int
        Time after which it is not started.
    predicted : bool
        Whether it drains a machine for a prediction alone.
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
        """Return a remediation that leaves the machine in service."""
        reason = f"{self.reason}; at most avoid: {why}"
        return replace(self, step=Step.AVOID, mode=None, predicted=False, reason=reason)

    def at_most_finish(self, why: str) -> Remediation:
        """Return a remediation that only drains, and lets jobs finish."""
        if not self.step.isolates or (self.step, self.mode) == (Step.DRAIN, DrainMode.FINISH):
            return self
        reason = f"{self.reason}; at most drain in mode finish: {why}"
        return replace(self, step=Step.DRAIN, mode=DrainMode.FINISH, reason=reason)

    def mildest(self, why: str) -> Remediation:
        """Return the mildest remediation that the evidence allows, for a person to approve.

        Certain damage is drained; other evidence leaves the machine in service.
        """
        certain = any(is_certain(finding) for finding in self.findings)
        milder = self.at_most_finish(why) if certain else self.at_most_avoid(why)
        reason = milder.reason if milder is not self else f"{self.reason}; needs approval: {why}"
        return replace(milder, reason=reason, needs_person=True)


def choose_remediation(
    incident: Incident, usable: Sequence[Finding], situation: Situation
) -> Remediation:
    """Return the step that the findings support.

    Verdicts, and findings that never drain, cannot choose a step that isolates. A verdict blocks
    its machine for its own job only, and needs a second kind of evidence.

    Parameters
    ----------
    incident : Incident
    usable : sequence of Finding
        Findings that may be acted on, at least one.
    situation : Situation
    """
    verdicts = [finding for finding in usable if finding.kind is FindingKind.VERDICT]
    weak = [f for f in usable if f not in verdicts and not may_drain(f, situation)]
    observed = [f for f in usable if f not in verdicts and f not in weak and not f.predicts]
    predictions = [f for f in usable if f not in weak and f.predicts]
    options = [
        *([_by_observed(incident, observed, usable, situation)] if observed else []),
        *([_by_prediction(incident, predictions, usable, situation)] if predictions else []),
        *([_by_verdict(incident, verdicts, observed, situation)] if verdicts else []),
        *([_by_weak(incident, weak, usable, situation)] if weak else []),
    ]
    strongest = max(options, key=lambda option: (option.step.rank, DRAIN_MODES.index(option.mode)))
    return replace(strongest, predicted=strongest.predicted and not observed)


def _by_observed(
    incident: Incident, observed: list[Finding], usable: Sequence[Finding], situation: Situation
) -> Remediation:
    return _from_choice(_choice(incident, observed, usable, situation), observed, situation)


def _by_prediction(
    incident: Incident, predictions: list[Finding], usable: Sequence[Finding], situation: Situation
) -> Remediation:
    """Return at most a drain that lets jobs finish, whatever the policy says."""
    choice = _choice(incident, predictions, usable, situation)
    option = _from_choice(choice, predictions, situation)
    if not option.step.isolates:
        return option
    return replace(option, step=Step.DRAIN, mode=DrainMode.FINISH, predicted=True)


def _by_weak(
    incident: Incident, weak: list[Finding], usable: Sequence[Finding], situation: Situation
) -> Remediation:
    option = _from_choice(_choice(incident, weak, usable, situation), weak, situation)
    if not option.step.isolates:
        return option
    return option.at_most_avoid("application errors, missing data and shared tokens drain nothing")


def _by_verdict(
    incident: Incident, verdicts: list[Finding], observed: list[Finding], situation: Situation
) -> Remediation:
    """Return `TELL`; with a second kind of evidence, `AVOID` for the job of the verdict."""
    option = _from_choice(_choice(incident, verdicts, verdicts, situation), verdicts, situation)
    second = [finding for finding in observed if independent_evidence(finding, verdicts[-1])]
    if not second:
        reason = f"{verdicts[-1].cause}: tell; no other kind of evidence confirms it"
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
    """Ask the policy about some findings; the incident's other findings are passed as context."""
    remaining = tuple(finding for finding in usable if finding not in chosen)
    others = situation.other_incidents(incident)
    if remaining:
        # A different id, because the policy skips the incident itself.
        others = [replace(incident, id=-incident.id - 1, findings=remaining), *others]
    selected = replace(incident, findings=tuple(chosen))
    return situation.policy.step_for(selected, others, situation.recent, situation.now)


def _from_choice(choice: PolicyChoice, chosen: list[Finding], situation: Situation) -> Remediation:
    supporting = list(choice.findings) or chosen
    supporting.sort(key=lambda finding: -situation.policy.rule(finding).severity.rank)
    until = max(usable_until(finding, situation) for finding in supporting)
    return Remediation(
        step=choice.step,
        mode=choice.mode,
        severity=choice.severity,
        reason=choice.reason,
        findings=tuple(supporting),
        valid_until=until,
        needs_person=choice.needs_person,
    )
