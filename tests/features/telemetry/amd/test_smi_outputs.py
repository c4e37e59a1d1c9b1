"""Outputs of amd-smi and rocm-smi in their forms of ROCm 2 to 7, as host files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.amd.smi_values import gpu_from_values, unique_id
from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.time_units import HOUR, SECOND

TIME = 1_740_787_200 * SECOND  # 2025-03-01


def rows_of(*texts: str, time: int | None = TIME) -> list[dict[str, Any]]:
    files = [HostFileText(f"drop-{n}", text, time) for n, text in enumerate(texts)]
    return read_host_files("mi-7", files).readings


def numbers_of(row: dict[str, Any]) -> dict[str, float]:
    names = ("temperature_gpu", "power_draw", "utilization_gpu", "memory_used", "clock_sm")
    return {name: row[name] for name in names if name in row}


def quantity(value: float | str, unit: str) -> Any:
    return value if value == "N/A" else {"value": value, "unit": unit}


def metric(index: int, *, power: float | str = 512, hotspot: float | str = 71) -> dict[str, Any]:
    return {
        "gpu": index,
        "usage": {"gfx_activity": quantity(83, "%"), "vcn_activity": ["N/A", quantity(0, "%")]},
        "power": {"socket_power": quantity(power, "W"), "throttle_status": "N/A"},
        "clock": {
            "gfx_0": {"clk": quantity(1840, "MHz"), "max_clk": quantity(2100, "MHz")},
            "mem_0": {"clk": quantity(900, "MHz")},
        },
        "temperature": {"edge": "N/A", "hotspot": quantity(hotspot, "C"), "mem": quantity(44, "C")},
        "pcie": {"width": 16, "replay_count": 3},
        "ecc": {"total_correctable_count": 12, "total_uncorrectable_count": 1},
        "mem_usage": {"used_vram": quantity(40960, "MB")},
    }


STATIC = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI325X", "asic_serial": "0x4C0A11E2B3D4F566"},
    "bus": {"bdf": "0000:c5:00.0", "max_pcie_width": 16},
    "driver": {"name": "amdgpu", "version": "6.14.14"},
    "board": {"product_serial": "692510001234", "product_name": "AMD Instinct MI325X OAM"},
}
FULL = {"temperature_gpu": 71.0, "power_draw": 512.0, "utilization_gpu": 83.0}
FULL |= {"memory_used": 40960.0, "clock_sm": 1840.0}


@pytest.mark.parametrize("enclosed", [True, False])
def test_metric_and_static_join_by_index(enclosed: bool) -> None:
    documents = [[STATIC], [metric(0)]]
    texts = [json.dumps({"gpu_data": gpus} if enclosed else gpus) for gpus in documents]
    for files in (texts, [texts[0] + "\n" + texts[1]]):
        (row,) = rows_of(*files)
        assert (row["gpu_serial"], row["gpu_uuid"]) == ("692510001234", "0x4c0a11e2b3d4f566")
        assert (row["pci"], row["gpu_type"]) == ("0000:c5:00", "AMD Instinct MI325X")
        assert row["driver_version"] == "6.14.14"
        assert numbers_of(row) == FULL
        assert [row[name] for name in ("ecc_corrected", "ecc_uncorrected", "pcie_replays")] == [
            *(12.0, 1.0, 3.0)
        ]
        assert row["pcie_link_width"] == 16.0


def test_watched_metrics_have_their_own_time() -> None:
    watched = [{"timestamp": 1_760_000_000 + n, **metric(0, power=100 + n)} for n in range(3)]
    text = "'CTRL' + 'C' to stop watching output:\n" + "\n".join(json.dumps([w]) for w in watched)
    rows = rows_of(text, json.dumps([STATIC]), time=None)
    assert [(row["timestamp"] // SECOND, row["power_draw"]) for row in rows] == [
        (1_760_000_000 + n, 100.0 + n) for n in range(3)
    ]


def test_absent_values_are_missing_and_not_zero() -> None:
    (row,) = rows_of(json.dumps([metric(0, power="N/A", hotspot="N/A")]), json.dumps([STATIC]))
    assert "power_draw" not in row
    assert "temperature_gpu" not in row


def test_reading_without_a_name_is_noted() -> None:
    file = HostFileText("metric.json", json.dumps([metric(0)]), TIME)
    read = read_host_files("mi-7", [file])
    assert read.readings == []
    assert any("amd-smi list" in what for what in read.unread.counts)


def test_partitions_are_one_gpu() -> None:
    names = [
        {"gpu": n, "bdf": f"0000:05:00.{n}", "uuid": "abff74a1-0000-1000-80d1-3c23a9580558"}
        for n in range(2)
    ]
    document = json.dumps(names) + json.dumps([metric(0), metric(1, power="N/A")])
    (row,) = rows_of(document)
    assert (row["gpu_uuid"], row["power_draw"]) == ("0xabd13c23a9580558", 512.0)


CARD = {
    "Device Name": "AMD Instinct MI210",
    "Unique ID": "0x77aa11bb22cc33dd",
    "Temperature (Sensor edge) (C)": "39.0",
    "Temperature (Sensor junction) (C)": "47.0",
    "sclk clock speed:": "(1700Mhz)",
    "sclk clock level:": "1",
    "socclk clock speed:": "(1090Mhz)",
    "pcie clock level": "1 (16.0GT/s x8)",
    "Average Graphics Package Power (W)": "211.0",
    "GPU use (%)": "98",
    "VRAM Total Used Memory (B)": str(3 * 1024**3),
    "PCIe Replay Count": "5",
    "Serial Number": "PCB0077-0012",
    "PCI Bus": "0000:A3:00.0",
}
CARD_NUMBERS = {"temperature_gpu": 47.0, "power_draw": 211.0, "utilization_gpu": 98.0}
CARD_NUMBERS |= {"memory_used": 3072.0, "clock_sm": 1700.0}


def test_rocm_smi_json_is_read() -> None:
    document = {"card3": CARD, "system": {"Driver version": "6.7.0"}}
    (row,) = rows_of(json.dumps(document))
    assert numbers_of(row) == CARD_NUMBERS
    assert (row["slot"], row["pci"], row["gpu_serial"]) == (3, "0000:a3:00", "PCB0077-0012")
    assert (row["pcie_link_width"], row["pcie_replays"]) == (8.0, 5.0)
    assert (row["gpu_type"], row["driver_version"]) == ("AMD Instinct MI210", "6.7.0")


def test_rocm_smi_csv_is_the_same() -> None:
    table = ",".join(["device", *CARD]) + "\n" + ",".join(["card3", *CARD.values()]) + "\n"
    (row,) = rows_of("WARNING: a warning, of the tool\n" + table)
    assert numbers_of(row) == CARD_NUMBERS
    assert row["gpu_uuid"] == "0x77aa11bb22cc33dd"


def test_rocm_smi_text_is_the_same() -> None:
    lines = [f"GPU[3]\t\t: {name.removesuffix(':')}: {value}" for name, value in CARD.items()]
    lines = [line.replace("sclk clock speed: (1700Mhz)", "sclk clock level: 2: (1700Mhz)", 1)
             if "sclk clock speed: (1700" in line else line for line in lines]  # fmt: skip
    lines = [line for line in lines if not line.endswith("sclk clock level: 1")]
    (row,) = rows_of("Driver version: 6.7.0\n" + "\n".join(lines) + "\n")
    assert numbers_of(row) == CARD_NUMBERS
    assert row["driver_version"] == "6.7.0"


CONCISE = {
    "GPU  Temp   AvgPwr  SCLK     MCLK     Fan     Perf  PwrCap  VRAM%  GPU%": (
        "0    61.0c  144.0W  1502Mhz  1001Mhz  21.96%  auto  250.0W   48%   77%"
    ),
    "GPU  Temp   AvgPwr  SCLK    MCLK    Fan     Perf  PwrCap  SCLK OD  MCLK OD  GPU%": (
        "0    61.0c  144.0W  1502Mhz  167Mhz  28.63%  auto  250.0W    0%       0%       77%"
    ),
    "Device  [Model : Revision]    Temp    Power  Partitions  SCLK  MCLK  Fan  Perf  PwrCap  VRAM%"
    "  GPU%": "0  [0x0b0c : 0x00]  61.0°C  144.0W  N/A, N/A  1502Mhz  1600Mhz  0%  auto  300.0W  0%"
    "  77%",
    "Device  Node  IDs   Temp  Power  Partitions  SCLK  MCLK  Fan  Perf  PwrCap  VRAM%  GPU%": (
        "0  1  0x74b5,   31947  61.0°C  144.0W  NPS1, SPX, 0  1502Mhz  900Mhz  0%  auto  750.0W"
        "  95%  77%"
    ),
}


@pytest.mark.parametrize("heading", CONCISE)
def test_concise_tables_of_rocm_smi_are_read(heading: str) -> None:
    text = f"==== ROCm System Management Interface ====\n{heading}\n=====\n{CONCISE[heading]}\n"
    (row,) = rows_of(text, json.dumps([STATIC]))
    expected = {"temperature_gpu": 61.0, "power_draw": 144.0, "utilization_gpu": 77.0}
    assert numbers_of(row) == expected | {"clock_sm": 1502.0}
    assert row["gpu_serial"] == "692510001234"


MONITOR = {
    "GPU  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE": (
        "  0  305 W   49 °C   43 °C  2106 MHz   97 %    1 %    N/A    0 %    3.0/191.7 GB"
    ),
    "GPU  XCP  POWER  PWR_CAP   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  VRAM_USED  VRAM_TOTAL": (
        "  0    0  305 W   750 W   49 °C   43 °C  2106 MHz   97 %    1 %    3072 MB   196592 MB"
    ),
}


@pytest.mark.parametrize("heading", MONITOR)
def test_monitor_of_amd_smi_is_read(heading: str) -> None:
    processes = "\nPROCESS INFO:\nGPU   NAME   PID   VRAM_MEM\n  0   N/A   226   2.8 GB\n"
    (row,) = rows_of(f"{heading}\n{MONITOR[heading]}\n{processes}", json.dumps([STATIC]))
    expected = {"temperature_gpu": 49.0, "power_draw": 305.0, "utilization_gpu": 97.0}
    assert numbers_of(row) == expected | {"memory_used": 3072.0, "clock_sm": 2106.0}


def test_table_of_amd_smi_is_read() -> None:
    text = """
| AMD-SMI 26.2.0+021c61fc      amdgpu version: 6.16.6   ROCm version: 7.1.1    |
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
| 0000:9f:00.0 AMD Instinct MI308X VF | 2 %      57 °C   4           341/750 W |
|   0       0       2        SPX/NPS1 | 31 %       N/A          2850/196288 MB |
| 0000:1b:00.0 ...Instinct MI308X OAM | N/A        N/A   0           N/A/750 W |
|   1       0       1        SPX/NPS1 | N/A        N/A        149820/196592 MB |
"""
    first, second = rows_of(text)
    expected = {"temperature_gpu": 57.0, "power_draw": 341.0, "utilization_gpu": 31.0}
    assert numbers_of(first) == expected | {"memory_used": 2850.0}
    assert (first["ecc_uncorrected"], first["gpu_type"]) == (4.0, "AMD Instinct MI308X VF")
    assert (numbers_of(second), "gpu_type" in second) == ({"memory_used": 149820.0}, False)


def test_text_of_amd_smi_is_read() -> None:
    names = (
        "GPU: 0\n    BDF: 0000:23:00.0\n    UUID: 67ff740f-0000-1000-80e6-b5bb3c3ce0db\n\n"
        "AI_NIC: 0\n    BDF: 0000:e2:00.0\n    PRODUCT_NAME: A 400G\n"
    )
    values = (
        "GPU: 0\n    USAGE:\n        GFX_ACTIVITY: 66 %\n        VCN_ACTIVITY: [N/A, N/A,\n"
        "            N/A]\n    POWER:\n        SOCKET_POWER: 20 W\n    CLOCK:\n        GFX_0:\n"
        "            CLK: 14 MHz\n            MAX_CLK: 2482 MHz\n    TEMPERATURE:\n"
        "        EDGE: 37 °C\n        HOTSPOT: 42 °C\n        MEM: 46 °C\n"
    )
    (row,) = rows_of(names, values)
    expected = {"temperature_gpu": 42.0, "power_draw": 20.0, "utilization_gpu": 66.0}
    assert numbers_of(row) == expected | {"clock_sm": 14.0}
    assert (row["pci"], row["gpu_uuid"]) == ("0000:23:00", "0x67e6b5bb3c3ce0db")


def test_appended_outputs_of_a_script_are_joined() -> None:
    names = "GPU: 0\n    BDF: 0000:23:00.0\n    UUID: 67ff740f-0000-1000-80e6-b5bb3c3ce0db\n\n"
    heading, row = next(iter(MONITOR.items()))
    counts = "gpu,total_correctable_count,total_uncorrectable_count,bdf\n0,7,1,0000:23:00.0\n"
    script = f"Sat Mar  1 01:00:00 UTC 2025\n{names}{heading}\n{row}\n{counts}"
    (reading,) = rows_of(script, time=None)
    assert (reading["gpu_uuid"], reading["timestamp"]) == ("0x67e6b5bb3c3ce0db", TIME + HOUR)
    assert (reading["temperature_gpu"], reading["ecc_uncorrected"]) == (49.0, 1.0)


def test_edge_stands_in_for_the_hotspot() -> None:
    reading = gpu_from_values({"temperature/edge": "33 C", "temperature/hotspot": "N/A"}, Unread())
    assert reading.numbers == {"temperature_gpu": 33.0}


def test_blocks_are_summed_without_a_total() -> None:
    counts = {f"ecc_blocks/{block}/correctable_count": "2" for block in ("umc", "gfx")}
    assert gpu_from_values(counts, Unread()).numbers == {"ecc_corrected": 4.0}


@given(st.integers(1, 2**64 - 1))
def test_every_form_of_an_id_is_one(number: int) -> None:
    digits = f"{number:016x}"
    uuid = f"{digits[:2]}ff74a1-0000-1000-80{digits[2:4]}-{digits[4:]}"
    forms = {unique_id(form) for form in (f"0x{number:X}", f"0x{digits}", uuid, uuid.upper())}
    assert forms == {f"0x{digits}"}


@given(st.text(max_size=300))
def test_any_text_is_read_without_error(text: str) -> None:
    for start in ("GPU: 0\n    USAGE:\n", "GPU[0]\t\t: ", '[{"gpu": 0, "power": ', "gpu,bdf\n"):
        read_host_files("mi-7", [HostFileText("drop", start + text, TIME)])
