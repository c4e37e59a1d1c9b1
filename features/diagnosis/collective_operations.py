"""Operations of all ranks of a job in one table, merged from their flight recorder dumps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from numpy.lib import recfunctions

from forewarn.features.diagnosis.flight_recorder_dump import COMPLETED, ENTRY, FlightRecorderDump

__all__ = ["OPERATION", "CollectiveOperations", "merge_dumps"]

OPERATION = np.dtype([("rank", np.int32), *((name, ENTRY[name]) for name in ENTRY.names or ())])


@dataclass(frozen=True, slots=True)
class CollectiveOperations:
    """Contents of the flight recorders of a job's ranks.

    Attributes
    ----------
    entries : ndarray of OPERATION
        By rank, in the order in which the rank entered them.
    groups, names, signatures : tuple of str
        Texts that the numbers in `entries` index, common to all ranks.
    descriptions : tuple of str
        Purpose of each group, such as `tp`.
    members : mapping of int to tuple of int
        Ranks by group number: as listed in a dump, otherwise the ranks with an entry of the group.
    described : frozenset of int
        Groups whose members a dump lists. A rank without a dump may belong to any other group.
    ranks : frozenset of int
        Ranks with a readable dump.
    enqueued : mapping of (int, int) to int
        Last sequence number entered, by rank and group, where a dump says it.
    """

    entries: npt.NDArray[np.void]
    groups: tuple[str, ...]
    descriptions: tuple[str, ...]
    names: tuple[str, ...]
    signatures: tuple[str, ...]
    members: Mapping[int, tuple[int, ...]]
    described: frozenset[int]
    ranks: frozenset[int]
    enqueued: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def last(self) -> int | None:
        """Latest time in any entry, in nanoseconds since 1970 UTC."""
        times = [int(self.entries[name].max(initial=0)) for name in _TIME_FIELDS]
        return max(times) or None

    def until(self, at: int) -> CollectiveOperations:
        """Return the operations as known at a time, without later entries, starts and ends."""
        if (self.last or 0) <= at:
            return self
        entries = self.entries[self.entries["created"] <= at].copy()
        is_later = len(entries) < len(self.entries)
        entries["state"][entries["completed"] > at] = 0
        for name in ("started", "completed"):
            entries[name][entries[name] > at] = 0
        return replace(self, entries=entries, enqueued={} if is_later else self.enqueued)

    def by_one_clock(self, ahead: Mapping[int, int]) -> CollectiveOperations:
        """Return the operations with each rank's times corrected to a common clock.

        Parameters
        ----------
        ahead : mapping of int to int
            Nanoseconds by which a rank's clock is ahead; ranks not listed keep their times.
        """
        size = max(ahead, default=-1) + 1
        if not any(ahead.values()):
            return self
        offsets = np.zeros(max(size, int(self.entries["rank"].max(initial=0)) + 1), dtype=np.int64)
        offsets[list(ahead)] = list(ahead.values())
        entries = self.entries.copy()
        for name in _TIME_FIELDS:
            known = entries[name] > 0
            entries[name][known] -= offsets[entries["rank"][known]]
        return replace(self, entries=entries)

    def without(self, ranks: frozenset[int]) -> CollectiveOperations:
        """Return the operations of all other ranks."""
        if not ranks:
            return self
        entries = self.entries[~np.isin(self.entries["rank"], sorted(ranks))]
        return replace(self, entries=entries, ranks=self.ranks - ranks)

    def of_rank(self, rank: int) -> npt.NDArray[np.void]:
        """Return the entries of a rank, in order."""
        first, last = np.searchsorted(self.entries["rank"], (rank, rank + 1))
        rows: npt.NDArray[np.void] = self.entries[first:last]
        return rows

    def unfinished(self) -> npt.NDArray[np.void]:
        """Return the entries that are not completed, in order."""
        rows: npt.NDArray[np.void] = self.entries[self.entries["state"] != COMPLETED]
        return rows


_TIME_FIELDS = ("created", "started", "completed")


def merge_dumps(dumps: Mapping[int, FlightRecorderDump]) -> CollectiveOperations:
    """Merge the dumps of all ranks.

    Parameters
    ----------
    dumps : mapping of int to FlightRecorderDump
        By rank.
    """
    groups, names, signatures = dict[str, int](), dict[str, int](), dict[str, int]()
    entries = np.zeros(sum(len(dump.entries) for dump in dumps.values()), dtype=OPERATION)
    start = 0
    for rank, dump in sorted(dumps.items()):
        part = entries[start : start + len(dump.entries)]
        recfunctions.assign_fields_by_name(part, dump.entries, zero_unassigned=False)
        part["rank"] = rank
        part["group"] = _assign_numbers(groups, dump.groups)[dump.entries["group"]]
        part["name"] = _assign_numbers(names, dump.names)[dump.entries["name"]]
        part["signature"] = _assign_numbers(signatures, dump.signatures)[dump.entries["signature"]]
        start += len(part)
    uses = {
        name: use
        for dump in dumps.values()
        for name, use in zip(dump.groups, dump.descriptions, strict=True)
    }
    members = {
        groups[name]: ranks
        for dump in dumps.values()
        for name, ranks in dump.members.items()
        if name in groups
    }
    return CollectiveOperations(
        entries,
        tuple(groups),
        tuple(uses[name] for name in groups),
        tuple(names),
        tuple(signatures),
        _ranks_by_group(entries) | members,
        frozenset(members),
        frozenset(dumps),
        {
            (rank, groups[name]): seq
            for rank, dump in dumps.items()
            for name, seq in dump.enqueued.items()
            if name in groups
        },
    )


def _assign_numbers(table: dict[str, int], texts: Iterable[str]) -> npt.NDArray[np.int32]:
    numbers = [table.setdefault(text, len(table)) for text in texts]
    return np.array(numbers, dtype=np.int32)


def _ranks_by_group(entries: npt.NDArray[np.void]) -> dict[int, tuple[int, ...]]:
    """Return the ranks that have an entry of each group, in order."""
    keys = np.unique(entries["group"].astype(np.int64) << 32 | entries["rank"])
    members: dict[int, list[int]] = {}
    for key in keys.tolist():
        members.setdefault(key >> 32, []).append(key & 0xFFFFFFFF)
    return {group: tuple(ranks) for group, ranks in members.items()}
