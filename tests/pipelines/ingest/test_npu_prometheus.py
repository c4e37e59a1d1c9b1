"""A Prometheus server that scrapes npu-exporter and dcgm-exporter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from forewarn.features.time_units import SECOND
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
from forewarn.pipelines.ingest.prometheus_ingest import pull
from forewarn.pipelines.ingest.prometheus_survey import survey_server

START = 1_740_787_200  # 2025-03-01
END = START + 2 * 3600
INTERVAL, STEP = 600, 60
ILL_FROM = START + 3000
SEPARATE, UNKNOWN = 0x80E18402, 0x80FF0001
DIE = "5A036E64-00A07559-5C350CF2-B9D00485-1043010{0}"


def samples() -> str:
    """Return two NPUs, of which the second gets a fault code, and a GPU of NVIDIA."""
    npu = (
        'id="{0}",model_name="910B3-Ascend-V1",pcie_bus_info="0000:C{0}:00.0",vdie_id="'
        + DIE
        + '",container_name="",node="npu-1",instance="10.0.0.7:8082"'
    )
    gpu = 'gpu="0",UUID="GPU-1",Hostname="gn-1",modelName="NVIDIA H200"'
    series = [(f"npu_chip_info_{name}", npu.format(n), value)
              for name, value in (("temperature", 44), ("power", 97.5), ("hbm_used_memory", 3419))
              for n in range(2)]  # fmt: skip
    series.append(("npu_chip_info_error_code", npu.format(1), UNKNOWN))
    series.append(("npu_chip_info_error_code_1", npu.format(1), SEPARATE))
    series.append(("DCGM_FI_DEV_GPU_TEMP", gpu, 61))
    text = ""
    for name in dict.fromkeys(name for name, _, _ in series):
        text += f"# TYPE {name} gauge\n"
        for labels, value in [(labels, value) for of, labels, value in series if of == name]:
            first = ILL_FROM if "error_code" in name else START + STEP
            lines = (f"{name}{{{labels}}} {value} {time}\n" for time in range(first, END, STEP))
            text += "".join(lines)
    return text + "# EOF\n"


def rows(folder: Path, pattern: str) -> list[dict[str, Any]]:
    files = sorted(folder.glob(pattern))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def test_npus_and_gpus_of_a_server(prometheus_over: Callable[[Path], str], tmp_path: Path) -> None:
    (tmp_path / "samples.txt").write_text(samples())
    with closing(PrometheusClient(prometheus_over(tmp_path / "samples.txt"))) as server:
        survey = survey_server(server, END * SECOND)
        landing = Landing(tmp_path / "records", INTERVAL * SECOND)
        pull(server, landing, start=(START + INTERVAL) * SECOND, end=END * SECOND)
    assert survey.gpus == 3
    assert "fault_code" not in survey.missing
    last = {row["gpu_serial"]: row for row in rows(tmp_path / "records", "date=*/*.parquet")}
    assert set(last) == {DIE.format(0), DIE.format(1), "GPU-1"}
    npu = last[DIE.format(1)]
    assert (npu["temperature_gpu"], npu["power_draw"], npu["memory_used"]) == (44, 97.5, 3419)
    assert (npu["machine_id"], npu["gpu_type"], npu["slot"]) == ("npu-1", "Ascend 910B3", 1)
    events = rows(tmp_path / "records", "_events/date=*/*.parquet")
    assert {(event["check"], event["severity"]) for event in events} == {
        ("80E18402 SeparateNPU", "critical"),
        ("80FF0001 unknown level", "error"),
    }
    assert {event["kind"] for event in events} == {"gpu_error"}
    assert {event["timestamp"].timestamp() for event in events} == {ILL_FROM}
    assert {event["gpu_serial"] for event in events} == {DIE.format(1)}
