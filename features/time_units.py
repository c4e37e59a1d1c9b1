"""Units of time as types: mypy tells a count of records from a span of nanoseconds."""

from __future__ import annotations

from typing import Final, NewType

__all__ = ["DAY", "HOUR", "Nanoseconds", "RecordCount"]

Nanoseconds = NewType("Nanoseconds", int)
RecordCount = NewType("RecordCount", int)

HOUR: Final = Nanoseconds(3_600_000_000_000)
DAY: Final = Nanoseconds(24 * HOUR)
