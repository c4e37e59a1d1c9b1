"""Hosts with GPUs of several vendors, from files or agents to one list and one response."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.pipelines.agent.sources import gpu_source_selection
from forewarn.pipelines.cli.main import main

TICK = dt.timedelta(minutes=10)
N_TICKS = 42  # seven hours, of which instances take three
END = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
MOMENTS = [END - TICK * n for n in range(N_TICKS, 0, -1)]
EARLY, LATE = MOMENTS[-14], MOMENTS[-6]  # when something happens
COLUMNS = ("temperature_gpu", "power_draw", "utilization_gpu", "memory_used", "clock_sm")


def nvidia_host(folder: Path, host: int, *, xid: int = 0) -> None:
    """Write the files of a host with two NVIDIA GPUs; an Xid is of its first."""
    lines = ["timestamp, index, serial, pci.bus_id, name, temperature.gpu, power.draw [W], "
             "utilization.gpu [%], memory.used [MiB], clocks.current.sm [MHz], "
             "ecc.errors.uncorrected.aggregate.total"]  # fmt: skip
    lines += [
        f"{at:%Y/%m/%d %H:%M:%S}.000, {gpu}, NV-{host}-{gpu}, 00000000:0{gpu}:00.0, NVIDIA H200, "
        "61, 540.5 W, 91 %, 70000 MiB, 1830 MHz, 0"
        for at in MOMENTS
        for gpu in range(2)
    ]
    (folder / "smi.csv").write_text("\n".join(lines) + "\n")
    lines = [f"[{at:%a %b %e %H:%M:%S %Y}] eth0: up" for at in (MOMENTS[0], MOMENTS[-1])]
    if xid:
        lines.insert(1, f"[{LATE:%a %b %e %H:%M:%S %Y}] NVRM: Xid (PCI:0000:00:00): {xid}, text")
    (folder / "dmesg.log").write_text("\n".join(lines) + "\n")


def amd_host(
    folder: Path, host: int, *, message: str = "", at: dt.datetime = LATE, uncorrected: int = 0
) -> None:
    """Write the files of a host with two AMD GPUs; what happens is of its first."""
    names = [
        {
            "gpu": gpu,
            "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": f"0x{host}A{gpu}"},
            "board": {"product_serial": f"AMD-{host}-{gpu}"},
            "bus": {"bdf": f"0000:0{gpu}:00.0"},
        }
        for gpu in range(2)
    ]
    (folder / "static.json").write_text(json.dumps({"gpu_data": names}))
    for moment in MOMENTS:
        counts = (uncorrected if moment >= at else 0, 0)
        gpus = [amd_metric(gpu, count) for gpu, count in enumerate(counts)]
        path = folder / f"metric_{moment:%Y-%m-%dT%H:%M:%S}.json"
        path.write_text(json.dumps({"gpu_data": gpus}))
    lines = [f"[{end:%a %b %e %H:%M:%S %Y}] eth0: up" for end in (MOMENTS[0], MOMENTS[-1])]
    if message:
        stamp = f"[{at:%a %b %e %H:%M:%S %Y}]"
        lines.insert(1, f"{stamp} amdgpu 0000:00:00.0: amdgpu: {message}")
    (folder / "dmesg.log").write_text("\n".join(lines) + "\n")


def amd_metric(gpu: int, uncorrected: int) -> dict[str, Any]:
    def value(number: float, unit: str) -> dict[str, Any]:
        return {"value": number, "unit": unit}

    return {
        "gpu": gpu,
        "usage": {"gfx_activity": value(91, "%")},
        "power": {"socket_power": value(540.5, "W")},
        "clock": {"gfx_0": {"clk": value(1830, "MHz")}},
        "temperature": {"hotspot": value(61, "C"), "edge": "N/A"},
        "mem_usage": {"used_vram": value(70000, "MB")},
        "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": uncorrected},
    }


def npu_host(folder: Path, host: int, *, code: str = "", at: dt.datetime = LATE) -> None:
    """Write the files of a host with two Ascend NPUs; a fault code is of its first."""
    for npu in range(2):
        board = f"NPU ID : {npu}\nSerial Number : NPU-{host}-{npu}\nChip Count : 1\n"
        (folder / f"board_{npu}.txt").write_text(board)
    for moment in MOMENTS:
        is_ill = bool(code) and moment >= at
        path = folder / f"npu_{moment:%Y-%m-%dT%H:%M:%S}.txt"
        path.write_text(npu_table(2, ill=0 if is_ill else None))
        if is_ill:
            text = f"Health Status : Alarm\nError Code : {code}\nError Information : text\n"
            command = "npu-smi info -t health -i 0 -c 0\n"
            (folder / f"health_{moment:%Y-%m-%dT%H:%M:%S}.txt").write_text(command + text)


def npu_table(count: int, *, ill: int | None = None) -> str:
    """Return the table of `npu-smi info`, with the index of an NPU that is not healthy."""
    lines = [
        "| npu-smi 25.2.0             Version: 25.2.0                           |",
        "| NPU   Name    | Health     | Power(W)    Temp(C)    Hugepages-Usage(page)|",
        "| Chip          | Bus-Id     | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB) |",
    ]
    for npu in range(count):
        health = "Alarm" if npu == ill else "OK"
        lines += [
            f"| {npu}  910B3 | {health} | 540.5   61   0 / 0 |",
            f"| 0 | 0000:0{npu}:00.0 | 91   0 / 0   70000 / 98304 |",
        ]
    return "\n".join(lines) + "\n"


def write_fleet(raw: Path) -> None:
    hosts: dict[str, Callable[[Path], None]] = {
        "nv-1": lambda folder: nvidia_host(folder, 1),
        "nv-2": lambda folder: nvidia_host(folder, 2, xid=63),
        "mi-1": lambda folder: amd_host(folder, 1),
        "mi-2": lambda folder: amd_host(
            folder, 2, message="GPU reset for gfx RAS poison consumption is issued!"
        ),
        "mi-3": lambda folder: amd_host(folder, 3, uncorrected=1),
        "mi-4": lambda folder: amd_host(
            folder, 4, message="2 uncorrectable hardware errors detected in umc block", at=EARLY
        ),
        "npu-1": lambda folder: npu_host(folder, 1),
        "npu-2": lambda folder: npu_host(folder, 2, code="0x8C044E00"),  # FreeRestartNPU
        "npu-3": lambda folder: npu_host(folder, 3, code="0x80E18402", at=EARLY),  # SeparateNPU
    }
    for host, write in hosts.items():
        (raw / host).mkdir(parents=True)
        write(raw / host)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site whose files are imported."""
    folder = tmp_path_factory.mktemp("site")
    write_fleet(folder / "raw")
    (folder / "my.toml").write_text(f'[site]\nrecords = "{folder}/records"\n[respond]\n')
    code = main(["ingest", "--raw", str(folder / "raw"), "--out", str(folder / "records")])
    assert code == 0
    return folder


def records(site: Path) -> pd.DataFrame:
    files = sorted((site / "records").glob("date=*/*.parquet"))
    tables = [pq.read_table(file, partitioning=None).to_pandas() for file in files]
    frame: pd.DataFrame = pd.concat(tables)
    return frame


def test_vendors_have_the_same_columns_and_units(site: Path) -> None:
    frame = records(site)
    assert frame["gpu_serial"].nunique() == 18
    assert set(frame["gpu_type"]) == {"NVIDIA H200", "AMD Instinct MI300X", "Ascend 910B3"}
    for serial, rows in frame.groupby("gpu_serial"):
        assert len(rows) == N_TICKS
        assert [rows[name].unique().tolist() for name in COLUMNS[:4]] == [
            *([61.0], [540.5], [91.0], [70000.0])
        ]
        clocks = rows["clock_sm"].dropna().unique().tolist()
        assert clocks == ([] if str(serial).startswith("NPU") else [1830.0])
    assert frame["xid"].max() == 63
    assert sorted(frame["gpu_error"].dropna().unique()) == [0.0, 2.0, 3.0]


def test_list_ranks_gpus_of_all_vendors(site: Path) -> None:
    lists = site / "lists"
    at = f"{END:%Y-%m-%dT%H:%M:%S}"
    arguments = ["score", "--records", str(site / "records"), "--model", "builtin:rules"]
    assert main([*arguments, "--at", at, "--out", str(lists)]) == 0
    (day,) = lists.glob("date=*")
    table = pd.read_csv(day / "at_risk.csv").sort_values("rank")
    assert set(table["gpu_serial"][:4]) == {"NV-2-0", "AMD-2-0", "AMD-3-0", "NPU-2-0"}
    reasons = dict(zip(table["gpu_serial"], table["reasons"], strict=True))
    assert str(reasons["AMD-2-0"]).startswith("GPU error once this week")
    assert str(reasons["NPU-2-0"]).startswith("GPU error 6 times this week")
    assert table.loc[table["flagged"], "reasons"].notna().all()
    left_out = pd.read_csv(day / "unscored.csv")
    assert set(left_out["reason"]) == {"failed"}
    assert dict(zip(left_out["gpu_serial"], left_out["cause"], strict=True)) == {
        "AMD-4-0": "gpu_error uncorrectable umc",
        "NPU-3-0": "gpu_error 80E18402 SeparateNPU",
    }
    assert left_out["ended_by"].str.contains("healthy telemetry").all()


def test_critical_error_is_a_failure_that_is_answered(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = pq.read_table(site / "records" / "failures.parquet").to_pylist()
    assert {failure["gpu_serial"] for failure in failures} == {"AMD-4-0", "NPU-3-0"}
    capsys.readouterr()
    assert main(["respond", "--once", "--json", "--config", str(site / "my.toml")]) == 0
    decisions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    reasons = {decision["machine"]: decision["reason"] for decision in decisions}
    assert reasons["mi-4"].startswith("gpu_error uncorrectable umc: check")
    assert reasons["mi-2"].startswith("gpu_error poison: drain")
    assert reasons["npu-3"].startswith("gpu_error 80E18402 SeparateNPU: check")
    assert reasons["npu-2"].startswith("check npu-smi health: check")
    assert not {"mi-1", "npu-1"} & {*reasons}


def test_agents_of_a_mixed_host_feed_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = json.dumps(
        [{"gpu": 0, "asic": {"asic_serial": "0xA0"}, "bus": {"bdf": "0000:09:00.0"}}]
    )
    board = "NPU ID : 0\\nSerial Number : NPU-0\\nChip Count : 1"
    outputs = {
        "npu-smi": f"[ $# = 1 ] && echo '{npu_table(1)}' || printf '{board}'",
        "nvidia-smi": "printf 'index, serial, temperature.gpu\\n0, NV-0, 61\\n'",
        "amd-smi": f"[ $1 = static ] && echo '{names}' || echo '{json.dumps([amd_metric(0, 1)])}'",
    }
    for program, script in outputs.items():
        path = tmp_path / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(gpu_source_selection, "_PCI_DEVICES", tmp_path / "pci")
    monkeypatch.delenv("FOREWARN_TOKEN", raising=False)
    policy = tmp_path / "agent.toml"
    (tmp_path / "kern.log").touch()
    policy.write_text(
        f'machine_id = "mixed-1"\nkernel_log = "{tmp_path}/kern.log"\nstate = "{tmp_path}/state"\n'
    )
    assert main(["agent", "--policy", str(policy), "--once"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    drop = tmp_path / "raw" / "mixed-1"
    drop.mkdir(parents=True)
    (drop / "batch.json").write_text(json.dumps({"readings": rows}))
    assert main(["ingest", "--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "records")]) == 0
    frame = records(tmp_path).set_index("gpu_serial")
    assert set(frame.index) == {"NV-0", "0x00000000000000a0", "NPU-0"}
    assert set(frame["temperature_gpu"]) == {61.0}
    assert frame.loc["0x00000000000000a0", "ecc_uncorrected"] == 1
