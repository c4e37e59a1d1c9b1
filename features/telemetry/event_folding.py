"""Folding of corrected errors: one row per device and minute, with their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.telemetry.parsers.hardware_event import HARDWARE_KINDS
from forewarn.features.telemetry.parsers.kernel_event import MAX_COUNT
from forewarn.features.time_units import MINUTE

__all__ = ["NoticeFolder", "fold_notices"]

_KEYS = ("machine_id", "kind", "pci", "check")
# The kernel announces a machine check with this line before a driver decodes it in others.
_ANNOUNCEMENT = "Machine check events logged"
_DECODED = ("machine_check", "memory_error")
_Key = tuple[Any, ...]


def fold_notices(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of EVENTS; corrected errors of a device within a minute are one row.

    A link with a bad contact prints thousands of them per second. The first row is kept, with the
    sum of the counts; an input row is not changed. An announcement that other lines of the minute
    decode is left out.

    Examples
    --------
    >>> row = {"kind": "pcie_error", "severity": "notice", "timestamp": 5, "count": 2}
    >>> [folded["count"] for folded in fold_notices([row, row])]
    [4]
    """
    folded: list[dict[str, Any]] = []
    first: dict[_Key, dict[str, Any]] = {}
    for row in _without_announcements([*rows]):
        if not _is_notice(row):
            folded.append(row)
        elif (key := _key(row)) in first:
            _add(first[key], row)
        else:
            first[key] = dict(row)
            folded.append(first[key])
    return folded


def _without_announcements(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    decoded = {
        _minute(row) for row in rows if row["kind"] in _DECODED and not _is_announcement(row)
    }
    return [row for row in rows if not (_is_announcement(row) and _minute(row) in decoded)]


def _is_announcement(row: dict[str, Any]) -> bool:
    return str(row.get("raw", "")).endswith(_ANNOUNCEMENT)


def _is_notice(row: dict[str, Any]) -> bool:
    return row["kind"] in HARDWARE_KINDS and row.get("severity") == "notice"


def _minute(row: dict[str, Any]) -> tuple[Any, int]:
    return row.get("machine_id"), row["timestamp"] // MINUTE


def _key(row: dict[str, Any]) -> _Key:
    return (*(row.get(name) for name in _KEYS), row["timestamp"] // MINUTE)


def _add(row: dict[str, Any], other: dict[str, Any]) -> None:
    row["count"] = min(row["count"] + other["count"], MAX_COUNT)


@dataclass(slots=True)
class NoticeFolder:
    """A folder of rows that arrive every second.

    The first corrected error of a device in a minute is passed on at once, the others of the
    minute as one row when it is over.
    """

    _passed: dict[_Key, int] = field(default_factory=dict)  # with the time of the row
    _held: dict[_Key, dict[str, Any]] = field(default_factory=dict)

    def fold(self, rows: Iterable[dict[str, Any]], now: int) -> list[dict[str, Any]]:
        """Return the rows to pass on.

        Parameters
        ----------
        rows : iterable of dict
            Rows of EVENTS.
        now : int
            Nanoseconds since 1970 UTC.
        """
        passed = [row for row in fold_notices(rows) if self._is_first(row)]
        over = [key for key in self._held if key[-1] < now // MINUTE]
        passed += [self._held.pop(key) for key in over]
        self._passed = {key: time for key, time in self._passed.items() if now - time < 2 * MINUTE}
        return passed

    def _is_first(self, row: dict[str, Any]) -> bool:
        """Tell whether a row is passed on at once; hold it otherwise."""
        if not _is_notice(row):
            return True
        key = _key(row)
        if key not in self._passed:
            self._passed[key] = row["timestamp"]
            return True
        if key in self._held:
            _add(self._held[key], row)
        else:
            self._held[key] = row
        return False
