from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.nvidia_smi.query_xml import parse_nvidia_smi_xml
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading

DOCTYPE = '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">'


def document(*gpus: str, before: str = DOCTYPE, attached: int | None = None) -> str:
    inside = "".join(f'<gpu id="00000000:{i:02X}:00.0">{gpu}</gpu>' for i, gpu in enumerate(gpus))
    attached = len(gpus) if attached is None else attached
    driver = f"<driver_version>535.104</driver_version><attached_gpus>{attached}</attached_gpus>"
    return f'<?xml version="1.0" ?>{before}<nvidia_smi_log>{driver}{inside}</nvidia_smi_log>'


def test_missing_gpu_leaves_slots_unknown() -> None:
    readings, _ = parse_nvidia_smi_xml(document("<serial>1</serial>", attached=2))
    assert [reading.slot for reading in readings] == [None]


LOST_LINE = "Unable to determine the device handle for GPU1: 0000:19:00.0: Unknown Error\n"


def test_lost_gpu_lines_before_document() -> None:
    text = LOST_LINE + document("<serial>1</serial>", attached=2)
    readings, unread = parse_nvidia_smi_xml(text)
    assert [reading.serial for reading in readings] == ["1"]
    assert not unread
    assert not parse_nvidia_smi_xml(LOST_LINE)[1]
    _, unread = parse_nvidia_smi_xml("# cron\n" + text)
    assert unread.counts == {"a line before the document": 1}


@pytest.mark.parametrize(
    ("gpu", "lost", "action"),
    [
        ("<serial>1</serial><gpu_recovery_action>None</gpu_recovery_action>", False, "none"),
        ("<serial>1</serial><gpu_recovery_action>Drain and Reset</gpu_recovery_action>", False,
         "drain_and_reset"),
        ("<serial>1</serial><gpu_reset_status><reset_required>Yes</reset_required>"
         "</gpu_reset_status>", False, "reset"),
        ("<serial>1</serial><temperature><gpu_temp>GPU requires reset</gpu_temp></temperature>",
         False, "reset"),
        ("<serial>1</serial><temperature><gpu_temp>GPU is lost</gpu_temp></temperature>", True,
         None),
        ("<serial>1</serial><fb_memory_usage><used>GPU is lost</used></fb_memory_usage>"
         "<temperature><gpu_temp>40 C</gpu_temp></temperature>", False, None),
        ("<serial>Unknown Error</serial><uuid>Unknown Error</uuid>", True, None),
        ("<serial>1</serial><temperature><gpu_temp>Unknown Error</gpu_temp></temperature>", False,
         None),
    ],
)  # fmt: skip
def test_state_text(gpu: str, lost: bool, action: str | None) -> None:
    (reading,), _ = parse_nvidia_smi_xml(document(gpu))
    assert (reading.lost, reading.action, reading.pci) == (lost, action, "0000:00:00")


def numbers(gpu: str) -> dict[str, float]:
    (reading,), unread = parse_nvidia_smi_xml(document(gpu))
    assert not unread
    return dict(reading.numbers)


def ecc(**counts: object) -> str:
    inside = "".join(f"<{name}>{count}</{name}>" for name, count in counts.items())
    return f"<ecc_errors><aggregate>{inside}</aggregate></ecc_errors>"


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("<temperature><gpu_temp>41 C</gpu_temp></temperature>", {"temperature_gpu": 41.0}),
        (
            "<power_readings><power_draw>70.5 W</power_draw></power_readings>",
            {"power_draw": 70.5},
        ),
        (
            "<gpu_power_readings><instant_power_draw>99 W</instant_power_draw>"
            "<average_power_draw>70 W</average_power_draw></gpu_power_readings>",
            {"power_draw": 70.0},
        ),
        (
            "<gpu_power_readings><average_power_draw>N/A</average_power_draw>"
            "<instant_power_draw>99 W</instant_power_draw></gpu_power_readings>",
            {"power_draw": 99.0},
        ),
        (ecc(sram_correctable=2, dram_correctable=3), {"ecc_corrected": 5.0}),
        (ecc(sram_correctable=2, dram_correctable="N/A"), {}),
        (ecc(sram_uncorrectable=1, dram_uncorrectable=4), {"ecc_uncorrected": 5.0}),
        (
            ecc(
                sram_uncorrectable_parity=1,
                sram_uncorrectable_secded=2,
                dram_uncorrectable=4,
            ),
            {"ecc_uncorrected": 7.0},
        ),
        (ecc(single_bit="<total>7</total>"), {"ecc_corrected": 7.0}),
        ("<remapped_rows>N/A</remapped_rows>", {}),
        (
            "<remapped_rows><remapped_row_corr>1</remapped_row_corr>"
            "<remapped_row_unc>2</remapped_row_unc></remapped_rows>",
            {"rows_remapped": 3.0},
        ),
        ("<pci><replay_counter>8</replay_counter></pci>", {"pcie_replays": 8.0}),
        (
            "<pci><pci_gpu_link_info><link_widths><current_link_width>16x</current_link_width>"
            "</link_widths></pci_gpu_link_info></pci>",
            {"pcie_link_width": 16.0},
        ),
    ],
)
def test_every_element_of_a_number(gpu: str, expected: dict[str, float]) -> None:
    assert numbers(gpu) == expected


def test_several_gpus() -> None:
    first = "<serial>1</serial><uuid>GPU-1</uuid><product_name>A100</product_name>"
    second = "<serial>N/A</serial>"
    readings, unread = parse_nvidia_smi_xml(document(first, second))
    assert not unread
    driver = {"driver_version": "535.104"}
    assert readings == [
        GpuReading({}, driver | {"gpu_type": "A100"}, "1", "GPU-1", "0000:00:00", 0),
        GpuReading({}, driver, None, None, "0000:01:00", 1),
    ]


@pytest.mark.parametrize("wrong", ["Unknown Error", "ERR!", "nan", "41 parsecs"])
def test_invalid_numbers_are_counted(wrong: str) -> None:
    gpu = f"<temperature><gpu_temp>{wrong}</gpu_temp></temperature>"
    (reading,), unread = parse_nvidia_smi_xml(document(gpu))
    assert reading.numbers == {}
    assert sum(unread.counts.values()) == 1


@pytest.mark.parametrize(
    "before",
    [
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "x.dtd" [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        "<!doctype nvidia_smi_log [ ]>",
    ],
)
def test_document_with_declarations_is_rejected(before: str) -> None:
    readings, unread = parse_nvidia_smi_xml(document("<serial>1</serial>", before=before))
    assert readings == []
    assert sum(unread.counts.values()) == 1


def test_other_documents_are_rejected() -> None:
    for text in ("", "No devices were found", "<html></html>", document("<a>")):
        readings, unread = parse_nvidia_smi_xml(text)
        assert readings == []
        assert sum(unread.counts.values()) == 1


def test_every_real_document(shared_data: Path) -> None:
    paths = sorted((shared_data / "nvidia_smi_xml").glob("*.xml"))
    assert len(paths) == 12
    for path in paths:
        readings, unread = parse_nvidia_smi_xml(path.read_text())
        assert (len(readings), unread.counts) == (1, {}), path.name
        (reading,) = readings
        needed = {"temperature_gpu", "memory_used", "clock_sm", "pcie_link_width"}
        assert needed <= set(reading.numbers), path.name
        assert reading.pci is not None
        assert "gpu_type" in reading.texts, path.name


def test_values_of_a_real_card(shared_data: Path) -> None:
    text = (shared_data / "nvidia_smi_xml" / "a100-sxm4-v12.xml").read_text()
    (reading,), _ = parse_nvidia_smi_xml(text)
    assert reading.numbers["power_draw"] == 67.03
    assert "rows_remapped" not in reading.numbers
    assert reading.numbers["ecc_corrected"] == 0.0
    assert "utilization_gpu" not in reading.numbers
    assert reading.texts["gpu_type"] == "NVIDIA A100-SXM4-80GB"


SAMPLE = document("<serial>1</serial><temperature><gpu_temp>41 C</gpu_temp></temperature>")


@given(st.integers(0, len(SAMPLE)))
def test_truncated_document_raises_nothing(length: int) -> None:
    readings, unread = parse_nvidia_smi_xml(SAMPLE[:length])
    assert bool(readings) != bool(unread)


PIECES = st.sampled_from([SAMPLE, "<gpu>", "</gpu>", "<nvidia_smi_log>", "&a;", "\0", DOCTYPE, "<"])


@given(st.lists(PIECES | st.text(max_size=6), max_size=8).map("".join))
def test_no_text_raises_anything(text: str) -> None:
    parse_nvidia_smi_xml(text)
