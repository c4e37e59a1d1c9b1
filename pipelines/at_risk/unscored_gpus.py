"""Unscored GPUs and the reasons; for failed ones the start, the cause and the expected end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.record_table import MACHINE, SLOT
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.telemetry.telemetry_rows import EVENT_KINDS
from forewarn.pipelines.at_risk.day_records import DayRecords
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["NO_REPAIR", "Causes", "KnownFailure", "latest_failures", "unscored_gpus"]

NO_REPAIR = "failed, no repair known"
_ENDED_BY_TELEMETRY = (
    "a repair ticket (forewarn ingest --repairs), a restart of the GPU, or 24 h of healthy "
    "telemetry with 4 h of load"
)
_ENDED_BY_TICKET = "repaired_at of the ticket (forewarn ingest --repairs)"
_ENDED_BY_RECORDS = "a record whose column failure is 0"
_FAILURE_COLUMNS = ["failed_since", "cause", "ended_by"]
Causes = Mapping[str, Sequence[tuple[int, str]]]


class KnownFailure(NamedTuple):
    """Latest failure of a GPU as known at the time of a list.

    Attributes
    ----------
    since : int
        Nanoseconds since 1970 UTC.
    lasts : bool
        Whether it has no end.
    presumed : bool
        Whether its end is presumed, without a known repair.
    cause : str
        Empty if not reported.
    ended_by : str
        What would end it.
    """

    since: int
    lasts: bool
    presumed: bool
    cause: str
    ended_by: str


def latest_failures(
    failures: Failures, serials: Sequence[str], causes: Causes
) -> dict[int, KnownFailure]:
    """Return the latest failure of each GPU that has any.

    Parameters
    ----------
    failures : Failures
        Known at the time of the list, by GPU and time.
    serials : sequence of str
    causes : mapping of str to sequence of (int, str)
        Time and cause of reported failures, by serial.
    """
    latest = {}
    columns = (failures.gpu, failures.since(), failures.repaired_at, failures.presumed)
    for gpu, since, repaired, presumed in zip(*(c.tolist() for c in columns), strict=True):
        reported = [row for row in causes.get(serials[gpu], ()) if since <= row[0] < repaired]
        cause = next((cause for _, cause in reported if cause), "")
        ended_by = _ended_by(cause) if reported else _ENDED_BY_RECORDS
        latest[gpu] = KnownFailure(since, repaired == NEVER, presumed, cause, ended_by)
    return latest


def _ended_by(cause: str) -> str:
    """Return what ends a reported failure; an open ticket can only be closed by a person."""
    return (
        _ENDED_BY_TELEMETRY
        if cause in EVENT_KINDS or cause.startswith(("xid ", f"{GPU_ERROR} "))
        else _ENDED_BY_TICKET
    )


def _are_replaced(timeline: Timeline, gpu: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return whether another GPU was first seen in the slot of each GPU after its last record.

    A silent GPU without a successor may be lost but still be installed.

    Parameters
    ----------
    timeline : Timeline
    gpu : ndarray of shape (n,), int64
        Numbers of GPUs with records.
    """
    records, bounds = timeline.records, timeline.bounds
    if MACHINE not in records.texts or SLOT not in records.texts:
        return np.zeros(len(gpu), dtype=bool)
    known = np.flatnonzero(np.diff(bounds) > 0)
    lasts = bounds[known + 1] - 1
    places = list(
        zip(*(records.codes(name, lasts).tolist() for name in (MACHINE, SLOT)), strict=True)
    )
    newest: dict[tuple[int, int], int] = {}
    first_times = records.time[bounds[known]].tolist()
    for machine_slot, first in zip(places, first_times, strict=True):
        if min(machine_slot) >= 0:
            newest[machine_slot] = max(first, newest.get(machine_slot, first))
    position = np.searchsorted(known, gpu)
    ends = records.time[lasts[position]].tolist()
    after = [
        newest.get(places[i], end) > end for i, end in zip(position.tolist(), ends, strict=True)
    ]
    return np.array(after, dtype=bool)


def unscored_gpus(
    day: DayRecords, plan: FeaturePlan, failures: Mapping[int, KnownFailure], *, since: int
) -> pd.DataFrame:
    """Return the GPUs without an instance and the reasons.

    For failed GPUs the table also contains the start, the cause and what would end the failure.
    """
    timeline = day.timeline
    records, bounds = timeline.records, timeline.bounds
    left = np.setdiff1d(np.flatnonzero(np.diff(bounds) > 0), day.instances.gpu)
    machine = records.texts.get(MACHINE)
    lasts = bounds[left + 1] - 1
    ends = records.time[lasts]
    ages = ends - timeline.life_start(lasts)
    rows: list[dict[str, Any]] = []
    columns = left, lasts, ages, ends, timeline.alive[lasts]
    for gpu, last, age, end, alive in zip(*(c.tolist() for c in columns), strict=True):
        row: dict[str, Any] = {"gpu_serial": records.serials[gpu]}
        if machine is not None:
            code = records.codes(MACHINE, np.array([last]))[0]
            row["machine_id"] = machine.texts[code] if code >= 0 else ""
        if not alive:
            row["reason"] = "failed"
        elif end < since:
            row["reason"] = "stale"
        else:
            row["reason"] = "too new" if age < plan.window else "gap"
        rows.append(row | _failure_columns(failures.get(gpu)))
    names = ["gpu_serial", *(["machine_id"] if machine is not None else []), "reason"]
    names += _FAILURE_COLUMNS if any("failed_since" in row for row in rows) else []
    frame = pd.DataFrame(rows, columns=names)
    return frame.assign(replaced=(ends < since) & _are_replaced(timeline, left))


def _failure_columns(failure: KnownFailure | None) -> dict[str, str]:
    """Return the columns of a GPU whose failure has no end."""
    if failure is None or not failure.lasts:
        return {}
    values = (format_iso(failure.since), failure.cause, failure.ended_by)
    return dict(zip(_FAILURE_COLUMNS, values, strict=True))
