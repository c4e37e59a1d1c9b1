"""What machines say of a crash: Xids, the OOM killer, cards that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forewarn.models.diagnosis.crash.rank_end import RankEnd, Sign
from forewarn.models.diagnosis.verdict.verdict import CERTAIN, HALF, Candidate, Evidence, Finding

__all__ = ["MachineSign", "hanging_machines", "machine_candidates"]

_BEFORE = 10 * 60 * 10**9
_AFTER = 60 * 10**9  # a GPU that falls off the bus is often noticed by the program first
_GRAVE = ("error", "critical")


@dataclass(frozen=True, slots=True)
class MachineSign:
    """Something that a machine wrote down, and no rank.

    Attributes
    ----------
    machine : str
    sign : Sign
    rank : int or None
        Whose GPU or process it names.
    """

    machine: str
    sign: Sign
    rank: int | None = None

    def is_near(self, moment: int | None) -> bool:
        """Say whether it belongs to a failure at a moment."""
        time = self.sign.time
        return time is None or moment is None or moment - _BEFORE <= time <= moment + _AFTER

    @property
    def is_of_hardware(self) -> bool:
        """Whether it tells of the machine rather than of a program, such as a launcher, on it."""
        hardware = self.sign.scope in ("gpu", "node", "fabric", "storage")
        return hardware and self.sign.role in ("root", "confirmation")


def machine_candidates(
    signs: Sequence[MachineSign], ends: Sequence[RankEnd], moment: int | None
) -> list[Candidate]:
    """Return the ranks or machines whose hardware failed when the job did, the first one first.

    Where several machines report a fault, nobody is certain.

    Parameters
    ----------
    signs : sequence of MachineSign
    ends : sequence of RankEnd
    moment : int or None
        First failure of the job.
    """
    of_job = {end.machine for end in ends}
    grave = [
        item
        for item in signs
        if item.sign.role == "root" and item.sign.level in _GRAVE and item.is_near(moment)
        and item.machine in of_job
    ]  # fmt: skip
    grave.sort(key=lambda item: (item.sign.time is None, item.sign.time or 0, item.rank is None))
    machines = {item.machine for item in grave}
    weight = CERTAIN if len(machines) == 1 else HALF
    candidates: dict[tuple[str, int | None], Candidate] = {}
    for item in grave:
        rank = item.rank if item.rank is not None else _only_failed(item.machine, ends)
        why = f"{item.sign.says}: {item.sign.line}"
        candidate = Candidate(rank, why, weight, item.sign.time, item.machine)
        candidates.setdefault((item.machine, rank), candidate)
    return list(candidates.values())


def hanging_machines(signs: Sequence[MachineSign], ends: Sequence[RankEnd]) -> Finding | None:
    """Say which hardware failed when the ranks of a job fell silent; another sign has to agree.

    Parameters
    ----------
    signs : sequence of MachineSign
    ends : sequence of RankEnd
    """
    writes = [end.last_write for end in ends if end.last_write is not None]
    candidates = machine_candidates(signs, ends, max(writes, default=None))
    if not candidates:
        return None
    evidence = tuple(
        Evidence("kernel", f"{item.machine}: {item.why}", item.rank, item.since)
        for item in candidates
    )
    halves = tuple(replace(candidate, weight=HALF) for candidate in candidates)
    return Finding("hang", halves[0].why, halves, evidence=evidence)


def _only_failed(machine: str, ends: Sequence[RankEnd]) -> int | None:
    """Return the rank of a machine that alone failed by itself."""
    failed = [
        end.rank
        for end in ends
        if end.machine == machine and (sign := end.decisive) is not None and sign.role == "root"
    ]
    return failed[0] if len(failed) == 1 else None
