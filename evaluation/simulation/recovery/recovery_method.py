"""How a simulated job recovers: which mechanisms it has, and how long each phase takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

__all__ = ["MECHANISMS", "PhaseTimes", "RecoveryMethod", "cumulative_methods"]

MINUTE: Final = 1 / 60


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Durations of the phases of a recovery, hours.

    From DLRover's table of a week of a thousand cards unless said otherwise.

    Attributes
    ----------
    poll, resubmit : float
        Interval at which a person or a program looks, and what a new submission takes.
    hang_timeout : float
        Of the collectives (Megatron-LM).
    watch, verdict : float
        Until a crash is noticed by what watches the job; until a hang is: 131 s in real gloo jobs.
    by_hand : float
        To find a machine that no error names.
    check, check_software : float
        Of the nodes before a start.
    pods_all, pods_one : float
        To place all machines of the job, or one.
    shrink : float
    save, short_save : float
    load, short_load : float
    """

    poll: float = 10 * MINUTE
    resubmit: float = 5 * MINUTE
    hang_timeout: float = 30 * MINUTE
    watch: float = 0.5 * MINUTE
    verdict: float = 131 / 3_600
    by_hand: float = 120 * MINUTE
    check: float = 2.5 * MINUTE
    check_software: float = 1 * MINUTE
    pods_all: float = 5 * MINUTE
    pods_one: float = 2 * MINUTE
    shrink: float = 3 * MINUTE
    save: float = 10 * MINUTE
    short_save: float = 1 * MINUTE
    load: float = 8 * MINUTE
    short_load: float = 4 * MINUTE


@dataclass(frozen=True, slots=True)
class RecoveryMethod:
    """Mechanisms of a job.

    Attributes
    ----------
    watches : bool
        Crashes and hangs are noticed at once, and a verdict names the machine of a hang.
    checks : bool
        Nodes are checked before each start.
    replaces : bool
        Only the machine that failed gets a new pod.
    processes : bool
        Without a machine at fault, processes start again in place.
    short_saves : bool
    interval : callable
        Hours of training between two checkpoints by the day.
    moves_at_stops, moves_at_once : bool
        Machines with an alert are left: at the next interruption, or for that purpose.
    unit : int
        Without spares the job shrinks by groups of so many machines; 0: it waits.
    escalates : bool
        A machine that faults twice within 30 days stays out until its fault is found.
    verdict_recall, check_recall : float
        Share of silent machines that the verdict names, and that the check finds.
    times : PhaseTimes
    """

    watches: bool = False
    checks: bool = False
    replaces: bool = False
    processes: bool = False
    short_saves: bool = False
    interval: Callable[[int], float] = field(default=lambda _day: 1.0)
    moves_at_stops: bool = False
    moves_at_once: bool = False
    unit: int = 0
    escalates: bool = False
    verdict_recall: float = 0.98
    check_recall: float = 0.9
    times: PhaseTimes = field(default_factory=PhaseTimes)

    @property
    def save(self) -> float:
        """Hours that a checkpoint costs."""
        return self.times.short_save if self.short_saves else self.times.save

    @property
    def load(self) -> float:
        """Hours from the start of the processes to the first step."""
        return self.times.short_load if self.short_saves else self.times.load


MECHANISMS: Final = (
    *("poll and resubmit", "+ hang verdict", "+ node check", "+ replace only", "+ process level"),
    *("+ short saves", "+ Young", "+ daily advice", "+ moves at stops", "+ moves at once"),
    *("+ shrinking", "+ escalation"),
)
"""Methods, each with all mechanisms before it; moves at once only in their own row."""


def cumulative_methods(
    young: Callable[[int], float], daily: Callable[[int], float], unit: int
) -> dict[str, RecoveryMethod]:
    """Return the methods of `MECHANISMS`.

    Parameters
    ----------
    young, daily : callable
        Interval between two checkpoints by the day: always the same, or by the day's list.
    unit : int
        Machines by which the job shrinks.
    """
    method = RecoveryMethod()
    steps: tuple[dict[str, object], ...] = (
        {},
        {"watches": True},
        {"checks": True},
        {"replaces": True},
        {"processes": True},
        {"short_saves": True},
        {"interval": young},
        {"interval": daily},
        {"moves_at_stops": True},
        {"moves_at_once": True},
        {"moves_at_once": False, "unit": unit},
        {"escalates": True},
    )
    methods = {}
    for name, step in zip(MECHANISMS, steps, strict=True):
        method = replace(method, **step)  # type: ignore[arg-type]
        methods[name] = method
    return methods
