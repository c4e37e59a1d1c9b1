"""Board or chassis: which of the two failed, from what happened after they were separated.

A board is followed by its serial to its next host, a slot with its next board. If the board was at
fault, incidents go with it; if the chassis was, they stay. Both are likelihoods of Poisson counts.
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
_MIN_INCIDENTS: Final = 2  # a single one may be neither's fault
_DECISIVE: Final = math.log(20.0)


class Culprit(StrEnum):
    """What failed.

    `UNKNOWN` while the evidence is not twenty times as likely for either, or after one incident,
    which may be the fault of neither.
    """

    BOARD = "board"
    CHASSIS = "chassis"
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
    n_board, n_slot = (sum(_count(p, incidents) for p in side) for side in (board, slot))
    board_days, slot_days = (sum(p.end - p.start for p in side) / DAY for side in (board, slot))
    ratio = (n_board - n_slot) * math.log(_BAD_RATE / _GOOD_RATE)
    ratio -= (_BAD_RATE - _GOOD_RATE) * (board_days - slot_days)
    n_incidents = _count(left, incidents) + n_board + n_slot
    if abs(ratio) < _DECISIVE or n_incidents < _MIN_INCIDENTS:
        culprit = Culprit.UNKNOWN
    else:
        culprit = Culprit.BOARD if ratio > 0 else Culprit.CHASSIS
    return Separation(
        *(left.gpu_serial, left.machine, left.slot, left.end),
        board_incidents=n_board,
        slot_incidents=n_slot,
        board_days=board_days,
        slot_days=slot_days,
        culprit=culprit,
    )
