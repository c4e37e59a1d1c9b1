"""Board or chassis: which of the two failed, from what happened after they were separated.

A board is followed by its serial to its next host, a slot with its next board. If the board was at
fault, incidents go with it; if the chassis was, they stay; if neither was, they are rare before and
after. Each of these is weighed by its share of cases, times the likelihood of the Poisson counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forewarn.features.time_units import DAY, Nanoseconds

__all__ = ["Culprit", "GpuIncident", "Placement", "Separation", "judge_separations"]

_BAD_RATE: Final = 1.0 / 14.0  # incidents a day of a repeat offender: two in 28 days
_GOOD_RATE: Final = 1.0 / 365.0
_BAD_SHARE: Final = 0.01  # of boards, and of slots; assumed
_DECISIVE: Final = 0.95  # probability


class Culprit(StrEnum):
    """What failed.

    `NEITHER`: incidents are as rare as those of good boards in good slots. `UNKNOWN` while none of
    the others has a probability of 0.95.
    """

    BOARD = "board"
    CHASSIS = "chassis"
    NEITHER = "neither"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Placement:
    """A GPU in a slot of a machine, from `start` up to `end`; nanoseconds since 1970 UTC."""

    gpu_serial: str
    machine: str
    slot: str
    start: Nanoseconds
    end: Nanoseconds


@dataclass(frozen=True, slots=True)
class GpuIncident:
    """An independent incident of one GPU, by place: the placement tells the serial."""

    machine: str
    slot: str
    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class Separation:
    """A board that left the slot in which it had an incident, and what happened since.

    Attributes
    ----------
    gpu_serial, machine, slot : str
    at : int
        When the board left, nanoseconds since 1970 UTC.
    board_incidents, slot_incidents : int
        Afterwards, of the board in other slots, and of the slot with other boards.
    board_days, slot_days : float
        For which each was observed.
    culprit : Culprit
    """

    gpu_serial: str
    machine: str
    slot: str
    at: Nanoseconds
    board_incidents: int
    slot_incidents: int
    board_days: float
    slot_days: float
    culprit: Culprit


def judge_separations(
    placements: Iterable[Placement], incidents: Iterable[GpuIncident]
) -> list[Separation]:
    """Return each separation of a board from a slot after an incident, oldest first.

    Parameters
    ----------
    placements : iterable of Placement
        Of all GPUs; those of one slot do not overlap.
    incidents : iterable of GpuIncident
    """
    ordered = sorted(placements, key=lambda placement: placement.start)
    by_slot: dict[tuple[str, str], list[Nanoseconds]] = {}
    for incident in incidents:
        by_slot.setdefault((incident.machine, incident.slot), []).append(incident.at)
    separations = [
        _judge(left, ordered, by_slot)
        for left in ordered
        if _count(left, by_slot) and _is_separated(left, ordered)
    ]
    return sorted(separations, key=lambda row: (row.at, row.machine, row.slot))


def _is_separated(left: Placement, placements: Sequence[Placement]) -> bool:
    """Tell whether the board or the slot went on without the other."""
    return any(
        after.start >= left.end
        and (after.gpu_serial == left.gpu_serial)
        != ((after.machine, after.slot) == _position(left))
        for after in placements
    )


def _position(placement: Placement) -> tuple[str, str]:
    return placement.machine, placement.slot


def _count(placement: Placement, incidents: dict[tuple[str, str], list[Nanoseconds]]) -> int:
    times = incidents.get(_position(placement), [])
    return sum(placement.start <= at < placement.end for at in times)


def _judge(
    left: Placement,
    placements: Sequence[Placement],
    incidents: dict[tuple[str, str], list[Nanoseconds]],
) -> Separation:
    later = [after for after in placements if after.start >= left.end]
    board = [
        p for p in later if p.gpu_serial == left.gpu_serial and _position(p) != _position(left)
    ]
    slot = [p for p in later if p.gpu_serial != left.gpu_serial and _position(p) == _position(left)]
    counts = [sum(_count(p, incidents) for p in side) for side in ([left], board, slot)]
    days = [sum(p.end - p.start for p in side) / DAY for side in ([left], board, slot)]
    return Separation(
        *(left.gpu_serial, left.machine, left.slot, left.end),
        board_incidents=counts[1],
        slot_incidents=counts[2],
        board_days=days[1],
        slot_days=days[2],
        culprit=_culprit(counts, days),
    )


def _culprit(counts: Sequence[int], days: Sequence[float]) -> Culprit:
    """Return what explains incidents of board and slot together, of the board, and of the slot."""
    good, bad = _GOOD_RATE, _BAD_RATE
    logs = {
        Culprit.BOARD: math.log(_BAD_SHARE) + _log_likelihood(counts, days, (bad, bad, good)),
        Culprit.CHASSIS: math.log(_BAD_SHARE) + _log_likelihood(counts, days, (bad, good, bad)),
        Culprit.NEITHER: math.log1p(-2.0 * _BAD_SHARE)
        + _log_likelihood(counts, days, (good, good, good)),
    }
    likeliest = max(logs, key=lambda culprit: logs[culprit])
    total = sum(math.exp(value - logs[likeliest]) for value in logs.values())
    return likeliest if 1.0 / total >= _DECISIVE else Culprit.UNKNOWN


def _log_likelihood(counts: Sequence[int], days: Sequence[float], rates: Sequence[float]) -> float:
    """Return the logarithm of the likelihood of counts, without what is equal for all rates."""
    terms = zip(counts, days, rates, strict=True)
    return sum(count * math.log(rate) - span * rate for count, span, rate in terms)
