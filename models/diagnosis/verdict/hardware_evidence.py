"""Hardware events and at-risk lists as evidence, which supports candidates but never suffices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.xid_catalogue import DEGRADED, FATAL
from forewarn.features.xid_severity import severity
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    WEAK,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["HostEvent", "at_risk_finding", "hardware_finding"]


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Event of a GPU reported by a host's kernel or agent.

    Attributes
    ----------
    machine : str
    gpu_serial : str or None
    xid : int or None
        None if the GPU is lost, or had another error.
    time : int
        Nanoseconds since 1970 UTC.
    error : str
        Name of the error of a GPU without Xids.
    is_critical : bool
        It does not work without a repair, as far as its driver says.
    """

    machine: str
    gpu_serial: str | None
    xid: int | None
    time: int
    error: str = ""
    is_critical: bool = True

    @property
    def says(self) -> str:
        """Description of the event."""
        return f"GPU {self.gpu_serial or 'unknown'} of {self.machine} {self._what}"

    @property
    def _what(self) -> str:
        what = "is lost" if self.xid is None else f"had Xid {self.xid}"
        return f"had the error `{self.error}`" if self.error else what

    @property
    def fault(self) -> Fault | None:
        """Fault of a GPU that has to be repaired; None for degraded hardware."""
        if self.weight < MODERATE:
            return None
        action = f"check GPU {self.gpu_serial or 'unknown'}, which {self._what}, and reset it"
        return Fault("gpu", action, needs_repair=True)

    @property
    def weight(self) -> float:
        """Evidence weight: moderate for a lost GPU or a fatal error, weak for degraded hardware."""
        if self.xid is None:
            return MODERATE if self.is_critical else WEAK
        (grade,) = severity(np.array([self.xid], dtype=np.float32))
        return MODERATE if grade == FATAL else WEAK if grade == DEGRADED else 0.0


def hardware_finding(events: Iterable[HostEvent], ranks: Ranks) -> JobFinding | None:
    """Return the ranks that run on a failed or degraded GPU, or None.

    Xids caused by programs do not count. An event of a GPU that no known rank uses counts for its
    machine.
    """
    by_serial = {row.gpu_serial: row.number for row in ranks.table.values() if row.gpu_serial}
    gravest: dict[tuple[int | None, str], HostEvent] = {}
    for event in sorted(events, key=lambda event: event.time):
        key = (by_serial.get(event.gpu_serial or ""), event.machine)
        if event.weight and (key not in gravest or event.weight > gravest[key].weight):
            gravest[key] = event
    if not gravest:
        return None
    candidates = [
        CulpritCandidate(rank, event.says, event.weight, event.time, machine, event.fault)
        for (rank, machine), event in gravest.items()
    ]
    candidates.sort(key=lambda candidate: -candidate.weight)
    evidence = tuple(
        Evidence("events", event.says, rank, event.time) for (rank, _), event in gravest.items()
    )
    cause = candidates[0].why
    return JobFinding("none", cause, tuple(candidates), evidence=evidence)


def at_risk_finding(machines: Iterable[str]) -> JobFinding | None:
    """Return the machines on the at-risk list as weak evidence, or None."""
    listed = tuple(machines)
    if not listed:
        return None
    why = "has a GPU on the at-risk list"
    return JobFinding(
        "none",
        "",
        tuple(CulpritCandidate(None, why, WEAK, machine=machine) for machine in listed),
        evidence=tuple(Evidence("at_risk", f"{machine} {why}") for machine in listed[:20]),
    )
