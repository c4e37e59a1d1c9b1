"""The past of a fleet, as a policy is tried on it: findings, failures and machines."""

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
    """A finding and when anybody knew of it; nothing is decided on it earlier."""

    known_at: Nanoseconds
    finding: Finding


@dataclass(frozen=True, slots=True)
class PastFailure:
    """A failure of a GPU.

    Attributes
    ----------
    machine, gpu_serial : str
    failed_at, known_at : int
        Nanoseconds since 1970 UTC.
    repaired_at : int or None
        None: not known.
    cause : str
        `xid 79` and `lost` are evidence of the machine itself; empty where nobody says.
    """

    machine: str
    gpu_serial: str
    failed_at: Nanoseconds
    known_at: Nanoseconds
    repaired_at: Nanoseconds | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FleetHistory:
    """What is known of some days of a fleet.

    Attributes
    ----------
    findings : sequence of PastFinding
    failures : sequence of PastFailure
    machines : sequence of Machine
        All in service.
    gpus : frozenset of str
        Serials of which there are records: a GPU that is not among them failed unseen.
    start, end : int
        Nanoseconds since 1970 UTC; of what came after the end nothing is known.
    failures_known : bool
        Somebody says what has failed; without that, no failure is no health.
    """

    findings: Sequence[PastFinding]
    failures: Sequence[PastFailure]
    machines: Sequence[Machine]
    gpus: frozenset[str]
    start: Nanoseconds
    end: Nanoseconds
    failures_known: bool = True


def failure_ground_truth(failures: Iterable[PastFailure]) -> defaultdict[str, list[GroundTruth]]:
    """Return by machine what failures prove about its incidents; empty for any other machine."""
    proofs = defaultdict[str, list[GroundTruth]](list)
    for failure in failures:
        times = (failure.failed_at, failure.known_at)
        proof = GroundTruth(GroundTruthKind.FAILURE, failure.machine, *times, failure.gpu_serial)
        proofs[failure.machine].append(proof)
    return proofs
