"""The join of readings, events and the CMDB to records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.array_types import Int64Array
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.telemetry.telemetry_rows import (
    COUNTERS,
    GAUGES,
    HOST_NUMBERS,
    OPTIONAL_NUMBERS,
)
from forewarn.features.xid_catalogue import APPLICATION, DEGRADED, FATAL
from forewarn.features.xid_severity import severity

__all__ = ["RECORDS", "build_records", "event_ticks", "reading_ticks"]

# The columns of formats.md, section 1, in that order; further columns of the CMDB follow.
RECORDS = pa.schema(
    [
        ("gpu_serial", pa.string()),
        ("timestamp", pa.timestamp("ns", "UTC")),
        ("machine_id", pa.string()),
        ("slot", pa.int32()),
        *((name, pa.float64()) for name in GAUGES),
        *((name, pa.int64()) for name in (*COUNTERS, "pcie_link_width", "xid")),
        ("gpu_type", pa.string()),
        ("driver_version", pa.string()),
        ("rack", pa.string()),
        ("data_center", pa.string()),
        ("expiration_date", pa.string()),
        *((name, pa.float64()) for name in (*HOST_NUMBERS, *OPTIONAL_NUMBERS)),
    ]
)
# A collection round at the full minute takes a moment; a reading this late still belongs to it.
_DELAY_DIVISOR = 20
_MAX_COLUMNS = ("row_remap_failure", "recovery_action", GPU_ERROR)
# Severity of a GPU error on the scale of Xids; corrected errors are counted elsewhere.
_GPU_ERROR_SEVERITIES = {"warning": APPLICATION, "error": DEGRADED, "critical": FATAL}
_LAST_COLUMNS = (
    *("machine_id", "slot", "pcie_link_width", *COUNTERS, "gpu_type", "driver_version"),
    *("energy_consumption", "nvlink_errors"),
)
_MEAN_COLUMNS = (
    *GAUGES,
    *HOST_NUMBERS,
    *(name for name in OPTIONAL_NUMBERS if name not in (*_MAX_COLUMNS, *_LAST_COLUMNS)),
)
_MEASURED_COLUMNS = (*GAUGES, *COUNTERS, *HOST_NUMBERS, *OPTIONAL_NUMBERS, "pcie_link_width", "xid")
_KEYS = ("gpu_serial", "timestamp")


def reading_ticks(table: pa.Table, interval: int) -> Int64Array:
    """Return the end of the interval of each reading; a delay of a twentieth is ignored."""
    return event_ticks(table, interval, late=interval // _DELAY_DIVISOR)


def event_ticks(table: pa.Table, interval: int, late: int = 0) -> Int64Array:
    """Return the end of the interval (end - interval, end] of each event.

    Parameters
    ----------
    table : pyarrow.Table
    interval : int
        Nanoseconds.
    late : int
        Nanoseconds after an end that still belong to its interval.
    """
    time = table["timestamp"].cast(pa.int64()).to_numpy()
    ticks: Int64Array = -((late - time) // interval) * interval
    return ticks


def build_records(
    readings: pa.Table,
    events: pa.Table,
    attributes: pa.Table,
    *,
    interval: int,
    machines: pa.Table | None = None,
) -> pa.Table:
    """Return one record per GPU and interval that has a reading.

    Gauges are averaged over the interval. Failed row remappings and requested recovery actions take
    the maximum; counters and everything else take the last value. `xid` is the most severe Xid of
    the interval; without one it is 0 if the kernel log was read, else null. So is `gpu_error`, the
    severity of the gravest error of a GPU without Xids, in RECORDS if there is any.

    Parameters
    ----------
    readings, events : pyarrow.Table
        With serials; rows without one are skipped. Events of other intervals are ignored.
    attributes : pyarrow.Table
        Of the CMDB: `gpu_serial` without duplicates, and attributes. They override what a GPU
        reports about itself, except `machine_id` and `slot`.
    interval : int
        Nanoseconds.
    machines : pyarrow.Table, optional
        Of a CMDB of machines: `machine_id` without duplicates, and attributes of their GPUs, which
        those of the GPU itself override.

    Returns
    -------
    pyarrow.Table
        RECORDS and the other columns of `attributes`, sorted by serial and time. Of
        OPTIONAL_NUMBERS only columns with a value are included.
    """
    readings = readings.filter(pc.is_valid(readings["gpu_serial"]))
    records = _with_event_columns(_by_tick(readings, interval), events, interval)
    if machines is not None:
        records = _with_attributes(records, machines, "machine_id")
    records = _with_attributes(records, attributes, "gpu_serial")
    records = records.sort_by([(name, "ascending") for name in _KEYS])
    empty = {n for n in OPTIONAL_NUMBERS if records[n].null_count == len(records)}
    others = sorted(set(records.column_names) - set(RECORDS.names))
    return records.select([*(n for n in RECORDS.names if n not in empty), *others])


def _by_tick(readings: pa.Table, interval: int) -> pa.Table:
    readings = readings.sort_by("timestamp")
    ticks = pa.array(reading_ticks(readings, interval)).cast(RECORDS.field("timestamp").type)
    readings = readings.set_column(
        readings.schema.get_field_index("timestamp"), "timestamp", pa.chunked_array([ticks])
    )
    ways = [(name, "mean") for name in _MEAN_COLUMNS] + [(name, "last") for name in _LAST_COLUMNS]
    ways += [(name, "max") for name in _MAX_COLUMNS]
    grouped = readings.group_by(list(_KEYS), use_threads=False).aggregate(
        [*ways, ("log_read", "any")]
    )
    suffixed = [f"{name}_{way}" for name, way in (*ways, ("log_read", "any"))]
    names = [*_KEYS, *(name for name, _ in ways), "log_read"]
    return grouped.select([*_KEYS, *suffixed]).rename_columns(names)


def _with_event_columns(records: pa.Table, events: pa.Table, interval: int) -> pa.Table:
    """Replace `log_read` by `xid` and `gpu_error`, the gravest events of each record."""
    worst = _worst_xids(events, interval)
    records = records.join(worst, list(_KEYS), join_type="left outer", use_threads=False)
    none = pc.if_else(records["log_read"], pa.scalar(0, pa.int32()), None)
    records = records.append_column("xid", pc.coalesce(records["code"], none)).drop(["code"])
    errors = _worst_gpu_errors(events, interval)
    if len(errors):
        records = records.drop([GPU_ERROR]).join(
            errors, list(_KEYS), join_type="left outer", use_threads=False
        )
        index = records.schema.get_field_index(GPU_ERROR)
        column = pc.coalesce(records[GPU_ERROR], none.cast(pa.float64()))
        records = records.set_column(index, GPU_ERROR, column)
    return records.drop(["log_read"])


def _worst_gpu_errors(events: pa.Table, interval: int) -> pa.Table:
    """Return `gpu_serial`, `timestamp` and the severity of the gravest error of a GPU."""
    known = pc.is_in(events["severity"], pa.array(list(_GPU_ERROR_SEVERITIES)))
    of_gpu = pc.and_(pc.equal(events["kind"], GPU_ERROR), pc.is_valid(events["gpu_serial"]))
    events = events.filter(pc.and_(known, of_gpu))
    ticks = pa.array(event_ticks(events, interval)).cast(RECORDS.field("timestamp").type)
    values = [float(_GPU_ERROR_SEVERITIES[s]) for s in events["severity"].to_pylist()]
    table = pa.table(
        {
            "gpu_serial": events["gpu_serial"],
            "timestamp": ticks,
            GPU_ERROR: pa.array(values, pa.float64()),
        }
    )
    worst = table.group_by(list(_KEYS), use_threads=False).aggregate([(GPU_ERROR, "max")])
    return worst.select([*_KEYS, f"{GPU_ERROR}_max"]).rename_columns([*_KEYS, GPU_ERROR])


def _worst_xids(events: pa.Table, interval: int) -> pa.Table:
    """Return `gpu_serial`, `timestamp` and `code` of the most severe Xid, the later of equal ones.

    An Xid that the driver reports as fatal is fatal.
    """
    events = events.filter(
        pc.and_(pc.equal(events["kind"], "xid"), pc.is_valid(events["gpu_serial"]))
    )
    events = events.filter(pc.is_valid(events["code"])).sort_by("timestamp")
    grave = severity(events["code"].to_numpy().astype(np.float32))
    grave[pc.fill_null(pc.equal(events["severity"], "fatal"), False).to_numpy()] = FATAL
    ticks = pa.array(event_ticks(events, interval)).cast(RECORDS.field("timestamp").type)
    table = pa.table(
        {"gpu_serial": events["gpu_serial"], "timestamp": ticks, "code": events["code"]}
    ).take(np.argsort(grave, kind="stable"))
    worst = table.group_by(list(_KEYS), use_threads=False).aggregate([("code", "last")])
    return worst.select([*_KEYS, "code_last"]).rename_columns([*_KEYS, "code"])


def _with_attributes(records: pa.Table, attributes: pa.Table, key: str) -> pa.Table:
    """Join the CMDB; of a column that both tables have one value wins where it is known."""
    names = [n for n in attributes.column_names if n not in (key, *_KEYS, *_MEASURED_COLUMNS)]
    joined = records.join(
        attributes.select([key, *names]),
        key,
        join_type="left outer",
        right_suffix=" of cmdb",
        use_threads=False,
    )
    columns = {}
    for name in dict.fromkeys((*RECORDS.names, *records.column_names, *names)):
        kind = RECORDS.field(name).type if name in RECORDS.names else pa.string()
        sources = [n for n in (name, f"{name} of cmdb") if n in joined.column_names]
        if name not in ("machine_id", "slot"):
            sources.reverse()
        known = [joined[source].cast(kind, safe=False) for source in sources]
        columns[name] = pc.coalesce(*known) if known else pa.nulls(len(joined), kind)
    return pa.table(columns)
