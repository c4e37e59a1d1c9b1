"""Outcomes: what came of an incident, and what a drained machine cannot tell."""

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
    """What shows that a GPU was bad."""

    FAILURE = "failure"
    TICKET = "ticket"
    CHECK = "failed check"


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """Something that shows that a GPU or a machine was bad.

    Attributes
    ----------
    kind : ProofKind
    machine : str
    at, known_at : int
        Nanoseconds since 1970 UTC: when it failed, and when anybody knew.
    gpu_serial : str or None
        None: nobody knows which GPU.
    """

    kind: GroundTruthKind
    machine: str
    at: Nanoseconds
    known_at: Nanoseconds
    gpu_serial: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceSpan:
    """How a machine was seen from `start` up to `end`, nanoseconds since 1970 UTC."""

    start: Nanoseconds
    end: Nanoseconds
    in_service: bool
    busy: bool


@dataclass(frozen=True, slots=True)
class OutcomeAssessment:
    """What came of an incident.

    Attributes
    ----------
    outcome : Outcome
    why : str
    failed_at, known_at : int or None
        Of a failure that retraining may learn from, once it was known.
    """

    outcome: Outcome
    why: str
    failed_at: Nanoseconds | None = None
    known_at: Nanoseconds | None = None


def assess_outcome(
    incident: Incident,
    *,
    proofs: Sequence[GroundTruth],
    service: Sequence[ServiceSpan],
    settings: ResponseSettings,
    now: Nanoseconds,
) -> OutcomeAssessment | None:
    """Return what came of an incident; None as long as that is open.

    Parameters
    ----------
    incident : Incident
        With all its findings and actions.
    proofs : sequence of Proof
        Tickets, failures and failed checks of its machine; what its own findings prove is added.
    service : sequence of Service
        How its machine was seen, up to the end of the horizon. What nobody saw is not known.
    settings : ResponseSettings
    now : int
        Nanoseconds since 1970 UTC; what became known later is not looked at.
    """
    if not incident.findings:
        return None
    start = min(finding.at for finding in incident.findings)
    horizon = max(finding.valid_until for finding in incident.findings)
    isolating = [a for a in incident.actions if a.step.isolates and a.started]
    until = max([horizon, *(now if a.open else a.changed_at for a in isolating)])
    proof = _first_ground_truth(incident, proofs, start, until, now)
    if proof is not None:
        return OutcomeAssessment(
            Outcome.CONFIRMED, f"confirmed by a {proof.kind}", proof.at, proof.known_at
        )
    if any(action.open for action in isolating) or now < horizon + settings.known_late:
        return None
    if isolating:
        return OutcomeAssessment(Outcome.UNKNOWN, "it was taken out, so nobody can say")
    if not any(finding.predicts for finding in incident.findings):
        return OutcomeAssessment(
            Outcome.UNKNOWN, "nothing was predicted, and nothing proves a failure"
        )
    return _assess_service(service, max(start, incident.opened_at), horizon, settings)


def can_close(incident: Incident, now: Nanoseconds) -> bool:
    """Tell whether an incident may be closed once it is judged: nothing is left to be done."""
    acted_on = any(action.open for action in incident.actions)
    return not acted_on and not any(finding.valid(now) for finding in incident.findings)


def _first_ground_truth(
    incident: Incident,
    proofs: Sequence[GroundTruth],
    start: Nanoseconds,
    until: Nanoseconds,
    now: Nanoseconds,
) -> GroundTruth | None:
    own = [_finding_ground_truth(finding) for finding in incident.findings]
    fitting = [
        proof
        for proof in [*proofs, *filter(None, own)]
        if proof.machine == incident.machine
        and start <= proof.at <= until
        and proof.known_at <= now
        and (
            proof.gpu_serial is None
            or incident.gpu_serial is None
            or proof.gpu_serial == incident.gpu_serial
        )
    ]
    return min(fitting, key=lambda proof: (proof.at, proof.known_at), default=None)


def _finding_ground_truth(finding: Finding) -> GroundTruth | None:
    """Return what a finding proves: a failure, or a check that failed.

    The word of a shared token proves nothing: retraining would learn a failure that nobody saw.
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
    """Count it against us only if the machine could have failed throughout."""
    spans = sorted(
        (s for s in service if s.start < end and s.end > start), key=lambda span: span.start
    )
    if not all(span.in_service for span in spans):
        return OutcomeAssessment(Outcome.UNKNOWN, "it was out of service for a part of the time")
    seen_until = start
    for span in spans:
        if span.start - seen_until > settings.max_unseen:
            break
        seen_until = max(seen_until, span.end)
    if end - seen_until > settings.max_unseen:
        return OutcomeAssessment(Outcome.UNKNOWN, "nobody saw it for a part of the time")
    if _busy_time(spans, start, end) < settings.min_load * (end - start):
        return OutcomeAssessment(Outcome.UNKNOWN, "it was not under load throughout")
    return OutcomeAssessment(
        Outcome.NOT_CONFIRMED, "it was in service under load, and did not fail"
    )


def _busy_time(spans: Sequence[ServiceSpan], start: Nanoseconds, end: Nanoseconds) -> int:
    """Return for how long it ran jobs; spans that overlap count once."""
    busy, counted = 0, int(start)
    for span in spans:
        if span.busy:
            busy += max(0, min(span.end, end) - max(span.start, counted))
            counted = max(counted, span.end)
    return busy
