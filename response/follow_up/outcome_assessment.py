"""Outcome of an incident, from ground truth and the time the machine spent in service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import Finding, FindingKind, Provenance
from forewarn.response.state.incident import Incident, Outcome
from forewarn.response.state.response_settings import ResponseSettings

__all__ = [
    "GroundTruth",
    "GroundTruthKind",
    "OutcomeAssessment",
    "ServiceSpan",
    "assess_outcome",
    "can_close",
]


class GroundTruthKind(StrEnum):
    """Kind of evidence that a GPU was faulty."""

    FAILURE = "failure"
    TICKET = "ticket"
    CHECK = "failed check"


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Evidence that a GPU or a machine was faulty.

    Attributes
    ----------
    kind : GroundTruthKind
    machine : str
    at, known_at : int
        Nanoseconds since 1970 UTC: time of the failure, and when it became known.
    gpu_serial : str or None
        None if the GPU is unknown.
    """

    kind: GroundTruthKind
    machine: str
    at: Nanoseconds
    known_at: Nanoseconds
    gpu_serial: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceSpan:
    """State of a machine from `start` up to `end`, nanoseconds since 1970 UTC."""

    start: Nanoseconds
    end: Nanoseconds
    in_service: bool
    busy: bool


@dataclass(frozen=True, slots=True)
class OutcomeAssessment:
    """Outcome of an incident and the reason.

    Attributes
    ----------
    outcome : Outcome
    why : str
    failed_at, known_at : int or None
        Times of a confirmed failure, for the training labels.
    """

    outcome: Outcome
    why: str
    failed_at: Nanoseconds | None = None
    known_at: Nanoseconds | None = None


def assess_outcome(
    incident: Incident,
    *,
    ground_truth: Sequence[GroundTruth],
    service: Sequence[ServiceSpan],
    settings: ResponseSettings,
    now: Nanoseconds,
) -> OutcomeAssessment | None:
    """Return the outcome of an incident; None while it is undetermined.

    Parameters
    ----------
    incident : Incident
        With all its findings and actions.
    ground_truth : sequence of GroundTruth
        Tickets, failures and failed checks of its machine. Those among its own findings are added.
    service : sequence of ServiceSpan
        Observed states of its machine up to the end of the horizon; gaps are unknown.
    settings : ResponseSettings
    now : int
        Nanoseconds since 1970 UTC; what became known later is ignored.
    """
    if not incident.findings:
        return None
    start = min(finding.at for finding in incident.findings)
    horizon = max(finding.valid_until for finding in incident.findings)
    isolations = [a for a in incident.actions if a.step.isolates and a.started]
    until = max([horizon, *(now if a.open else a.changed_at for a in isolations)])
    evidence = _first_ground_truth(incident, ground_truth, start, until, now)
    if evidence is not None:
        return OutcomeAssessment(
            Outcome.CONFIRMED, f"confirmed by a {evidence.kind}", evidence.at, evidence.known_at
        )
    if any(action.open for action in isolations) or now < horizon + settings.known_late:
        return None
    if isolations:
        return OutcomeAssessment(Outcome.UNKNOWN, "unknown: the machine was drained")
    if not any(finding.predicts for finding in incident.findings):
        return OutcomeAssessment(Outcome.UNKNOWN, "no prediction and no confirmed failure")
    return _assess_service(service, max(start, incident.opened_at), horizon, settings)


def can_close(incident: Incident, now: Nanoseconds) -> bool:
    """Tell whether no open action and no valid finding prevents closing an incident."""
    acted_on = any(action.open for action in incident.actions)
    return not acted_on and not any(finding.valid(now) for finding in incident.findings)


def _first_ground_truth(
    incident: Incident,
    ground_truth: Sequence[GroundTruth],
    start: Nanoseconds,
    until: Nanoseconds,
    now: Nanoseconds,
) -> GroundTruth | None:
    own = [_finding_ground_truth(finding) for finding in incident.findings]
    fitting = [
        evidence
        for evidence in [*ground_truth, *filter(None, own)]
        if evidence.machine == incident.machine
        and start <= evidence.at <= until
        and evidence.known_at <= now
        and (
            evidence.gpu_serial is None
            or incident.gpu_serial is None
            or evidence.gpu_serial == incident.gpu_serial
        )
    ]
    return min(fitting, key=lambda evidence: (evidence.at, evidence.known_at), default=None)


def _finding_ground_truth(finding: Finding) -> GroundTruth | None:
    """Return the ground truth in a finding: a failure, or a failed check.

    A finding of a shared token is no ground truth; retraining would learn an unconfirmed failure.
    """
    kinds = {FindingKind.FAILURE: GroundTruthKind.FAILURE, FindingKind.CHECK: GroundTruthKind.CHECK}
    kind = kinds.get(finding.kind)
    if kind is None or finding.vouched is Provenance.SHARED:
        return None
    return GroundTruth(kind, finding.machine, finding.at, finding.at, finding.gpu_serial)


def _assess_service(
    service: Sequence[ServiceSpan],
    start: Nanoseconds,
    end: Nanoseconds,
    settings: ResponseSettings,
) -> OutcomeAssessment:
    """Return `NOT_CONFIRMED` only if the machine could have failed throughout the horizon."""
    spans = sorted(
        (s for s in service if s.start < end and s.end > start), key=lambda span: span.start
    )
    if not all(span.in_service for span in spans):
        return OutcomeAssessment(
            Outcome.UNKNOWN, "the machine was out of service for part of the time"
        )
    seen_until = start
    for span in spans:
        if span.start - seen_until > settings.max_unseen:
            break
        seen_until = max(seen_until, span.end)
    if end - seen_until > settings.max_unseen:
        return OutcomeAssessment(
            Outcome.UNKNOWN, "the machine was not observed for part of the time"
        )
    if _busy_time(spans, start, end) < settings.min_load * (end - start):
        return OutcomeAssessment(Outcome.UNKNOWN, "the machine was not under load throughout")
    return OutcomeAssessment(Outcome.NOT_CONFIRMED, "in service under load without a failure")


def _busy_time(spans: Sequence[ServiceSpan], start: Nanoseconds, end: Nanoseconds) -> int:
    """Return the time with running jobs; overlapping spans count once."""
    busy, counted = 0, int(start)
    for span in spans:
        if span.busy:
            busy += max(0, min(span.end, end) - max(span.start, counted))
            counted = max(counted, span.end)
    return busy
