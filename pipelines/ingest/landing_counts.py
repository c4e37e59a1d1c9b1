"""Counts of landed rows and of what happened to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from forewarn.features.telemetry.gpu_identity import HostConflict
from forewarn.features.telemetry.slot_conflicts import SlotConflict

__all__ = ["LandingCounts", "serial_notes"]

_MAX_EXAMPLES = 3


@dataclass(slots=True)
class LandingCounts:
    """The result of landing rows.

    Attributes
    ----------
    readings, events : int
        New rows.
    doubled : int
        Rows that were already stored.
    records : int
        Records of the changed hours.
    failures : int
        Rows of the whole table.
    nameless : int
        Readings that identify no GPU; they are stored but give no record.
    unknown, unknown_machines : set of str
        Serials and machines that the CMDB lacks; their records have no attributes.
    unplaced : int
        Events at an address at which no GPU was ever seen.
    conflicts : Counter of HostConflict
        Readings excluded from records because another host had the GPU.
    ahead : int
        Rows dropped because their time is in the future.
    boards : dict of str to int
        Newly discovered boards with several GPUs, and the number of known GPUs.
    cmdb_boards, ticket_boards : dict of str to int
        Boards to which a row of the CMDB or a ticket refers, and the number of their GPUs.
    zeros : dict of str to str
        Serials of the CMDB or of tickets that differ from GPUs by leading zeros, and the GPUs'
        serials.
    slot_conflicts : set of SlotConflict
        Slots that two GPUs of a machine report simultaneously, in the changed hours.
    unknown_tickets : frozenset of str
        Serials of new tickets that no reading has.
    quarantined : list of str
        Unreadable files, with their new location and the reason.
    """

    readings: int = 0
    events: int = 0
    doubled: int = 0
    records: int = 0
    failures: int = 0
    nameless: int = 0
    unknown: set[str] = field(default_factory=set)
    unknown_machines: set[str] = field(default_factory=set)
    unplaced: int = 0
    conflicts: Counter[HostConflict] = field(default_factory=Counter)
    ahead: int = 0
    boards: dict[str, int] = field(default_factory=dict)
    cmdb_boards: dict[str, int] = field(default_factory=dict)
    ticket_boards: dict[str, int] = field(default_factory=dict)
    zeros: dict[str, str] = field(default_factory=dict)
    unknown_tickets: frozenset[str] = frozenset()
    slot_conflicts: set[SlotConflict] = field(default_factory=set)
    quarantined: list[str] = field(default_factory=list)

    def join(self, later: LandingCounts) -> None:
        """Add the result of a later call."""
        self.readings += later.readings
        self.events += later.events
        self.doubled += later.doubled
        self.records += later.records
        self.failures = later.failures
        self.nameless += later.nameless
        self.unknown |= later.unknown
        self.unknown_machines |= later.unknown_machines
        self.unplaced += later.unplaced
        self.conflicts += later.conflicts
        self.ahead += later.ahead
        self.boards |= later.boards
        self.cmdb_boards = later.cmdb_boards
        self.ticket_boards |= later.ticket_boards
        self.zeros |= later.zeros
        self.unknown_tickets |= later.unknown_tickets
        self.slot_conflicts |= later.slot_conflicts
        self.quarantined += later.quarantined


def serial_notes(landed: LandingCounts) -> Iterator[str]:
    """Yield messages about boards with several GPUs and serials that do not match.

    Parameters
    ----------
    landed : LandingCounts
    """
    if landed.boards:
        yield (
            "boards with several GPUs, whose GPUs are named SERIAL/UUID, also in earlier records: "
            f"{_with_gpus(landed.boards)}"
        )
    for what, boards in (("tickets", landed.ticket_boards), ("CMDB rows", landed.cmdb_boards)):
        if boards:
            yield f"{what} by a board's serial apply to all its GPUs: {_with_gpus(boards)}"
    if landed.zeros:
        pairs = [f"{written} is read as {serial}" for written, serial in landed.zeros.items()]
        yield (
            "serials of the CMDB or of tickets differ from GPU serials by leading zeros: "
            f"{_examples(pairs)}"
        )
    if landed.slot_conflicts:
        conflicts = [
            f"slot {slot} of {machine} ({gpus[0]} and {gpus[1]})"
            for machine, slot, gpus in sorted(landed.slot_conflicts)
        ]
        yield (
            f"two GPUs report the same slot simultaneously: {_examples(conflicts)}; both have "
            "records, but their slots are uncertain"
        )
    if landed.unknown_tickets:
        serials = sorted(landed.unknown_tickets)
        yield f"serials of tickets that no record has ({len(serials)}): {_examples(serials)}"


def _with_gpus(boards: Mapping[str, int]) -> str:
    return _examples([f"{serial} ({n_gpus} GPUs)" for serial, n_gpus in boards.items()])


def _examples(texts: Collection[str]) -> str:
    first = ", ".join(list(texts)[:_MAX_EXAMPLES])
    return f"{first}, ..." if len(texts) > _MAX_EXAMPLES else first
