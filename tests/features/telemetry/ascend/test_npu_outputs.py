"""Outputs of npu-smi for 310P, 910 and boards with two chips, as host files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.ascend.fault_codes import fault_level
from forewarn.features.telemetry.ascend.smi_output import parse_npu_health, parse_npu_output
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.time_units import SECOND

TIME = 1_740_787_200 * SECOND  # 2025-03-01
HBM = "Chip | Bus-Id | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)"
BOARD = """
        NPU ID                         : {npu}
        Product Name                   : IT21XXXX
        Serial Number                  : 0310{npu}ABC
        Software Version               : 24.1.7
        PCIe Bus Info                  : 0000:C{npu}:00.0
        Chip Count                     : {chips}
"""


def rows_of(*texts: str) -> HostFileRows:
    files = [HostFileText(f"drop-{n}", text, TIME) for n, text in enumerate(texts)]
    return read_host_files("npu-7", files)


def table(*chips: str, heading: str = HBM) -> str:
    lines = ["| npu-smi 24.1.7                 Version: 24.1.7      |"]
    lines += [
        "| NPU   Name | Health | Power(W)    Temp(C)   Hugepages-Usage(page)|",
        f"| {heading} |",
    ]
    return "\n".join([*lines, "+====+====+====+", *chips])


def chip(npu: int, *, health: str = "OK", power: str = "93.5", number: int = 0) -> str:
    return (
        f"| {npu}     910B3       | {health}   | {power}        41        0    / 0       |\n"
        f"| {number}                 | 0000:C{npu + number}:00.0  | 17   0    / 0    3161 / 65536 |"
    )


def row_by_slot(rows: HostFileRows) -> dict[int, dict[str, Any]]:
    return {row["slot"]: row for row in rows.readings}


def test_table_and_board_give_one_reading() -> None:
    row = row_by_slot(rows_of(table(chip(0), chip(3)), BOARD.format(npu=3, chips=1)))[3]
    assert (row["gpu_serial"], row["pci"]) == ("03103ABC", "0000:c3:00")
    assert (row["gpu_type"], row["driver_version"]) == ("Ascend 910B3", "24.1.7")
    assert (row["temperature_gpu"], row["power_draw"]) == (41.0, 93.5)
    assert (row["utilization_gpu"], row["memory_used"]) == (17.0, 3161.0)


@pytest.mark.parametrize("power", ["NA", "-"])
def test_absent_power_is_missing(power: str) -> None:
    ((row,), _) = parse_npu_output(table(chip(1, power=power)))
    assert "power_draw" not in row.numbers


def test_memory_without_hbm_is_read() -> None:
    text = table(
        "| 2       310P3      | OK     | NA           45       0     / 0    |",
        "| 0       0          | 0000:01:00.0    | 3            1529 / 44280   |",
        "| 2       310P3      | OK     | NA           43       0     / 0    |",
        "| 1       1          | 0000:01:00.0    | 0            1412 / 43693   |",
        heading="Chip Device | Bus-Id | AICore(%) Memory-Usage(MB)",
    )
    readings, unread = parse_npu_output(text)
    assert [(gpu.slot, gpu.pci, gpu.numbers["memory_used"]) for gpu in readings] == [
        (2, None, 1529.0),
        (102, None, 1412.0),
    ]
    assert not unread


def test_time_of_the_collection_script_is_read() -> None:
    ((gpu,), _) = parse_npu_output("Datetime: 2025-03-01 00:10:00\n\n" + table(chip(0)))
    assert gpu.time == TIME + 600 * SECOND


def test_processes_are_no_npus() -> None:
    processes = "| 0       0       | 1712733       | python3       | 48954      |"
    readings, unread = parse_npu_output(table(chip(0), processes))
    assert (len(readings), bool(unread)) == (1, False)


def test_values_precede_their_chip() -> None:
    text = "NPU ID : 4\nChip Count : 2\n" + "".join(
        f"HBM Single Bit Aggregate Total Err Cnt : {n + 5}\n"
        f"HBM Single Bit Isolated Pages Count : {n}\n"
        f"HBM Double Bit Isolated Pages Count : 1\nChip ID : {n}\n"
        for n in range(2)
    )
    readings, _ = parse_npu_output(text)
    assert [(gpu.slot, gpu.numbers) for gpu in readings] == [
        (4, {"ecc_corrected": 5.0, "rows_remapped": 1.0}),
        (104, {"ecc_corrected": 6.0, "rows_remapped": 2.0}),
    ]


def common(chip: int, degrees: int) -> str:
    return (
        f"        Chip ID                        : {chip}\n"
        "        Aicore curFreq(MHZ)            : 800\n"
        f"        Temperature(C)                 : {degrees}\n"
        f"        NPU Real-time Power(W)         : {degrees + 20}.5\n\n"
    )


MCU = """\
        Chip Name                      : mcu
        Temperature(C)                 : 31
        NPU Real-time Power(W)         : 12.0
"""


def test_values_after_their_chip_are_not_those_of_the_controller() -> None:
    text = f"NPU ID : 2\nChip Count : 2\n\n{common(0, 51)}{common(1, 52)}{MCU}"
    text += f"NPU ID : 3\nChip Count : 1\n\n{common(0, 53)}{MCU}"
    readings, unread = parse_npu_output(text)
    assert [(gpu.slot, gpu.numbers["temperature_gpu"]) for gpu in readings] == [
        *((2, 51.0), (102, 52.0), (3, 53.0))
    ]
    assert readings[1].numbers == {"temperature_gpu": 52, "power_draw": 72.5, "clock_sm": 800}
    assert not unread


def test_health_of_the_controller_is_not_the_chips() -> None:
    text = "NPU ID : 4\nChip Count : 2\n\nChip ID : 0\nHealth : Warning\n\n"
    text += "Chip ID : 1\nHealth : OK\n\nHealth : Alarm\nChip Name : MCU\n"
    results, _ = parse_npu_health(text)
    assert [(r.gpu and r.gpu.slot, r.severity) for r in results] == [(4, "warning"), (104, "ok")]


@pytest.mark.parametrize("kind", ["HBM", "Memory", "DDR"])
def test_memory_is_a_share_of_its_capacity(kind: str) -> None:
    text = f"NPU ID : 0\n{kind} Capacity(MB) : 65536\n{kind} Usage Rate(%) : 25\nChip ID : 0\n"
    ((gpu,), _) = parse_npu_output(text)
    assert gpu.numbers == {"memory_used": 16384.0}


def test_die_of_one_chip_is_its_uuid() -> None:
    text = "NPU ID : 0\nChip ID : 1\nChip Name : 910B1\nVDie ID : 0AB1 22CD 33EF\n"
    ((gpu,), _) = parse_npu_output(text)
    assert (gpu.slot, gpu.uuid, gpu.names_only) == (100, "0AB1-22CD-33EF", True)


@pytest.mark.parametrize(
    ("word", "severity"),
    [("OK", "ok"), ("Warning", "warning"), ("Alarm", "error"), ("Critical", "critical")],
)
def test_health_of_the_table_is_a_check(word: str, severity: str) -> None:
    rows = rows_of(table(chip(0, health=word)), BOARD.format(npu=0, chips=1))
    (event,) = rows.events
    assert (event["kind"], event["severity"]) == ("check", severity)


HEALTH = "Health Status : Alarm\nError Code : 0x80E0020B, 80E01801\nError Information : HBM\n"


@pytest.mark.parametrize(
    "head",
    ["NPU ID : 2\n", "# npu-smi info -t health -i 2 -c 0\n", "npu-smi info -i 2 -t health\n"],
)
def test_fault_codes_are_errors_of_their_level(head: str) -> None:
    rows = rows_of(head + HEALTH, BOARD.format(npu=2, chips=1))
    events = {event["check"]: event for event in rows.events}
    assert events["80E0020B SeparateNPU"]["severity"] == "critical"
    assert events["80E01801 RestartBusiness"]["severity"] == "warning"
    assert {event["kind"] for event in rows.events} == {"check", "gpu_error"}
    assert events["80E0020B SeparateNPU"]["gpu_serial"] == "03102ABC"


def test_health_of_no_npu_is_noted() -> None:
    rows = rows_of(HEALTH)
    assert not rows.events
    assert any("names no NPU" in why for why in rows.unread.counts)


def test_code_of_two_levels_is_the_graver() -> None:
    assert fault_level("A8028801").name == fault_level("A2301001").name == "SeparateNPU"


@given(st.text(st.sampled_from("|0123 NPUIDChip:/.-OKHealth\n"), max_size=300))
def test_any_text_is_read_without_error(text: str) -> None:
    parse_npu_output(text)
    parse_npu_health(text)
