from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.nvidia_smi_csv import (
    lost_gpus,
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


def test_a_serial_of_zeros_is_none() -> None:
    (reading,), _ = parse_query_gpu("serial, uuid\n0000000000000, GPU-1\n")
    assert (reading.serial, reading.uuid) == (None, "GPU-1")


def test_a_table_with_units_and_without() -> None:
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
        assert (reading.pci, reading.slot, reading.mig) == ("0000:3b:00", 3, False)


@pytest.mark.parametrize(
    "absent",
    ["[N/A]", "N/A", "[Not Supported]", "", "[Requested functionality has been deprecated]"],
)
def test_what_a_card_lacks_is_absent(absent: str) -> None:
    text = f"index, serial, power.draw [W], temperature.gpu\n0, {absent}, {absent}, 40\n"
    (reading,), unread = parse_query_gpu(text)
    assert reading.numbers == {"temperature_gpu": 40.0}
    assert reading.serial is None
    assert not unread


@pytest.mark.parametrize(
    "wrong", ["[Unknown Error]", "ERR!", "[GPU requires reset]", "nan", "inf", "12 parsecs", "1e9"]
)
def test_what_is_no_number_is_counted(wrong: str) -> None:
    (reading,), unread = parse_query_gpu(f"index, power.draw [W]\n0, {wrong}\n")
    assert reading.numbers == {}
    assert sum(unread.counts.values()) == 1


def test_one_missing_part_of_a_sum_makes_it_missing() -> None:
    text = "index, remapped_rows.correctable, remapped_rows.uncorrectable\n0, 5, [N/A]\n"
    (reading,), _ = parse_query_gpu(text)
    assert "rows_remapped" not in reading.numbers


def test_units_are_converted() -> None:
    text = "index, power.draw [mW], memory.used [GiB], clocks.sm [GHz]\n0, 70000, 2 GiB, 1.5\n"
    (reading,), _ = parse_query_gpu(text)
    assert reading.numbers == {"power_draw": 70.0, "memory_used": 2048.0, "clock_sm": 1500.0}


def test_the_average_of_the_power_comes_before_the_instant() -> None:
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
def test_what_is_said_instead_of_a_table(text: str, lost: tuple[str, ...]) -> None:
    readings, unread = parse_query_gpu(text)
    assert readings == []
    assert sum(unread.counts.values()) == 1
    assert lost_gpus(text) == lost


def test_a_complaint_before_a_table_hides_no_gpu() -> None:
    text = f"Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n{HEADER}\n"
    readings, unread = parse_query_gpu(text + ROW)
    assert len(readings) == 1
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
            assert reading.mig == ("mig" in name)
            assert reading.texts["driver_version"] == name.split("__")[2]
            assert ("utilization_gpu" in reading.numbers) != reading.mig


def test_values_of_a_real_card(shared_data: Path) -> None:
    tables = captures(shared_data)["linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01"]
    (reading,), _ = parse_query_gpu(tables[0])
    assert reading.numbers["temperature_gpu"] == 41.0
    assert reading.numbers["power_draw"] == 69.85
    assert reading.numbers["clock_sm"] == 345.0
    assert reading.numbers["rows_remapped"] == 0.0
    assert reading.texts["gpu_type"] == "NVIDIA H100 80GB HBM3"
    assert reading.pci == "0000:00:09"


def test_what_is_asked_for_is_known_to_every_driver(shared_data: Path) -> None:
    for path in sorted((shared_data / "nvidia_smi_captures").glob("*.txt")):
        assert set(query_fields()) <= supported_fields(path.read_text(errors="replace")), path.name


@given(st.integers(0, len(HEADER) + len(ROW) + 2))
def test_a_table_cut_short_raises_nothing(length: int) -> None:
    readings, _ = parse_query_gpu(f"{HEADER}\n{ROW}\n"[:length])
    assert len(readings) <= 1


PIECES = st.sampled_from([HEADER, ROW, "\n", ",", '"', "\0", "\r", "[N/A]", "9" * 200_000, "index"])


@given(st.lists(PIECES | st.text(max_size=6), max_size=8).map("".join))
def test_no_text_raises_anything(text: str) -> None:
    parse_query_gpu(text)
    lost_gpus(text)
    supported_fields(text)
