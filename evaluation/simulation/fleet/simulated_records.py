"""Builds the table of one day's records of the simulated fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from forewarn.evaluation.simulation.fleet.collection_gaps import CollectionDay
from forewarn.evaluation.simulation.fleet.counters import COUNTERS, CounterDay
from forewarn.evaluation.simulation.fleet.drivers import DriverDay
from forewarn.evaluation.simulation.fleet.fault_process import BLIND_FAILED, SILENT_FAILED, UP
from forewarn.evaluation.simulation.fleet.fleet_hardware import GPU_MODELS, Devices, FleetLayout
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.evaluation.simulation.fleet.sensors import Readings
from forewarn.features.array_types import BoolArray, Int8Array, Int64Array
from forewarn.features.telemetry.telemetry_rows import GAUGES

__all__ = ["INTERVAL", "RECORD_COLUMNS", "record_table"]

INTERVAL = np.timedelta64(10, "m")
"""Time between two records of a GPU."""

_COUNTS = (*COUNTERS, "pcie_link_width")

RECORD_COLUMNS = (
    "gpu_serial",
    "timestamp",
    "failure",
    "machine_id",
    "slot",
    *GAUGES,
    *_COUNTS,
    "xid",
    "gpu_type",
    "driver_version",
    "rack",
    "data_center",
    "expiration_date",
)
"""Columns of the records, in this order."""


def _category(codes: Int64Array, names: Sequence[str | None]) -> pd.Categorical:
    """Return names by number as a categorical with the names that occur, sorted; None is null."""
    occurs = np.flatnonzero(np.bincount(codes, minlength=len(names))).tolist()
    known = sorted({name for number in occurs if (name := names[number]) is not None})
    position = {name: number for number, name in enumerate(known)}
    new = np.full(len(names), -1)
    for number in occurs:
        new[number] = position.get(names[number] or "", -1)
    return pd.Categorical.from_codes(new[codes], categories=pd.Index(known, dtype="str"))


@dataclass(frozen=True, slots=True)
class _Cells:
    """The collected records, by time and then by serial, as cells of the day's matrices."""

    flat: Int64Array
    position: Int64Array
    device: Int64Array

    def gather(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Return a matrix's values at the cells."""
        return values.reshape(-1)[self.flat]


def _cells(arrives: BoolArray, device: Int64Array, serials: Sequence[str]) -> _Cells:
    rank = np.empty(len(serials), np.int64)
    rank[np.argsort(np.array(serials))] = np.arange(len(serials))
    position, record = np.nonzero(arrives)
    order = np.argsort(record * len(serials) + rank[device[position, record]])
    position, record = position[order], record[order]
    return _Cells(position * RECORDS_PER_DAY + record, position, device[position, record])


def _names(
    cells: _Cells, layout: FleetLayout, devices: Devices, drivers: DriverDay
) -> dict[str, pd.Categorical]:
    """Return the string columns."""
    position = cells.position
    return {
        "gpu_serial": _category(cells.device, devices.serials),
        "machine_id": _category(layout.machine[position], layout.machine_names),
        "gpu_type": _category(layout.model[position], [model.name for model in GPU_MODELS]),
        "driver_version": _category(drivers.version.reshape(-1)[cells.flat], drivers.names),
        "rack": _category(layout.rack[position], layout.rack_names),
        "data_center": _category(layout.centre[position], layout.centre_names),
        "expiration_date": _category(cells.device, devices.expirations),
    }


def record_table(
    begin: np.datetime64,
    layout: FleetLayout,
    devices: Devices,
    *,
    device: Int64Array,
    status: Int8Array,
    collected: CollectionDay,
    readings: Readings,
    counters: CounterDay,
    xid: npt.NDArray[np.int16],
    drivers: DriverDay,
) -> pd.DataFrame:
    """Return the records of one day, sorted by time and then by serial.

    Parameters
    ----------
    begin : numpy.datetime64
        Midnight UTC.
    layout : FleetLayout
    devices : Devices
    device, status, xid : ndarray of shape (n_positions, RECORDS_PER_DAY)
        Number of the board, state of the position, its Xid.
    collected : CollectionDay
    readings : Readings
    counters : CounterDay
    drivers : DriverDay
    """
    cells = _cells(collected.arrives & (status != SILENT_FAILED), device, devices.serials)
    times = (begin + np.arange(RECORDS_PER_DAY) * INTERVAL).astype("datetime64[ns]")
    columns: dict[str, object] = {
        "timestamp": pd.DatetimeIndex(times, tz="UTC")[cells.flat % RECORDS_PER_DAY],
        "failure": (cells.gather(status) != UP).astype(np.int8),
        "slot": layout.slot[cells.position].astype(np.int16),
        "xid": cells.gather(xid),
        **_names(cells, layout, devices, drivers),
    }
    blind = status == BLIND_FAILED
    for name in GAUGES:
        missing = collected.is_null() | blind
        columns[name] = cells.gather(np.where(missing, np.float32(np.nan), getattr(readings, name)))
    counts = {**counters.totals, "pcie_link_width": counters.link_width}
    for name in _COUNTS:
        missing = cells.gather(collected.is_null() | blind).astype(bool)
        columns[name] = pd.arrays.IntegerArray(cells.gather(counts[name]).astype(np.int64), missing)
    return pd.DataFrame({name: columns[name] for name in RECORD_COLUMNS}, copy=False)
