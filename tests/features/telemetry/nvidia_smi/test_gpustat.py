from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.telemetry.nvidia_smi.gpustat import parse_gpustat

TIME = 1_740_787_200 * 10**9  # 2025-03-01


def output(*temperatures: float | None) -> str:
    gpus = [
        {"index": slot, "uuid": f"GPU-{slot}", "name": "NVIDIA H100, 80GB", "power.draw": 512}
        | {"temperature.gpu": value, "memory.used": 7, "utilization.gpu": 93, "processes": []}
        for slot, value in enumerate(temperatures)
    ]
    shared = {"hostname": "node-1", "driver_version": "550.90", "gpus": gpus}
    return json.dumps({**shared, "query_time": "2025-03-01T00:00:00.250000"}, indent=4)


@given(st.lists(st.one_of(st.none(), st.integers(0, 120)), max_size=8))
def test_every_gpu_is_read(temperatures: list[int | None]) -> None:
    readings, unread = parse_gpustat(output(*temperatures))
    assert [reading.numbers.get("temperature_gpu") for reading in readings] == temperatures
    for slot, reading in enumerate(readings):
        assert (reading.slot, reading.uuid, reading.host) == (slot, f"GPU-{slot}", "node-1")
        assert reading.numbers["power_draw"] == 512
        assert reading.time == TIME + 250_000_000
    assert not unread


def test_appended_outputs_are_read() -> None:
    text = f"{output(41)}\n{output(42, 43)}\n"
    rows = read_host_files(None, [HostFileText("gpus.json", text, None)])
    assert rows.files == {"gpustat": 1}
    assert [row["temperature_gpu"] for row in rows.readings] == [41, 42, 43]
    assert {row["machine_id"] for row in rows.readings} == {"node-1"}
