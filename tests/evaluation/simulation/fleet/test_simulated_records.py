from __future__ import annotations

import numpy as np
import pandas as pd

from forewarn.evaluation.simulation.fleet.collection_gaps import CollectionGaps
from forewarn.evaluation.simulation.fleet.counters import COUNTERS, CounterDay
from forewarn.evaluation.simulation.fleet.drivers import Drivers
from forewarn.evaluation.simulation.fleet.fault_process import (
    BLIND_FAILED,
    SEEN_FAILED,
    SILENT_FAILED,
)
from forewarn.evaluation.simulation.fleet.fleet_hardware import Devices, make_layout
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.evaluation.simulation.fleet.sensors import Readings
from forewarn.evaluation.simulation.fleet.simulated_records import INTERVAL, record_table

N = 16
SHAPE = (N, RECORDS_PER_DAY)
BEGIN = np.datetime64("2025-03-01", "ns")


def table() -> tuple[pd.DataFrame, Devices]:
    layout = make_layout(N, seed=0)
    devices = Devices(layout, 0, BEGIN)
    device = np.repeat(devices.current[:, None], RECORDS_PER_DAY, axis=1)
    device[3, 100:] = devices.replace(3, 0)
    status = np.zeros(SHAPE, np.int8)
    status[3, 40:50], status[3, 50:100] = SEEN_FAILED, SILENT_FAILED
    status[5, 120:] = BLIND_FAILED
    collected = CollectionGaps(layout, 0).advance(0, [])
    collected.arrives[:] = True
    cells = np.arange(N * RECORDS_PER_DAY).reshape(SHAPE)
    readings = Readings(*(cells.astype("f4") + column for column in range(6)))
    counters = CounterDay(dict.fromkeys(COUNTERS, cells), {}, np.full(SHAPE, 16))
    records = record_table(
        BEGIN,
        layout,
        devices,
        device=device,
        status=status,
        collected=collected,
        readings=readings,
        counters=counters,
        xid=(cells % 7).astype(np.int16),
        drivers=Drivers(layout, 0).advance(0),
    )
    return records, devices


def test_cells_end_in_their_rows() -> None:
    records, devices = table()
    at = ((records["timestamp"] - pd.Timestamp(BEGIN, tz="UTC")) / INTERVAL).astype(int)
    position = {serial: number for number, serial in enumerate(devices.serials)}
    positions = records["gpu_serial"].astype("str").map(position).replace(N, 3)
    cells = positions * RECORDS_PER_DAY + at
    assert (records["xid"] == cells % 7).all()
    for column, name in enumerate(("temperature_gpu", "power_draw", "utilization_gpu")):
        read = records[name].notna()
        assert (records[name][read] == (cells + column)[read]).all()
    known = records["pcie_replays"].notna()
    assert (records["pcie_replays"][known] == cells[known]).all()
    assert (records["slot"] == positions % 8).all()


def test_failed_silent_and_blind_gpus_appear() -> None:
    records, devices = table()
    gone = records[records["gpu_serial"] == devices.serials[3]]
    assert gone["failure"].tolist() == [0] * 40 + [1] * 10
    new = records[records["gpu_serial"] == devices.serials[N]]
    assert new["failure"].tolist() == [0] * 44
    assert set(new["machine_id"]) == set(gone["machine_id"])
    blind = records[records["gpu_serial"] == devices.serials[5]]
    assert blind["failure"].sum() == RECORDS_PER_DAY - 120
    hidden = blind[blind["failure"] == 1]
    assert hidden[["power_draw", "pcie_link_width", "ecc_corrected"]].isna().all(axis=None)
    assert len(records) == N * RECORDS_PER_DAY - 50
