"""Blocks that decisions ask for: a verdict accuses a machine within one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Incident
from forewarn.response.state.independent_evidence import independent_evidence
from forewarn.response.state.job_block import JobBlock
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import Step

__all__ = ["verdict_blocks"]


def verdict_blocks(
    decided: Iterable[tuple[Incident, Decision]], fleet: Mapping[str, Machine]
) -> list[JobBlock]:
    """Return the blocks that follow from avoiding a machine because of a verdict about a job.

    New jobs prefer other machines, but the job itself would often get the same machines again.

    Parameters
    ----------
    decided : iterable of (Incident, Decision)
        Of this round.
    fleet : mapping of str to Machine
        A block needs that the job runs on the machine: a verdict may name a task, not a job.
    """
    return [
        JobBlock(
            id=0,
            job=verdict.job,
            machine=incident.machine,
            reason=decision.reason,
            owner=decision.who,
            at=decision.at,
            valid_until=verdict.valid_until,
        )
        for incident, decision in decided
        if decision.step is Step.AVOID and _is_avoided(incident, decision)
        for verdict in incident.findings
        if verdict.job is not None and incident.machine in fleet
        if verdict.job in fleet[incident.machine].jobs
        if _is_confirmed(verdict, incident, decision)
    ]


def _is_avoided(incident: Incident, decision: Decision) -> bool:
    actions = (action for action in incident.actions if action.step is Step.AVOID)
    return decision.ruling is Ruling.ACT or any(action.open for action in actions)


def _is_confirmed(verdict: Finding, incident: Incident, decision: Decision) -> bool:
    """Tell whether a valid verdict is confirmed by a finding that supports the decision."""
    if verdict.kind is not FindingKind.VERDICT or not verdict.valid(decision.at):
        return False
    return any(
        other.key in decision.findings and independent_evidence(other, verdict)
        for other in incident.findings
        if other.kind is not FindingKind.VERDICT
    )
