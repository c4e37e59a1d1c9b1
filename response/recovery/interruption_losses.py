"""What each interruption cost, and what all of one cause, machine or way of restart cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from forewarn.response.recovery.lost_time import LostTime, TimeUse
from forewarn.response.state.rung import Rung

__all__ = [
    "RESTART_USES",
    "InterruptionLoss",
    "LossGroup",
    "group_losses",
    "interruption_losses",
    "saved_by_rung",
]

RESTART_USES: Final = (TimeUse.DETECT, TimeUse.SCHEDULE, TimeUse.INITIALISE, TimeUse.RECOMPUTE)
"""What an interruption costs."""


@dataclass(frozen=True, slots=True)
class InterruptionLoss:
    """Cost of one interruption.

    Attributes
    ----------
    job : str
    at : int
        End of the interrupted run, nanoseconds since 1970 UTC.
    cause : str
        Empty if unknown.
    machines : tuple of str
        That caused it.
    rung : Rung or None
        How the next run began; None if none did.
    seconds : dict of TimeUse to float
        Elapsed time by use.
    gpu_time : int
        Nanoseconds times GPUs.
    """

    job: str
    at: int
    cause: str
    machines: tuple[str, ...]
    rung: Rung | None
    seconds: dict[TimeUse, float]
    gpu_time: int


def interruption_losses(job: str, lost: LostTime) -> list[InterruptionLoss]:
    """Return the cost of each interruption of a job, in order of time."""
    losses = []
    for number in lost.interruptions:
        run = lost.runs[number]
        following = lost.runs[number + 1] if number + 1 < len(lost.runs) else None
        spans = [span for span in lost.spans if span.interruption == number]
        seconds = dict.fromkeys(RESTART_USES, 0.0)
        for span in spans:
            if span.use in seconds:
                seconds[span.use] += (span.end - span.begin) / 1e9
        gpu_time = sum(span.gpu_time for span in spans if span.use in seconds)
        rung = None if following is None else following.rung
        losses.append(
            InterruptionLoss(job, run.end, run.cause, run.machines, rung, seconds, gpu_time)
        )
    return losses


@dataclass(slots=True)
class LossGroup:
    """Interruptions that have something in common.

    Attributes
    ----------
    key : str
    count : int
    gpu_time : int
        Nanoseconds times GPUs.
    seconds : dict of TimeUse to float
        Sum of the elapsed time by use.
    """

    key: str
    count: int = 0
    gpu_time: int = 0
    seconds: dict[TimeUse, float] = field(default_factory=lambda: dict.fromkeys(RESTART_USES, 0.0))

    @property
    def mean_seconds(self) -> dict[TimeUse, float]:
        """Mean elapsed time of an interruption by use."""
        return {use: total / self.count for use, total in self.seconds.items()}

    @property
    def mean_total_seconds(self) -> float:
        """Mean elapsed time that an interruption cost."""
        return sum(self.seconds.values()) / self.count


def group_losses(
    losses: Iterable[InterruptionLoss], keys: Callable[[InterruptionLoss], Sequence[str]]
) -> list[LossGroup]:
    """Return the interruptions by key, the group that cost most GPU time first.

    Parameters
    ----------
    losses : iterable of InterruptionLoss
    keys : callable
        Keys of an interruption. One with several counts whole in each group.
    """
    groups: dict[str, LossGroup] = {}
    for loss in losses:
        for key in keys(loss):
            group = groups.setdefault(key, LossGroup(key))
            group.count += 1
            group.gpu_time += loss.gpu_time
            for use, seconds in loss.seconds.items():
                group.seconds[use] += seconds
    return sorted(groups.values(), key=lambda group: (-group.gpu_time, group.key))


def saved_by_rung(groups: Sequence[LossGroup]) -> dict[str, float]:
    """Return the seconds that each way of restart saved an interruption, by the next harder one.

    Parameters
    ----------
    groups : sequence of LossGroup
        By rung.

    Returns
    -------
    dict of str to float
        Difference of the means. A rung without a harder one that was used has no entry.
    """
    by_rung = {group.key: group for group in groups}
    used = [str(rung) for rung in Rung if rung in by_rung]
    return {
        mild: by_rung[hard].mean_total_seconds - by_rung[mild].mean_total_seconds
        for mild, hard in pairwise(used)
    }
