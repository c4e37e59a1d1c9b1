"""The report `_drift.json` next to the records: inputs that drifted by the last retraining."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["DriftReport", "read_drift", "write_drift"]

_NAME = "_drift.json"


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Inputs that had drifted at a retraining.

    Attributes
    ----------
    drifted : tuple of str
        Names of columns, or of the scores.
    at : int or None
        Time of the retraining, nanoseconds since 1970 UTC; None if unknown.
    """

    drifted: tuple[str, ...] = ()
    at: Nanoseconds | None = None


def write_drift(records: Path, at: Nanoseconds, drifted: Iterable[str]) -> None:
    """Write the drifted inputs, unless the stored report is of a later retraining.

    Parameters
    ----------
    records : Path
    at : int
        Time of the retraining, nanoseconds since 1970 UTC.
    drifted : iterable of str
        Names of columns, or of the scores.
    """
    path = records / _NAME
    before = _load(path)
    if before is not None and before.at is not None and before.at > at:
        return
    with replacing(path) as temporary:
        report = {"at": format_iso(at), "drifted": sorted(drifted)}
        temporary.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def read_drift(records: Path) -> DriftReport:
    """Return the drifted inputs; an unreadable report counts as drift."""
    path = records / _NAME
    if not path.exists():
        return DriftReport()
    return _load(path) or DriftReport((f"{_NAME} cannot be read",))


def _load(path: Path) -> DriftReport | None:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        at = Nanoseconds(parse_moment(report["at"]))
        return DriftReport(tuple(str(name) for name in report["drifted"]), at)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
