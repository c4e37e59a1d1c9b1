"""The report `drift.json` beside the records: inputs that had moved at the last retraining."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import iso, parse_moment
from forewarn.pipelines.storage.atomic_files import replacing

__all__ = ["read_drift", "write_drift"]

_NAME = "drift.json"


def write_drift(records: Path, at: Nanoseconds, drifted: Iterable[str]) -> None:
    """Write which inputs have moved; a retraining as of an earlier moment changes nothing.

    Parameters
    ----------
    records : Path
    at : int
        Moment of the retraining, nanoseconds since 1970 UTC.
    drifted : iterable of str
        Names of columns, or of the scores.
    """
    path = records / _NAME
    before = _load(path)
    if before is not None and before[0] > at:
        return
    with replacing(path) as temporary:
        report = {"at": iso(at), "drifted": sorted(drifted)}
        temporary.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def read_drift(records: Path) -> tuple[str, ...]:
    """Return the inputs that have moved; a report that cannot be read is no good news."""
    path = records / _NAME
    if not path.exists():
        return ()
    report = _load(path)
    return (f"{_NAME} cannot be read",) if report is None else report[1]


def _load(path: Path) -> tuple[int, tuple[str, ...]] | None:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return parse_moment(report["at"]), tuple(str(name) for name in report["drifted"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
