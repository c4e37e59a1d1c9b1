"""Boards that left a slot after an incident, from locations of GPUs and repair cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.repair.board_or_chassis import (
    GpuIncident,
    Placement,
    Separation,
    judge_separations,
)
from forewarn.response.repair.repair_case import RepairCase

__all__ = ["Stays", "find_separations"]

Stays = Mapping[tuple[str, str], Mapping[str, tuple[Nanoseconds, Nanoseconds]]]
"""First and last time at which each board was seen, by machine and PCI address, and serial."""


def find_separations(stays: Stays, cases: Sequence[RepairCase]) -> list[Separation]:
    """Return each board that left its slot after an incident, and which of the two failed.

    A slot is a PCI address. Slots whose boards were seen in turns are left out: when a board that
    came back was there is not known.

    Parameters
    ----------
    stays : Stays
        Of the records, such as `GpuLocations.stays`.
    cases : sequence of RepairCase
        Each is one incident of the GPUs that it names.
    """
    placements = list(_placements(stays))
    return judge_separations(placements, _incidents(placements, cases))


def _placements(stays: Stays) -> Iterator[Placement]:
    for (machine, pci), spans in stays.items():
        ordered = sorted(spans.items(), key=lambda item: item[1])
        starts = [first for _, (first, _) in ordered[1:]]
        lasts = [last for _, (_, last) in ordered]
        if any(start <= last for start, last in zip(starts, lasts, strict=False)):
            continue
        for number, (serial, (first, last)) in enumerate(ordered):
            # The incident of a lost GPU follows its last reading.
            end = min([last + DAY, *starts[number : number + 1]])
            yield Placement(serial, machine, pci, first, Nanoseconds(end))


def _incidents(
    placements: Sequence[Placement], cases: Sequence[RepairCase]
) -> Iterator[GpuIncident]:
    by_board: dict[tuple[str, str], list[Placement]] = {}
    for placement in placements:
        by_board.setdefault((placement.machine, placement.gpu_serial), []).append(placement)
    for case in cases:
        for serial in case.gpu_serials:
            for placement in by_board.get((case.machine, serial), []):
                if placement.start <= case.opened_at < placement.end:
                    yield GpuIncident(case.machine, placement.slot, case.opened_at)
