"""Counts of what became of rows that were landed."""

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
    """What became of what was landed.

    Attributes
    ----------
    readings, events : int
        New ones.
    doubled : int
        Rows that were there already.
    records : int
        In the hours that changed.
    failures : int
        In the whole table.
    nameless : int
        Readings that name no GPU: they are kept, and make no record.
    unknown : set of str
        Serials that the CMDB lacks: their records have no attributes of it.
    unplaced : int
        Events of an address at which no GPU was ever seen.
    rivals : Counter of Rival
        Readings left out of the records, since another host had that GPU.
    ahead : int
        Rows of the future: the clock that they were written by is wrong, so they are left out.
    boards : dict of str to int
        Serials that were found to be of boards with several GPUs, and how many GPUs are known.
    cmdb_boards, ticket_boards : dict of str to int
        Boards with several GPUs, and how many, that a row of the CMDB or a ticket is about.
    zeros : dict of str to str
        Serials of the CMDB or of tickets that lack or add leading zeros, and those of the GPUs.
    slot_conflicts : set of SlotConflict
        Slots that two GPUs of a machine report at one time, in the hours that changed.
    unknown_tickets : frozenset of str
        Serials of new tickets that no reading ever named.
    quarantined : list of str
        Files that cannot be read any more, where they are now, and why.
    """

    readings: int = 0
    events: int = 0
    doubled: int = 0
    records: int = 0
    failures: int = 0
    nameless: int = 0
    unknown: set[str] = field(default_factory=set)
    unplaced: int = 0
    rivals: Counter[HostConflict] = field(default_factory=Counter)
    ahead: int = 0
    boards: dict[str, int] = field(default_factory=dict)
    cmdb_boards: dict[str, int] = field(default_factory=dict)
    ticket_boards: dict[str, int] = field(default_factory=dict)
    zeros: dict[str, str] = field(default_factory=dict)
    unknown_tickets: frozenset[str] = frozenset()
    slot_conflicts: set[SlotConflict] = field(default_factory=set)
    quarantined: list[str] = field(default_factory=list)

    def join(self, later: LandingCounts) -> None:
        """Add what a later call did."""
        self.readings += later.readings
        self.events += later.events
        self.doubled += later.doubled
        self.records += later.records
        self.failures = later.failures
        self.nameless += later.nameless
        self.unknown |= later.unknown
        self.unplaced += later.unplaced
        self.rivals += later.rivals
        self.ahead += later.ahead
        self.boards |= later.boards
        self.cmdb_boards = later.cmdb_boards
        self.ticket_boards |= later.ticket_boards
        self.zeros |= later.zeros
        self.unknown_tickets |= later.unknown_tickets
        self.slot_conflicts |= later.slot_conflicts
        self.quarantined += later.quarantined


def serial_notes(landed: LandingCounts) -> Iterator[str]:
    """Yield a line on boards with several GPUs and on serials that do not match, if there are any.

    Parameters
    ----------
    landed : Landed
    """
    if landed.boards:
        yield (
            "boards with several GPUs, each of which is named SERIAL/UUID, in earlier records "
            f"too: {_with_gpus(landed.boards)}"
        )
    for what, boards in (("tickets", landed.ticket_boards), ("CMDB rows", landed.cmdb_boards)):
        if boards:
            yield f"{what} by the serial of a board apply to all its GPUs: {_with_gpus(boards)}"
    if landed.zeros:
        pairs = [f"{written} is taken for {serial}" for written, serial in landed.zeros.items()]
        yield (
            "serials of the CMDB or of tickets differ from those of GPUs by leading zeros: "
            f"{_examples(pairs)}"
        )
    if landed.slot_conflicts:
        conflicts = [
            f"slot {slot} of {machine} ({gpus[0]} and {gpus[1]})"
            for machine, slot, gpus in sorted(landed.slot_conflicts)
        ]
        yield (
            f"two GPUs report one slot at one time: {_examples(conflicts)}; both have records, and "
            "their slots are not certain"
        )
    if landed.unknown_tickets:
        serials = sorted(landed.unknown_tickets)
        yield f"no record has these serials of tickets ({len(serials)}): {_examples(serials)}"


def _with_gpus(boards: Mapping[str, int]) -> str:
    return _examples([f"{serial} ({n_gpus} GPUs)" for serial, n_gpus in boards.items()])


def _examples(texts: Collection[str]) -> str:
    """Return the first few."""
    first = ", ".join(list(texts)[:_MAX_EXAMPLES])
    return f"{first}, ..." if len(texts) > _MAX_EXAMPLES else first
