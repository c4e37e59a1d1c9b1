from __future__ import annotations

import pytest

from forewarn.features.telemetry.nvidia_smi.device_monitor import (
    is_device_monitor,
    parse_device_monitor,
)

NAMES = "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk"
UNITS = "# Idx      W      C      C      %      %      %      %    MHz    MHz"
ROWS = (
    "    0    512     61     72     93     41      0      0   2619   1755",
    "    1     70     33",
)
NUMBERS = {
    "power_draw": 512,
    "temperature_gpu": 61,
    "utilization_gpu": 93,
    "utilization_memory": 41,
    "clock_sm": 1755,
}
TIME = 1_740_787_800 * 10**9  # 2025-03-01 00:10


def test_rows_have_index_and_units() -> None:
    text = "\n".join([NAMES, UNITS, ROWS[0], NAMES, UNITS, ROWS[0].replace("    0", "    7", 1)])
    readings, unread = parse_device_monitor(text)
    assert [gpu.slot for gpu in readings] == [0, 7]
    assert readings[0].numbers == NUMBERS
    assert not unread


def test_memory_errors_and_replays_are_read() -> None:
    text = (
        "# gpu     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci\n"
        "# Idx     MB     MB     MB   errs   errs   errs   MB/s   MB/s\n"
        "    2   4096      2      0      5      1      3     10     20\n"
        "    3   4096      2      0      -      -      -     10     20\n"
    )
    readings, unread = parse_device_monitor(text)
    assert readings[0].numbers == {
        "memory_used": 4096,
        "ecc_corrected": 5,
        "ecc_uncorrected": 1,
        "pcie_replays": 3,
    }
    assert readings[1].numbers == {"memory_used": 4096}
    assert not unread


@pytest.mark.parametrize(
    ("names", "units", "row"),
    [
        (
            "#Date       Time        gpu    pwr  gtemp",
            "#YYYYMMDD   HH:MM:SS    Idx      W      C",
            " 20250301   00:10:00      0    512     61",
        ),
        ("#Date, Time, gpu, pwr, gtemp", "#YYYYMMDD, HH:MM:SS, Idx, W, C",
         "20250301, 00:10:00, 0, 512, 61"),
        ("# gpu  pwr  gtemp", "# Idx  W  C", "2025-03-01T01:10:00+01:00 0 512 61"),
        ("2025-03-01 00:10:00\n# gpu  pwr  gtemp", "# Idx  W  C", " 0 512 61"),
        ("Sat Mar  1 00:03:00 2025\n#Time gpu  pwr  gtemp", "#HH:MM:SS Idx  W  C",
         "00:10:00 0 512 61"),
    ],
)  # fmt: skip
def test_time_of_columns_prefix_or_line_before(names: str, units: str, row: str) -> None:
    (gpu,), unread = parse_device_monitor(f"{names}\n{units}\n{row}\n")
    assert (gpu.time, gpu.slot) == (TIME, 0)
    assert gpu.numbers == {"power_draw": 512, "temperature_gpu": 61}
    assert not unread


def test_unknown_unit_and_cut_line_are_counted() -> None:
    text = "\n".join(["# gpu  pwr  gtemp", "# Idx  hp  C", " 0 512 61", ROWS[1], " 0"])
    readings, unread = parse_device_monitor(text)
    assert [gpu.numbers.get("power_draw") for gpu in readings] == [None, None]
    assert unread.counts == {
        "pwr of dmon is no number in a known unit": 2,
        "a line that does not fit the heading of dmon": 1,
    }


def test_processes_are_not_devices() -> None:
    assert is_device_monitor(NAMES)
    assert not is_device_monitor("# gpu         pid   type     sm    mem    command\n")
