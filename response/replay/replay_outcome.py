"""Outcomes of replayed drains: whether the GPUs failed afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.time_units import Nanoseconds
from forewarn.response.replay.fleet_history import FleetHistory, PastFailure
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Outcome

__all__ = ["OutcomeJudge", "ReplayOutcome"]


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What happened after a finding, within its horizon.

    Attributes
    ----------
    outcome : Outcome
        `CONFIRMED`: the GPU failed, or had failed before. `NOT_CONFIRMED`: it did not, and its
        records cover the horizon.
    failed_at : int or None
        Nanoseconds since 1970 UTC.
    why : str
        Reason of `UNKNOWN`.
    """

    outcome: Outcome
    failed_at: Nanoseconds | None = None
    why: str = ""


class OutcomeJudge:
    """Determines outcomes from the failures of a history.

    Parameters
    ----------
    past : FleetHistory
    horizon : int
        Nanoseconds after a finding in which a failure confirms it; a prediction has its own.
    """

    def __init__(self, past: FleetHistory, horizon: Nanoseconds) -> None:
        self._past, self._horizon = past, horizon
        self._of_gpu: dict[str, list[PastFailure]] = defaultdict(list)
        self._of_machine: dict[str, list[PastFailure]] = defaultdict(list)
        for failure in past.failures:
            self._of_gpu[failure.gpu_serial].append(failure)
            self._of_machine[failure.machine].append(failure)

    def outcome(self, findings: Iterable[Finding]) -> ReplayOutcome:
        """Return the outcome of an action with these supporting findings."""
        judged = [self._judged(finding) for finding in findings]
        for outcome in (Outcome.CONFIRMED, Outcome.UNKNOWN, Outcome.NOT_CONFIRMED):
            same = [assessment for assessment in judged if assessment.outcome is outcome]
            if same:
                return min(same, key=lambda assessment: assessment.failed_at or 0)
        return ReplayOutcome(Outcome.UNKNOWN, why="it has no supporting finding")

    def _judged(self, finding: Finding) -> ReplayOutcome:
        end = finding.valid_until if finding.predicts else finding.at + self._horizon
        failures = [f for f in self._failures(finding) if self._meets(f, finding.at, end)]
        others = [failure for failure in failures if not _same_evidence(failure, finding)]
        if others:
            return ReplayOutcome(Outcome.CONFIRMED, min(failure.failed_at for failure in others))
        why = self._unknown(finding, end, failures)
        return (
            ReplayOutcome(Outcome.UNKNOWN, why=why) if why else ReplayOutcome(Outcome.NOT_CONFIRMED)
        )

    def _meets(self, failure: PastFailure, start: int, end: int) -> bool:
        """Tell whether a GPU failed within a span, or was failed at its start."""
        repaired = failure.repaired_at
        until = failure.failed_at + self._horizon if repaired is None else repaired
        return failure.failed_at <= end and (failure.failed_at >= start or until > start)

    def _failures(self, finding: Finding) -> Sequence[PastFailure]:
        if finding.gpu_serial is None:
            return self._of_machine.get(finding.machine, ())
        return self._of_gpu.get(finding.gpu_serial, ())

    def _unknown(self, finding: Finding, end: int, same: Sequence[PastFailure]) -> str:
        """Return why the outcome is unknown; empty if the GPU did not fail."""
        if same:
            return "only the same Xid shows that it failed"
        if not self._past.failures_known:
            return "no failures are recorded"
        if finding.gpu_serial is None:
            return "the serial of the GPU is unknown"
        if finding.gpu_serial not in self._past.gpus:
            return "the GPU has no records"
        return "the records end before the horizon" if end > self._past.end else ""


def _same_evidence(failure: PastFailure, finding: Finding) -> bool:
    """Tell whether a failure is only the record of the finding's own Xid."""
    by_machine = failure.cause.startswith(("xid ", GPU_ERROR)) or failure.cause in (
        "lost",
        "needs_reset",
    )
    kinds = (FindingKind.XID, FindingKind.FAILURE)
    return by_machine and finding.kind in kinds and failure.failed_at <= finding.at
