"""Alerts of past lists with their outcomes, for the calibration monitor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from forewarn.evaluation.prediction.metrics.calibration_monitor import (
    LabelledAlerts,
    MonitoredCalibration,
    monitor_calibration,
)
from forewarn.evaluation.prediction.metrics.daily_list import raise_alerts
from forewarn.features.prediction.instances import UNKNOWN, label_instances
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import FeatureKinds, NoRecordsError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.records.parquet_files import read_parquet
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["monitoring_start", "past_calibration"]

_MONITORING_PERIOD = 45 * DAY
_COLUMNS = ("gpu_serial", "window_end", "probability", "rank", "listed", "flagged")


def monitoring_start(at: int) -> int:
    """Return the start of monitoring: 45 to 90 days before `at`, constant for 45 days.

    Older lists were made by other models on other hardware. A start that moved every day would
    restart the test every day and increase the rate of false alarms.
    """
    return (at // _MONITORING_PERIOD - 1) * _MONITORING_PERIOD


def past_calibration(
    lists: Path, store: RecordStore, at: int, horizon: int
) -> MonitoredCalibration | None:
    """Return the calibration of past lists, as known at a moment.

    An alert counts if its GPU failed within the horizon, or was still seen at the end of the
    horizon. The lists themselves show whether flags were blocked. Monitoring continues from the
    last list at which that changed, so every change is recorded in the lists.

    Parameters
    ----------
    lists : Path
        Folder of `date=.../at_risk.parquet`.
    store : RecordStore
    at : int
        No later data is read.
    horizon : int
        Nanoseconds.

    Returns
    -------
    MonitoredCalibration or None
        None without past lists that contain listed GPUs and probabilities.
    """
    rows = _listed_rows(lists, at)
    if rows is None or not len(rows):
        return None
    keys = replace(store, kinds=FeatureKinds(), groups=())
    since, listed = int(rows["end"].min()) - horizon, set(rows["gpu_serial"].astype(str))
    try:
        records, failures = keys.read_known(since, at, serials=listed)
    except NoRecordsError:  # the listed GPUs are gone, and no outcome is known
        records, failures = keys.read_known(since, at)
    timeline, first = build_timeline(records, failures), _last_change(rows)
    old, new = rows[rows["list"] < first], rows[rows["list"] >= first]
    before, after = (
        monitor_calibration(_labelled_alerts(part, timeline, horizon), length=_flagged_share(part))
        for part in (old, new)
    )
    # Keep the reason of the current state.
    known = [c for c in before.changes[-1:] if bool(c.length) == bool(_flagged_share(new))]
    return replace(after, changes=(*known, *after.changes))


def _last_change(rows: pd.DataFrame) -> int:
    """Return the number of the first list since the flags were last blocked or unblocked."""
    flags = rows.groupby("list")["flagged"].any()
    return int(flags.index[np.flatnonzero(flags != flags.shift())[-1]])


def _flagged_share(rows: pd.DataFrame) -> float:
    """Return the flagged share of the first list; 1 without lists."""
    first = rows["list"] == rows["list"].min()
    return float(rows.loc[first, "flagged"].mean()) if len(rows) else 1.0


def _listed_rows(lists: Path, at: int) -> pd.DataFrame | None:
    """Return the listed rows of past lists by time, with end, probability and relative position."""
    frames: list[pd.DataFrame] = []
    for path in sorted(lists.glob("date=*/at_risk.parquet")):
        if not format_iso(monitoring_start(at))[:10] <= path.parent.name[5:] < format_iso(at)[:10]:
            continue
        table = read_parquet(path)
        usable = set(_COLUMNS) <= set(table.column_names)
        if not usable or ("hindsight" in table.column_names and pc.any(table["hindsight"]).as_py()):
            continue
        rows = table.select(list(_COLUMNS)).filter(table["listed"]).to_pandas()
        position = rows["rank"] / max(1, rows["rank"].max())
        frames.append(rows.assign(position=position, list=len(frames)))
    if not frames:
        return None
    rows = pd.concat(frames, ignore_index=True).dropna(subset=["probability"])
    ends = pd.to_datetime(rows["window_end"], utc=True).dt.as_unit("ns").astype("int64")
    listed: pd.DataFrame = rows.assign(end=ends).sort_values(["end", "rank"], kind="stable")
    return listed


def _labelled_alerts(rows: pd.DataFrame, timeline: Timeline, horizon: int) -> LabelledAlerts:
    """Return the first appearances with known outcomes."""
    number = {serial: i for i, serial in enumerate(timeline.records.serials)}
    rows = rows[rows["gpu_serial"].isin(number)]
    gpu = np.array([number[serial] for serial in rows["gpu_serial"]], dtype=np.int64)
    end = np.asarray(rows["end"], dtype=np.int64)
    alerts = raise_alerts(gpu, end, np.full(len(gpu), np.inf), horizon=horizon)
    keys = set(zip(alerts.gpu.tolist(), alerts.raised_at.tolist(), strict=True))
    first = np.array([key in keys for key in zip(gpu.tolist(), end.tolist(), strict=True)], bool)
    rows, gpu, end = rows[first], gpu[first], end[first]
    outcome = _outcomes(timeline, gpu, end, horizon)
    known = outcome != UNKNOWN
    return LabelledAlerts.from_sequences(
        rows["probability"].to_numpy(float)[known],
        outcome[known] == 1,
        rows["position"].to_numpy(float)[known],
    )


def _outcomes(
    timeline: Timeline,
    gpu: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    horizon: int,
) -> npt.NDArray[np.int8]:
    """Return the label of each alert: 1, 0 or unknown."""
    order = np.lexsort((end, gpu))
    outcome = np.empty(len(gpu), dtype=np.int8)
    outcome[order] = label_instances(
        timeline, gpu[order].astype(np.int32), end[order], Nanoseconds(horizon)
    )
    # A horizon that is not over has no outcome: failures become known before health does.
    over = end + horizon <= timeline.records.last
    return np.where(over, outcome, UNKNOWN).astype(np.int8)
