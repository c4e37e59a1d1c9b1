"""Rows of readings and events from the files of one host, without duplicates."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forewarn.features.telemetry.index_names import GpuNames
from forewarn.features.telemetry.parsers.gpu_reading import Unread

__all__ = ["HostFileRows", "HostFileText"]

_UNNAMED = (
    "a reading that names its GPU by the index alone, or not at all (add the output of "
    "`nvidia-smi -L`, `amd-smi list` or `npu-smi info -t board` of the same host to the folder)"
)
_READING_KEY = ("machine_id", "gpu_serial", "gpu_uuid", "pci", "timestamp")  # identifies a reading


@dataclass(frozen=True, slots=True)
class HostFileText:
    """One file as text.

    Attributes
    ----------
    name : str
        For reports.
    text : str
    time : int or None
        Time in the file name, nanoseconds since 1970 UTC.
    host : str or None
        Host that the file itself names.
    offset : int or None
        Nanoseconds by which its clock without a zone is ahead of UTC, where it says so.
    """

    name: str
    text: str
    time: int | None
    host: str | None = None
    offset: int | None = None


@dataclass(slots=True)
class HostFileRows:
    """The content of the files of one host.

    Attributes
    ----------
    readings, events : list of dict
        Rows of READINGS and EVENTS.
    boards : list of dict
        Rows of PLACES.
    files : dict of str to int
        Number of files by kind.
    unread : Unread
    until : int or None
        Later rows have a wrong clock and are dropped.
    names : GpuNames
        GPUs that the files name, for rows that have an address or an index alone.
    doubled : Counter of (str, str)
        Rows of a file that an earlier file, or the same file, has as well.
    """

    readings: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    boards: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    unread: Unread = field(default_factory=Unread)
    until: int | None = None
    doubled: Counter[tuple[str, str]] = field(default_factory=Counter)
    names: GpuNames = field(default_factory=GpuNames, repr=False)
    _nameless: list[tuple[dict[str, Any], HostFileText]] = field(default_factory=list, repr=False)
    _first: dict[Hashable, str] = field(default_factory=dict, repr=False)

    def add_reading(self, row: dict[str, Any], file: HostFileText) -> None:
        """Add a row of READINGS; one that names no GPU waits for `name_gpus`."""
        if row.get("gpu_serial") is None and row.get("gpu_uuid") is None:
            self._nameless.append((row, file))
            return
        self.names.add(row)
        self._add_named(row, file)

    def name_gpus(self) -> None:
        """Name the GPUs of rows that have an address or an index alone.

        A row with an address stays without a name, as earlier files may know it; an index says
        nothing without another file of the same host. A row with neither is of the only GPU of a
        list, unless others of the same moment show that there are more.
        """
        waiting, self._nameless = self._nameless, []
        moments = Counter(
            (file.name, row["timestamp"]) for row, file in waiting if not _has_place(row)
        )
        for row, file in waiting:
            is_only = not _has_place(row) and moments[file.name, row["timestamp"]] == 1
            name = self.names.name(row | {"listed": True} if is_only else row)
            if name is not None or row.get("pci") is not None:
                self._add_named(row | (name or {}), file, once=True)
            else:
                self.unread.add(_UNNAMED, file.name)
        for event in self.events:
            slot = event.pop("slot", None)
            if slot is not None:
                name = self.names.name(event | {"slot": slot})
                # Without a name the check keeps the index, or GPUs would end each other's findings.
                event.update(name or {"check": f"{event['check']} of GPU {slot}"})

    def _add_named(self, row: dict[str, Any], file: HostFileText, *, once: bool = False) -> None:
        """Add a row; `once` leaves it out where another one tells more of the same moment."""
        key = tuple(row.get(name) for name in _READING_KEY)
        if once and key in self._first:
            return
        if self._is_new(row["timestamp"], key, file):
            self.readings.append(row)

    def add_event(self, row: dict[str, Any], file: HostFileText) -> None:
        """Add a row of EVENTS."""
        if self._is_new(row["timestamp"], row["id"], file):
            self.events.append(row)

    def without_future_time(self, file: HostFileText) -> HostFileText:
        """Return the file without the time in its name if that is in the future."""
        if file.time is None or not self.is_future(file.time):
            return file
        self.unread.add("a time in the future in a file name", _at(file, file.time))
        return replace(file, time=None)

    def is_future(self, time: int) -> bool:
        """Tell whether a time is in the future."""
        return self.until is not None and time > self.until

    def _is_new(self, time: int, key: Hashable, file: HostFileText) -> bool:
        if self.is_future(time):
            self.unread.add("a row in the future", _at(file, time))
            return False
        if key in self._first:
            self.doubled[file.name, self._first[key]] += 1
            return True  # the landing keeps the later of two rows
        self._first[key] = file.name
        return True


def _has_place(row: Mapping[str, Any]) -> bool:
    return row.get("slot") is not None or row.get("pci") is not None


def _at(file: HostFileText, time: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=time // 1000)
    return f"{file.name}: {moment.isoformat()}Z"
