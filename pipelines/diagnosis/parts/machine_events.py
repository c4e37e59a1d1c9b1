"""Xids and lost GPUs of a job's machines, as signs of a crash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forewarn.features.diagnosis.log_matcher import LogMatcher
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.crash.crash_machines import MachineSign
from forewarn.models.diagnosis.crash.rank_end import sign_of_line
from forewarn.pipelines.diagnosis.parts.hardware import EventsPart
from forewarn.pipelines.diagnosis.parts.part import Case
from forewarn.pipelines.runtime.timestamps import parse_moment

__all__ = ["event_signs"]


def event_signs(case: Case, matcher: LogMatcher) -> list[MachineSign]:
    """Return what hosts said in the hour up to a case's moment; nothing where that is not known.

    Parameters
    ----------
    case : Case
    matcher : LogMatcher
        Says what an Xid means.
    """
    part = case.parts.get("events")
    if not isinstance(part, EventsPart):
        return []
    signs = (_sign(row, case.ranks, matcher) for row in part.rows(case))
    return [sign for sign in signs if sign is not None]


def _sign(row: Mapping[str, Any], ranks: Ranks, matcher: LogMatcher) -> MachineSign | None:
    """Return an event as the kernel log would have said it."""
    line = f"NVRM: Xid (PCI:?): {row['xid']}"
    if row["kind"] == "lost":
        line = "NVRM: GPU has fallen off the bus"
    if (row["raw"] or "").startswith("NVRM:"):  # it may say how grave it is
        line = row["raw"]
    pattern = matcher.first(line.encode())
    if pattern is None:
        return None
    text = row["raw"] or line.removeprefix("NVRM: ")
    sign = replace(sign_of_line(pattern, text[:500], parse_moment(row["time"])), source="events")
    serial = row["gpu_serial"]
    rank = next((n for n, r in ranks.table.items() if serial and r.gpu_serial == serial), None)
    return MachineSign(row["machine_id"], sign, rank)
