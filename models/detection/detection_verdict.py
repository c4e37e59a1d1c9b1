"""The detector's verdict on a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Jitter",
    "MachineFinding",
    "Suppressed",
    "SuppressionRule",
    "Verdict",
    "unreported_jitters",
]


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """A machine that deviated for a full continuity.

    Attributes
    ----------
    machine : int
    metric : str
    score : float
        Highest threshold the machine would still have exceeded, divided by its threshold.
    since, at : int
        Ticks of the call: start of the deviation, and end of the window that completed it.
    lasting : bool
        The machine has deviated since its first sample, beyond what is tolerated.
    metrics : tuple of (str, float)
        For the joint score: the metrics that contribute most, with their shares.
    rose : bool
        The machine is above its peers, or further above than before.
    """

    machine: int
    metric: str
    score: float
    since: int
    at: int
    lasting: bool = False
    metrics: tuple[tuple[str, float], ...] = ()
    rose: bool = False


@dataclass(frozen=True, slots=True)
class Jitter:
    """A machine that deviated for less than a continuity and then recovered.

    Attributes
    ----------
    machine : int
    metric : str
    score : float
        Highest score of a window, divided by the threshold.
    since, until : int
        Ticks of the call: start of the first window, and end of the last one.
    """

    machine: int
    metric: str
    score: float
    since: int
    until: int


SuppressionRule = Literal["limit", "unchanged", "majority", "wait", "victim", "few_tasks"]


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A machine that deviated for a full continuity but was dropped by a rule.

    Attributes
    ----------
    machine : int
    metric : str
    score : float
        As in `MachineFinding`.
    rule : str
        `limit`: only an offset shows that the limit of the metric hid before. `unchanged`: many
        machines of the group deviate, and this one did not change itself. `majority`: more than
        half of the group changed. `wait`: the metric shows waiting, which is no accusation.
        `victim`: the machine waits longer than its peers. `few_tasks`: the threshold of the joint
        score rests on too few tasks.
    """

    machine: int
    metric: str
    score: float
    rule: SuppressionRule


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one call of the detector.

    Attributes
    ----------
    findings : tuple of MachineFinding
        The first one is the faulty machine; all are from the same metric.
    blind : tuple of int
        Machines without enough data.
    examined : tuple of str
        Metrics that were examined, in order.
    absent : tuple of str
        Metrics without samples from any machine.
    jitters : tuple of Jitter
        One per machine that is not reported, the longest first.
    too_small : tuple of int
        Machines whose group is too small for comparison and unknown from healthy tasks.
    observe_only : bool
        The detector is not validated yet: do not act on its verdicts.
    suppressed : tuple of Suppressed
    event : tuple of int
        Machines that moved together, if none of them is the culprit.
    nearest : mapping of str to float
        Highest score of any machine on each examined metric, divided by the machine's threshold; 0
        if far below.
    """

    findings: tuple[MachineFinding, ...]
    blind: tuple[int, ...]
    examined: tuple[str, ...]
    absent: tuple[str, ...]
    jitters: tuple[Jitter, ...] = ()
    too_small: tuple[int, ...] = ()
    observe_only: bool = True
    suppressed: tuple[Suppressed, ...] = ()
    event: tuple[int, ...] = ()
    nearest: Mapping[str, float] = field(default_factory=dict)


def unreported_jitters(
    jitters: Sequence[Jitter], named: Sequence[MachineFinding]
) -> tuple[Jitter, ...]:
    """Return the longest jitter of each machine that is not reported, longest first."""
    machines = {standout.machine for standout in named}
    longest: dict[int, Jitter] = {}
    for standout in sorted(jitters, key=lambda standout: standout.since - standout.until):
        if standout.machine not in machines:
            longest.setdefault(standout.machine, standout)
    return tuple(longest.values())
