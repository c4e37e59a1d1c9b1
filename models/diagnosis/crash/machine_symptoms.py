"""Symptoms of machines in a crash: Xids, the OOM killer, lost GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.crash.rank_exit import RankExit, Symptom
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["MachineSymptom", "hang_hardware_finding", "machine_candidates"]

_MIN_LEAD = 10 * MINUTE
_MAX_DELAY = 5 * MINUTE  # the kernel reports a hung task after 2 minutes, a lost server after 80 s
_HARDWARE_SCOPES = ("gpu", "node", "fabric", "storage")
_SEVERE_LEVELS = ("error", "critical")


@dataclass(frozen=True, slots=True)
class MachineSymptom:
    """A symptom that a machine logged rather than a rank.

    Attributes
    ----------
    machine : str
    symptom : Symptom
    rank : int or None
        Rank whose GPU or process the symptom names.
    """

    machine: str
    symptom: Symptom
    rank: int | None = None

    def is_near(self, moment: int | None, waited: int = 0) -> bool:
        """Return whether the symptom can belong to a failure at `moment`.

        Parameters
        ----------
        moment : int or None
            First failure of a rank, in nanoseconds since 1970 UTC.
        waited : int
            Time-out after which ranks failed, in nanoseconds: the cause is as much older.
        """
        time = self.symptom.time
        if self.symptom.is_survived:
            return False
        if time is None or moment is None:
            return True
        return moment - _MIN_LEAD - waited <= time <= moment + _MAX_DELAY

    @property
    def is_hardware(self) -> bool:
        """Whether it concerns the machine, not a program on it such as a launcher."""
        hardware = self.symptom.scope in _HARDWARE_SCOPES
        return hardware and self.symptom.role in ("root", "confirmation")


def machine_candidates(
    symptoms: Sequence[MachineSymptom],
    ends: Sequence[RankExit],
    moment: int | None,
    waited: int = 0,
) -> list[CulpritCandidate]:
    """Return the ranks or machines whose hardware failed when the job failed, in time order.

    If several machines report a fault, the evidence is only moderate. An error of a program on a
    machine says nothing about the machine; it counts for the only rank there that failed.

    Parameters
    ----------
    symptoms : sequence of MachineSymptom
    ends : sequence of RankExit
    moment : int or None
        First failure of the job.
    waited : int
        Time-out after which ranks failed, in nanoseconds.
    """
    of_job = {end.machine for end in ends}
    severe = [
        item
        for item in symptoms
        if item.symptom.role == "root"
        and item.symptom.is_counted
        and not item.symptom.is_stall
        and item.symptom.level in _SEVERE_LEVELS
        and item.is_near(moment, waited)
        and item.machine in of_job
        and (item.symptom.scope in _HARDWARE_SCOPES or _rank_of(item, ends) is not None)
    ]
    severe.sort(
        key=lambda item: (item.symptom.time is None, item.symptom.time or 0, item.rank is None)
    )
    machines = {item.machine for item in severe}
    weight = STRONG if len(machines) == 1 else MODERATE
    candidates: dict[tuple[str, int | None], CulpritCandidate] = {}
    for item in severe:
        rank = _rank_of(item, ends)
        why = f"{item.symptom.says}: {item.symptom.line}"
        candidate = CulpritCandidate(
            rank, why, weight, item.symptom.time, item.machine, item.symptom.fault
        )
        candidates.setdefault((item.machine, rank), candidate)
    return list(candidates.values())


def hang_hardware_finding(
    symptoms: Sequence[MachineSymptom], ends: Sequence[RankExit]
) -> JobFinding | None:
    """Return hardware that failed when the ranks stopped writing, as moderate evidence for a hang.

    Parameters
    ----------
    symptoms : sequence of MachineSymptom
    ends : sequence of RankExit
    """
    writes = [end.last_write for end in ends if end.last_write is not None]
    candidates = machine_candidates(symptoms, ends, max(writes, default=None))
    if not candidates:
        return None
    evidence = tuple(
        Evidence("kernel", f"{item.machine}: {item.why}", item.rank, item.since)
        for item in candidates
    )
    halves = tuple(replace(candidate, weight=MODERATE) for candidate in candidates)
    return JobFinding("hang", halves[0].why, halves, evidence=evidence)


def _rank_of(item: MachineSymptom, ends: Sequence[RankExit]) -> int | None:
    return item.rank if item.rank is not None else _only_failed_rank(item.machine, ends)


def _only_failed_rank(machine: str, ends: Sequence[RankExit]) -> int | None:
    """Return the only rank of a machine that failed on its own, or None.

    Failed ranks of unknown machines may have been there, too.
    """
    failed = [end for end in ends if end.machine in (machine, None) and end.has_failed]
    return failed[0].rank if len(failed) == 1 and failed[0].machine == machine else None
