"""Counts of what became of rows that were landed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from forewarn.features.telemetry.gpu_identity import Rival

__all__ = ["Landed"]


@dataclass(slots=True)
class Landed:
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
    rivals: Counter[Rival] = field(default_factory=Counter)
    ahead: int = 0
    quarantined: list[str] = field(default_factory=list)

    def join(self, later: Landed) -> None:
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
        self.quarantined += later.quarantined
