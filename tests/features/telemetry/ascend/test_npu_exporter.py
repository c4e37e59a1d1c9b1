"""Text of npu-exporter, in the forms of its versions."""

from __future__ import annotations

from typing import Any

from forewarn.features.telemetry.exporter_files import read_exporter_files
from forewarn.features.telemetry.host_files.file_forms import detect_form
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.time_units import MINUTE, SECOND

START = 1_740_787_200 * SECOND
SEPARATE, RESTART, UNKNOWN = 0x80E18402, 0x80E21008, 0x80FF0001
DIE = "5A036E64-00A07559-5C350CF2-B9D00485-1043010{}"


def page(minute: int, chip: int = 0, **values: float) -> str:
    """Return a scrape with the time of the values; memory comes from another cache, later."""
    labels = (
        f'container_name="",id="{chip}",model_name="910B3-Ascend-V1",namespace="",'
        f'pcie_bus_info="0000:C{chip}:00.0",pod_name="",vdie_id="{DIE.format(chip)}"'
    )
    lines = ["# HELP machine_npu_nums Amount of npu installed on the machine."]
    lines += ["# TYPE machine_npu_nums gauge", "machine_npu_nums 8"]
    for name, value in values.items():
        late = 40 if "hbm" in name else 0
        time = (START + minute * MINUTE) // 1_000_000 + late
        lines.append(f"npu_chip_info_{name}{{{labels}}} {value} {time}")
    return "\n".join(lines) + "\n"


def read(*texts: str) -> HostFileRows:
    dropped = HostFileRows()
    files = [HostFileText(str(i), text, None) for i, text in enumerate(texts)]
    read_exporter_files(dropped, "npu01", files, [])
    return dropped


def faults(dropped: HostFileRows) -> list[tuple[Any, ...]]:
    return sorted(
        ((e["timestamp"] - START) // MINUTE, e["check"], e["severity"]) for e in dropped.events
    )


def test_values_and_identity_of_a_npu() -> None:
    text = page(
        0,
        3,
        **{"temperature": 47, "power": 93.4, "utilization": 61, "aicore_current_freq": 1800},
        **{"hbm_used_memory": 3419, "used_memory": 0, "hbm_ecc_total_single_bit_error_cnt": 2},
    )
    form = detect_form(text)
    assert form is not None
    assert form.kind == "metrics"
    rows = read(text).readings
    assert {(r["gpu_uuid"], r["pci"], r["slot"], r["gpu_type"]) for r in rows} == {
        (DIE.format(3), "0000:c3:00", 3, "Ascend 910B3")
    }
    joined: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: row["timestamp"], reverse=True):
        joined |= row
    assert joined["temperature_gpu"] == 47
    assert joined["power_draw"] == 93.4
    assert joined["utilization_gpu"] == 61
    assert joined["clock_sm"] == 1800
    assert rows[1]["memory_used"] == 3419
    assert rows[1]["ecc_corrected"] == 2
    assert "ecc_uncorrected" not in joined


def test_old_versions_name_the_index_alone() -> None:
    old = 'npu_chip_info_temperature{id="2"} 51 1613993498615\n'
    dropped = read(old + 'npu_chip_info_error_code{id="2"} 0 1613993498615\n')
    dropped.name_gpus()
    assert not dropped.events
    assert any("index alone" in why for why in dropped.unread.counts)


def test_fault_codes_begin_and_end() -> None:
    dropped = read(
        page(0, health_status=1),
        page(1, health_status=0, error_code=RESTART),
        page(2, health_status=0, error_code=RESTART, error_code_1=SEPARATE),
        page(3, health_status=0, error_code=SEPARATE),
        page(4, health_status=1),
    )
    assert faults(dropped) == [
        (1, "80E21008 RestartNPU", "critical"),
        (2, "80E18402 SeparateNPU", "critical"),
        (3, "80E21008 RestartNPU", "ok"),
        (4, "80E18402 SeparateNPU", "ok"),
    ]
    assert {event["gpu_uuid"] for event in dropped.events} == {DIE.format(0)}
    assert "fault 80E18402 (SeparateNPU: " in dropped.events[1]["raw"]


def test_unknown_and_signed_codes_are_errors() -> None:
    dropped = read(page(0, error_code=UNKNOWN), page(0, 1, error_code=RESTART - 2**32))
    assert faults(dropped) == [
        (0, "80E21008 RestartNPU", "critical"),
        (0, "80FF0001 unknown level", "error"),
    ]


def test_missing_scrape_ends_no_fault() -> None:
    texts = [page(0, error_code=SEPARATE), page(1, temperature=50), page(2, error_code=SEPARATE)]
    assert faults(read(*texts)) == [(0, "80E18402 SeparateNPU", "critical")]
