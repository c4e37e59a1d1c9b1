"""What the detector says of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Jitter", "MachineFinding", "Verdict", "unreported_jitters"]


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """A machine that stood out for long enough.

    Attributes
    ----------
    machine : int
    metric : str
    score : float
        Highest threshold that it would still have passed, over the one that it had to pass.
    since, at : int
        Ticks of the call: begin of the first window that counts, and end of the last one needed.
    always : bool
        It was so from the beginning, beyond what is forgiven.
    """

    machine: int
    metric: str
    score: float
    since: int
    at: int
    always: bool = False


@dataclass(frozen=True, slots=True)
class Jitter:
    """A machine that stood out for too short a time to be named, and is back.

    Attributes
    ----------
    machine : int
    metric : str
    score : float
        Highest score of a window, over the threshold.
    since, until : int
        Ticks of the call: begin of the first window, and end of the last one.
    """

    machine: int
    metric: str
    score: float
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a call came to.

    Attributes
    ----------
    findings : tuple of Finding
        The first is the faulty machine; all are of the metric that found it.
    blind : tuple of int
        Machines of which nothing can be said.
    examined : tuple of str
        Metrics that were looked at, in order.
    absent : tuple of str
        Metrics that no machine sent.
    jitters : tuple of Jitter
        Of machines that are not named, the longest first; one for each machine.
    too_small : tuple of int
        Machines whose group is too small to compare within, and was not seen in healthy tasks.
    observe_only : bool
        The detector has not shown yet that anybody should act on it.
    """

    findings: tuple[MachineFinding, ...]
    blind: tuple[int, ...]
    examined: tuple[str, ...]
    absent: tuple[str, ...]
    jitters: tuple[Jitter, ...] = ()
    too_small: tuple[int, ...] = ()
    observe_only: bool = True


def unreported_jitters(
    jitters: Sequence[Jitter], named: Sequence[MachineFinding]
) -> tuple[Jitter, ...]:
    """Return the longest of each machine that is not named, in order of length."""
    machines = {standout.machine for standout in named}
    longest: dict[int, Jitter] = {}
    for standout in sorted(jitters, key=lambda standout: standout.since - standout.until):
        if standout.machine not in machines:
            longest.setdefault(standout.machine, standout)
    return tuple(longest.values())
