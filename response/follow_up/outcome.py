"""Outcomes: what came of an incident, and what a drained machine cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import Finding, FindingKind, Voucher
from forewarn.response.state.incident import Incident, Outcome
from forewarn.response.state.settings import ResponseSettings

__all__ = ["Judgement", "Proof", "ProofKind", "Service", "is_over", "judge"]


class ProofKind(StrEnum):
    """What shows that a GPU was bad."""

    FAILURE = "failure"
    TICKET = "ticket"
    CHECK = "failed check"


@dataclass(frozen=True, slots=True)
class Proof:
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

    kind: ProofKind
    machine: str
    at: Nanoseconds
    known_at: Nanoseconds
    gpu_serial: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """How a machine was seen from `start` up to `end`, nanoseconds since 1970 UTC."""

    start: Nanoseconds
    end: Nanoseconds
    in_service: bool
    busy: bool


@dataclass(frozen=True, slots=True)
class Judgement:
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


def judge(
    incident: Incident,
    *,
    proofs: Sequence[Proof],
    service: Sequence[Service],
    settings: ResponseSettings,
    now: Nanoseconds,
) -> Judgement | None:
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
    isolating = [a for a in incident.actions if a.step.isolates and a.begun]
    until = max([horizon, *(now if a.open else a.changed_at for a in isolating)])
    proof = _first_proof(incident, proofs, start, until, now)
    if proof is not None:
        return Judgement(
            Outcome.CONFIRMED, f"confirmed by a {proof.kind}", proof.at, proof.known_at
        )
    if any(action.open for action in isolating) or now < horizon + settings.known_late:
        return None
    if isolating:
        return Judgement(Outcome.UNKNOWN, "it was taken out, so nobody can say")
    if not any(finding.predicts for finding in incident.findings):
        return Judgement(Outcome.UNKNOWN, "nothing was predicted, and nothing proves a failure")
    return _of_service(service, max(start, incident.opened_at), horizon, settings)


def is_over(incident: Incident, now: Nanoseconds) -> bool:
    """Tell whether an incident may be closed once it is judged: nothing is left to be done."""
    acted_on = any(action.open for action in incident.actions)
    return not acted_on and not any(finding.valid(now) for finding in incident.findings)


def _first_proof(
    incident: Incident,
    proofs: Sequence[Proof],
    start: Nanoseconds,
    until: Nanoseconds,
    now: Nanoseconds,
) -> Proof | None:
    own = [_proof_of(finding) for finding in incident.findings]
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


def _proof_of(finding: Finding) -> Proof | None:
    """Return what a finding proves: a failure, or a check that failed.

    The word of a shared token proves nothing: retraining would learn a failure that nobody saw.
    """
    kinds = {FindingKind.FAILURE: ProofKind.FAILURE, FindingKind.CHECK: ProofKind.CHECK}
    kind = kinds.get(finding.kind)
    if kind is None or finding.vouched is Voucher.SHARED:
        return None
    return Proof(kind, finding.machine, finding.at, finding.at, finding.gpu_serial)


def _of_service(
    service: Sequence[Service],
    start: Nanoseconds,
    end: Nanoseconds,
    settings: ResponseSettings,
) -> Judgement:
    """Count it against us only if the machine could have failed throughout."""
    spans = sorted(
        (s for s in service if s.start < end and s.end > start), key=lambda span: span.start
    )
    if not all(span.in_service for span in spans):
        return Judgement(Outcome.UNKNOWN, "it was out of service for a part of the time")
    seen_until = start
    for span in spans:
        if span.start - seen_until > settings.unseen:
            break
        seen_until = max(seen_until, span.end)
    if end - seen_until > settings.unseen:
        return Judgement(Outcome.UNKNOWN, "nobody saw it for a part of the time")
    if _busy(spans, start, end) < settings.least_load * (end - start):
        return Judgement(Outcome.UNKNOWN, "it was not under load throughout")
    return Judgement(Outcome.NOT_CONFIRMED, "it was in service under load, and did not fail")


def _busy(spans: Sequence[Service], start: Nanoseconds, end: Nanoseconds) -> int:
    """Return for how long it ran jobs; spans that overlap count once."""
    busy, counted = 0, int(start)
    for span in spans:
        if span.busy:
            busy += max(0, min(span.end, end) - max(span.start, counted))
            counted = max(counted, span.end)
    return busy
