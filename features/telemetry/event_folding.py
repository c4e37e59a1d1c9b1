"""Folding of corrected errors: one row per device and minute, with their number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forewarn.features.telemetry.parsers.hardware_event import HARDWARE_KINDS
from forewarn.features.telemetry.parsers.kernel_event import MAX_COUNT
from forewarn.features.time_units import MINUTE

__all__ = ["fold_notices"]

_KEYS = ("machine_id", "kind", "pci", "check")


def fold_notices(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of EVENTS; corrected errors of a device within a minute are one row.

    A link with a bad contact prints thousands of them per second. The first row is kept, with the
    sum of the counts; an input row is not changed.

    Examples
    --------
    >>> row = {"kind": "pcie_error", "severity": "notice", "timestamp": 5, "count": 2}
    >>> [folded["count"] for folded in fold_notices([row, row])]
    [4]
    """
    folded: list[dict[str, Any]] = []
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["kind"] not in HARDWARE_KINDS or row.get("severity") != "notice":
            folded.append(row)
            continue
        key = (*(row.get(name) for name in _KEYS), row["timestamp"] // MINUTE)
        if key in first:
            first[key]["count"] = min(first[key]["count"] + row["count"], MAX_COUNT)
        else:
            first[key] = dict(row)
            folded.append(first[key])
    return folded
