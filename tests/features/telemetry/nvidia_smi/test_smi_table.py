from __future__ import annotations

import pytest

from forewarn.features.telemetry.nvidia_smi.smi_table import parse_smi_table

EDGE = "+---------------------------------------------------------------------------------------+"


def table(*rows: str, version: str = "Driver Version: 570.86.10") -> str:
    """Return a table with these rows between its edges."""
    title = f"| NVIDIA-SMI 570.86.10             {version}     CUDA Version: 12.8     |"
    return "\n".join([EDGE, title, EDGE, *rows, EDGE, ""])


FIRST = (
    "|   0  NVIDIA H200                    On  |   00000000:1B:00.0 Off |                    0 |"
)
SECOND = (
    "| N/A   51C    P0            412W /  700W |   70123MiB / 143771MiB |     97%      Default |"
)
OLD = (  # of drivers before 500, with a narrower table
    "|   3  Tesla V100-SXM2...  On   | 00000000:B2:00.0 Off |                    1 |",
    "| N/A   37C    P0    45W / 300W |     11MiB / 16160MiB |      3%      Default |",
)
VALUES = {
    "temperature_gpu": 51,
    "power_draw": 412,
    "memory_used": 70123,
    "utilization_gpu": 97,
}


def test_gpu_has_its_values_and_place() -> None:
    (gpu,), unread = parse_smi_table("Sat Mar  1 00:10:00 2025       \n" + table(FIRST, SECOND))
    assert gpu.numbers == VALUES
    assert (gpu.slot, gpu.pci, gpu.utc) == (0, "0000:1b:00", False)
    assert gpu.texts == {"gpu_type": "NVIDIA H200", "driver_version": "570.86.10"}
    assert gpu.time == 1_740_787_800 * 10**9
    assert not unread


def test_cut_name_of_old_table_is_unknown() -> None:
    (gpu,), _ = parse_smi_table(table(*OLD))
    assert (gpu.slot, gpu.pci, gpu.texts) == (3, "0000:b2:00", {"driver_version": "570.86.10"})
    assert gpu.numbers["power_draw"] == 45


def test_appended_tables_have_their_own_times() -> None:
    stamps = ("=== 2025-03-01T00:10:00+00:00 ===", "Sat Mar  1 12:20:00 AM UTC 2025", "1740788400")
    readings, unread = parse_smi_table("".join(f"{s}\n{table(FIRST, SECOND)}" for s in stamps))
    assert [gpu.time and gpu.time // 10**9 % 86400 for gpu in readings] == [600, 1200, 1200]
    assert all(gpu.utc for gpu in readings)
    assert not unread


def test_time_before_each_line_is_read() -> None:
    lines = table(FIRST, SECOND).splitlines()
    (gpu,), unread = parse_smi_table("\n".join(f"2025-03-01 00:10:00 | {line}" for line in lines))
    assert (gpu.time, gpu.numbers) == (1_740_787_800 * 10**9, VALUES)
    assert not unread


def test_processes_and_parts_are_no_gpus() -> None:
    more = (
        "|=========================================+======================+====================|",
        "|  0    2   0   0  |              26MiB / 40448MiB    | 60    0 | 3   0    3    0    3 |",
        "|    0   N/A  N/A            1696      G   /usr/bin/gnome-shell              176MiB |",
    )
    readings, unread = parse_smi_table(table(FIRST, SECOND, *more))
    assert len(readings) == 1
    assert not unread


def test_kmd_version_is_the_driver() -> None:
    (gpu,), _ = parse_smi_table(table(FIRST, SECOND, version="KMD Version: 610.57.04"))
    assert gpu.texts["driver_version"] == "610.57.04"


@pytest.mark.parametrize("middle", ["      GPU is lost      ", "GPU is lost"])
def test_lost_gpu_has_no_values(middle: str) -> None:
    first = "|   1  ERR!                           ERR! |   00000000:3B:00.0 ERR! |          ERR! |"
    second = f"|ERR!  ERR! ERR!            ERR! /  ERR! |{middle}|    ERR!      Default |"
    (gpu,), unread = parse_smi_table(table(first, second))
    assert (gpu.lost, gpu.pci, gpu.numbers) == (True, "0000:3b:00", {})
    assert not unread


def test_gpu_requires_reset() -> None:
    second = (
        "|ERR!   60C    P0            ERR! /  700W |  GPU requires reset  |    ERR!      Default |"
    )
    (gpu,), _ = parse_smi_table(table(FIRST, second))
    assert (gpu.action, gpu.lost) == ("reset", False)
    assert gpu.numbers["temperature_gpu"] == 60


def test_unread_value_and_missing_line_are_counted() -> None:
    failing = SECOND.replace("412W", "ERR!")
    (gpu,), unread = parse_smi_table(table(FIRST, failing))
    assert "power_draw" not in gpu.numbers
    assert unread.counts == {"power_draw in a table of nvidia-smi is no number": 1}
    readings, unread = parse_smi_table(table(FIRST))
    assert readings == []
    assert unread.counts == {"a GPU of a table of nvidia-smi without its values": 1}
