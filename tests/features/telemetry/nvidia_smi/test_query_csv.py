from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.nvidia_smi.faults import lost_gpus
from forewarn.features.telemetry.nvidia_smi.query_csv import (
    parse_query_gpu,
    query_fields,
    supported_fields,
)

HEADER = (
    "index, serial, uuid, pci.bus_id, name, driver_version, mig.mode.current, temperature.gpu, "
    "power.draw [W], utilization.gpu [%], utilization.memory [%], memory.used [MiB], "
    "clocks.current.sm [MHz], ecc.errors.corrected.aggregate.total, remapped_rows.correctable, "
    "remapped_rows.uncorrectable, pcie.link.width.current"
)
ROW = (
    "3, 1650124014249, GPU-1, 00000000:3B:00.0, NVIDIA A100, 535.104, Disabled, 41, 69.85 W, 7 %, "
    "0 %, 1024 MiB, 345 MHz, 12, 2, 1, 16"
)


def captures(shared_data: Path) -> dict[str, list[str]]:
    """Return the tables of `--query-gpu` of each capture, idle and under load."""
    found = {}
    for path in sorted((shared_data / "nvidia_smi_captures").glob("*.txt")):
        text = path.read_text(errors="replace")
        parts = text.split(":: query-gpu (csv")[1:]
        found[path.stem] = [part.split("#" * 80)[1] for part in parts]
    return found


def test_serial_of_zeros_is_missing() -> None:
    (reading,), _ = parse_query_gpu("serial, uuid\n0000000000000, GPU-1\n")
    assert (reading.serial, reading.uuid) == (None, "GPU-1")


def test_table_with_and_without_units() -> None:
    plain = ROW.replace(" W,", ",").replace(" %,", ",").replace(" MiB,", ",").replace(" MHz,", ",")
    for row in (ROW, plain):
        (reading,), unread = parse_query_gpu(f"{HEADER}\n{row}\n")
        assert not unread
        assert reading.numbers == {
            "temperature_gpu": 41.0,
            "power_draw": 69.85,
            "utilization_gpu": 7.0,
            "utilization_memory": 0.0,
            "memory_used": 1024.0,
            "clock_sm": 345.0,
            "ecc_corrected": 12.0,
            "rows_remapped": 3.0,
            "pcie_link_width": 16.0,
        }
        assert reading.texts == {"gpu_type": "NVIDIA A100", "driver_version": "535.104"}
        assert (reading.serial, reading.uuid) == ("1650124014249", "GPU-1")
        assert (reading.pci, reading.slot) == ("0000:3b:00", 3)


@pytest.mark.parametrize(
    "absent",
    ["[N/A]", "N/A", "[Not Supported]", "", "[Requested functionality has been deprecated]"],
)
def test_unsupported_fields_are_absent(absent: str) -> None:
    text = f"index, serial, power.draw [W], temperature.gpu\n0, {absent}, {absent}, 40\n"
    (reading,), unread = parse_query_gpu(text)
    assert reading.numbers == {"temperature_gpu": 40.0}
    assert reading.serial is None
    assert not unread


@pytest.mark.parametrize("wrong", ["[Unknown Error]", "ERR!", "nan", "inf", "12 parsecs", "1e9"])
def test_invalid_numbers_are_counted(wrong: str) -> None:
    (reading,), unread = parse_query_gpu(f"index, power.draw [W]\n0, {wrong}\n")
    assert reading.numbers == {}
    assert sum(unread.counts.values()) == 1


ROWS_IN_WORDS = {
    "0, S1, GPU-1, 00000000:19:00.0, 41, 310 W": (False, None),
    "0, S1, GPU-1, 00000000:19:00.0, [GPU is lost], [GPU is lost]": (True, None),
    "0, [GPU is lost], [GPU is lost], 00000000:19:00.0, 0, 0 W": (True, None),
    "[Unknown Error], [Unknown Error], [Unknown Error], 00000000:19:00.0, 41, 3 W": (False, None),
    "0, Unknown Error, Unknown Error, 00000000:19:00.0, Unknown Error, ERR!": (True, None),
    "0, S1, GPU-1, 00000000:19:00.0, [Unknown Error], [Unknown Error]": (False, None),
    "0, [N/A], GPU-1, 00000000:19:00.0, 41, [Unknown Error]": (False, None),
    "0, S1, GPU-1, 00000000:19:00.0, [GPU requires reset], [N/A]": (False, "reset"),
    "0, S1, GPU-1, 00000000:19:00.0, GPU requires reset., 310 W": (False, "reset"),
}


@pytest.mark.parametrize("row", ROWS_IN_WORDS)
def test_row_with_state_text(row: str) -> None:
    (reading,), _ = parse_query_gpu(
        f"index, serial, uuid, pci.bus_id, temperature.gpu, power.draw [W]\n{row}\n"
    )
    assert (reading.lost, reading.action) == ROWS_IN_WORDS[row]
    assert reading.pci == "0000:19:00"


@pytest.mark.parametrize(
    ("value", "action"),
    [("None", "none"), ("Reset", "reset"), ("Reboot", "reboot"), ("Drain P2P", "drain"),
     ("Drain and Reset", "drain_and_reset"), ("[N/A]", None), ("Bus Reset", "reset"),
     ("Recover IMEX Domain", None)],
)  # fmt: skip
def test_a_recovery_action(value: str, action: str | None) -> None:
    (reading,), _ = parse_query_gpu(f"index, serial, gpu_recovery_action\n0, S1, {value}\n")
    assert reading.action == action
    assert ("recovery_action" in reading.numbers) == (action is not None)


def test_further_numbers_of_a_table() -> None:
    text = (
        "index, ecc.errors.uncorrected.volatile.total, remapped_rows.failure, "
        "clocks_event_reasons.hw_slowdown\n0, 2, Yes, Active\n1, 0, No, Not Active\n"
    )
    readings, unread = parse_query_gpu(text)
    assert [dict(reading.numbers) for reading in readings] == [
        {"ecc_uncorrected": 2.0, "row_remap_failure": 1.0, "throttle_hardware": 1.0},
        {"ecc_uncorrected": 0.0, "row_remap_failure": 0.0, "throttle_hardware": 0.0},
    ]
    assert not unread


def test_table_without_known_column_is_reported() -> None:
    _, unread = parse_query_gpu("index, serial, retired_pages.pending\n0, S1, Yes\n")
    assert unread.counts == {"a table without a known column": 1}


LINES = (
    "Unable to determine the device handle for GPU{n}: {pci}: Unknown Error",
    "Unable to determine the device handle for GPU{n}: {pci}: GPU is lost.  Reboot the system",
    "Unable to determine the device handle for GPU {pci}: Unknown Error",
    "Unable to determine the device handle for GPU{pci}: Unknown Error",
    "Unable to determine the device handle for gpu {pci}: Not Found",
    "Unable to detect the device handle for GPU{pci}: Unknown Error",
)


@given(
    st.sampled_from(LINES),
    st.integers(0, 15),
    st.integers(0, 0xFFFF),
    st.integers(0, 255),
    st.booleans(),
    st.booleans(),
)
def test_every_wording_of_a_lost_gpu(
    line: str, slot: int, domain: int, bus: int, wide: bool, with_table: bool
) -> None:
    pci = f"{domain:0{8 if wide else 4}X}:{bus:02X}:00.0"
    text = line.format(n=slot, pci=pci) + (f"\n{HEADER}\n{ROW}\n" if with_table else "\n")
    assert lost_gpus(text) == (f"{domain:04x}:{bus:02x}:00",)
    readings, unread = parse_query_gpu(text)
    assert (len(readings), bool(unread)) == (with_table, False)


MEASURED = ("temperature.gpu", "power.draw [W]", "utilization.gpu [%]", "memory.used [MiB]")
NAMED = ("serial", "uuid", "name")
WORDS = st.sampled_from(["[Unknown Error]", "[GPU is lost]", "Unknown Error", "[N/A]"])


@given(
    st.lists(WORDS, min_size=len(NAMED), max_size=len(NAMED)),
    st.lists(WORDS | st.just("41"), min_size=len(MEASURED), max_size=len(MEASURED)),
    st.integers(0, len(NAMED)),
)
def test_measured_gpu_is_not_lost(names: list[str], values: list[str], n_names: int) -> None:
    header = ", ".join(("pci.bus_id", *NAMED[:n_names], *MEASURED))
    row = ", ".join(("00000000:19:00.0", *names[:n_names], *values))
    (reading,), unread = parse_query_gpu(f"{header}\n{row}\n")
    assert not (reading.lost and "41" in values)
    if any("lost" in word for word in names[:n_names] + values):
        assert reading.lost or unread


@pytest.mark.parametrize(("n_columns", "lost"), [(1, False), (2, False), (3, True), (4, True)])
def test_three_errors_without_identity_mean_lost(n_columns: int, lost: bool) -> None:
    header = ", ".join(("pci.bus_id", *MEASURED[:n_columns]))
    (reading,), unread = parse_query_gpu(
        f"{header}\n00000000:19:00.0{', [Unknown Error]' * n_columns}\n"
    )
    assert (reading.lost, bool(unread)) == (lost, not lost)


@pytest.mark.parametrize("what", ["set persistence mode", "set power limit", "reset", "apply"])
def test_mode_error_is_no_lost_gpu(what: str) -> None:
    assert not lost_gpus(f"Unable to {what} for GPU 00000000:19:00.0: Unknown Error\n")


@pytest.mark.parametrize(
    "line",
    ["GPU 0000:19:00.0 " * 20_000, "GPU " * 100_000, "GPU" + " " * 400_000, "GPU 1: " * 9**5],
)
def test_long_line_is_parsed_fast(line: str) -> None:
    assert lost_gpus(f"{line}\n{LINES[2].format(pci='0000:3B:00.0')}\n") == ("0000:3b:00",)


def test_sum_with_missing_part_is_missing() -> None:
    text = "index, remapped_rows.correctable, remapped_rows.uncorrectable\n0, 5, [N/A]\n"
    (reading,), _ = parse_query_gpu(text)
    assert "rows_remapped" not in reading.numbers


def test_units_are_converted() -> None:
    text = "index, power.draw [mW], memory.used [GiB], clocks.sm [GHz]\n0, 70000, 2 GiB, 1.5\n"
    (reading,), _ = parse_query_gpu(text)
    assert reading.numbers == {"power_draw": 70.0, "memory_used": 2048.0, "clock_sm": 1500.0}


def test_average_power_is_preferred() -> None:
    text = "index, power.draw.instant [W], power.draw.average [W]\n0, 99 W, 70 W\n1, 99 W, [N/A]\n"
    readings, _ = parse_query_gpu(text)
    assert [reading.numbers["power_draw"] for reading in readings] == [70.0, 99.0]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("No devices were found\n", ()),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", ()),
        (
            "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the "
            "system to recover this GPU\n",
            ("0000:3b:00",),
        ),
        (
            "Unable to determine the device handle for GPU 00000000:AF:00.0: Unknown Error\n",
            ("0000:af:00",),
        ),
    ],
)
def test_messages_in_place_of_a_table(text: str, lost: tuple[str, ...]) -> None:
    readings, unread = parse_query_gpu(text)
    assert readings == []
    assert not unread
    assert lost_gpus(text) == lost


def test_message_before_table_hides_no_gpu() -> None:
    text = f"Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n{HEADER}\n"
    readings, unread = parse_query_gpu(text + ROW)
    assert len(readings) == 1
    assert not unread
    _, unread = parse_query_gpu(f"# taken by cron\n{text}")
    assert unread.counts == {"a line before the table": 1}


def test_every_real_table(shared_data: Path) -> None:
    tables = captures(shared_data)
    assert len(tables) == 10
    for name, found in tables.items():
        for text in found:
            readings, unread = parse_query_gpu(text)
            assert (len(readings), unread.counts) == (1, {}), name
            reading = readings[0]
            needed = {"temperature_gpu", "power_draw", "memory_used", "clock_sm"}
            assert needed <= set(reading.numbers), name
            assert reading.texts["driver_version"] == name.split("__")[2]
            assert ("utilization_gpu" in reading.numbers) != ("mig" in name)


def test_values_of_a_real_card(shared_data: Path) -> None:
    tables = captures(shared_data)["linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01"]
    (reading,), _ = parse_query_gpu(tables[0])
    assert reading.numbers["temperature_gpu"] == 41.0
    assert reading.numbers["power_draw"] == 69.85
    assert reading.numbers["clock_sm"] == 345.0
    assert reading.numbers["rows_remapped"] == 0.0
    assert reading.texts["gpu_type"] == "NVIDIA H100 80GB HBM3"
    assert reading.pci == "0000:00:09"


def test_queried_fields_exist_in_every_driver(shared_data: Path) -> None:
    for path in sorted((shared_data / "nvidia_smi_captures").glob("*.txt")):
        assert set(query_fields()) <= supported_fields(path.read_text(errors="replace")), path.name


@given(st.integers(0, len(HEADER) + len(ROW) + 2))
def test_truncated_table_raises_nothing(length: int) -> None:
    readings, _ = parse_query_gpu(f"{HEADER}\n{ROW}\n"[:length])
    assert len(readings) <= 1


PIECES = st.sampled_from([HEADER, ROW, "\n", ",", '"', "\0", "\r", "[N/A]", "9" * 200_000, "index"])


@given(st.lists(PIECES | st.text(max_size=6), max_size=8).map("".join))
def test_no_text_raises_anything(text: str) -> None:
    parse_query_gpu(text)
    lost_gpus(text)
    supported_fields(text)


@pytest.mark.parametrize(
    "text",
    [
        "2025-03-01T00:10:00Z\nindex, uuid, temperature.gpu\n0, GPU-1, 41\n",
        "Sat Mar  1 00:10:00 UTC 2025\nindex, uuid, temperature.gpu\n0, GPU-1, 41\n",
        "=== 1740787800 ===\nindex, uuid, temperature.gpu\n0, GPU-1, 41\n",
        "2025-03-01T00:10:00Z index, uuid, temperature.gpu\n2025-03-01T00:10:00Z 0, GPU-1, 41\n",
        "index, uuid, temperature.gpu\n2025-03-01 01:10:00 +0100, 0, GPU-1, 41\n",
        "[2025-03-01 00:10:00] index, uuid, temperature.gpu\n[2025-03-01 00:10:00] 0, GPU-1, 41\n",
    ],
)
def test_times_that_scripts_print(text: str) -> None:
    (gpu,), unread = parse_query_gpu(text)
    assert (gpu.time, gpu.slot, gpu.uuid) == (1_740_787_800 * 10**9, 0, "GPU-1")
    assert gpu.numbers == {"temperature_gpu": 41}
    assert not unread


def test_appended_tables_may_have_other_columns() -> None:
    text = "index, uuid, temperature.gpu\n0, GPU-1, 41\nuuid, power.draw [W]\nGPU-1, 99.5 W\n"
    readings, unread = parse_query_gpu(text)
    assert [gpu.numbers for gpu in readings] == [{"temperature_gpu": 41}, {"power_draw": 99.5}]
    assert not unread


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2025/03/01 00:00:00.000", False),
        ("2025-03-01T08:00:00+08:00", True),
        ("2025-03-01T00:00:00Z", True),
        ("2025-03-01 00:00:00", False),
        ("1740787200", True),
    ],
)
def test_time_column_of_a_script_is_read(text: str, utc: bool) -> None:
    (reading,), unread = parse_query_gpu(f"timestamp,uuid,temperature.gpu\n{text},GPU-1,41\n")
    assert (reading.time, reading.utc) == (1_740_787_200 * 10**9, utc)
    assert reading.numbers == {"temperature_gpu": 41.0}
    assert not unread
