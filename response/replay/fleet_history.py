"""History of a fleet for a policy replay: findings, failures and machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.follow_up.outcome_assessment import GroundTruth, GroundTruthKind
from forewarn.response.state.finding import Finding
from forewarn.response.state.machine import Machine

__all__ = ["FleetHistory", "PastFailure", "PastFinding", "failure_ground_truth"]


@dataclass(frozen=True, slots=True)
class PastFinding:
    """Finding and the time at which it became known; no earlier decision uses it."""

    known_at: Nanoseconds
    finding: Finding


@dataclass(frozen=True, slots=True)
class PastFailure:
    """Failure of a GPU.

    Attributes
    ----------
    machine, gpu_serial : str
    failed_at, known_at : int
        Nanoseconds since 1970 UTC.
    repaired_at : int or None
        None if unknown.
    cause : str
        `xid 79` and `lost` come from the machine itself; empty if unknown.
    """

    machine: str
    gpu_serial: str
    failed_at: Nanoseconds
    known_at: Nanoseconds
    repaired_at: Nanoseconds | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FleetHistory:
    """Some days of a fleet.

    Attributes
    ----------
    findings : sequence of PastFinding
    failures : sequence of PastFailure
    machines : sequence of Machine
        All in service.
    gpus : frozenset of str
        Serials with records; a failure of any other GPU is not observable.
    start, end : int
        Nanoseconds since 1970 UTC; nothing is known after the end.
    failures_known : bool
        Whether failures were recorded at all; otherwise no failure does not mean healthy.
    """

    findings: Sequence[PastFinding]
    failures: Sequence[PastFailure]
    machines: Sequence[Machine]
    gpus: frozenset[str]
    start: Nanoseconds
    end: Nanoseconds
    failures_known: bool = True


def failure_ground_truth(failures: Iterable[PastFailure]) -> defaultdict[str, list[GroundTruth]]:
    """Return the ground truth of failures by machine; empty for any other machine."""
    by_machine = defaultdict[str, list[GroundTruth]](list)
    for failure in failures:
        times = (failure.failed_at, failure.known_at)
        evidence = GroundTruth(GroundTruthKind.FAILURE, failure.machine, *times, failure.gpu_serial)
        by_machine[failure.machine].append(evidence)
    return by_machine
