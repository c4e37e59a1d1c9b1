from __future__ import annotations

import pytest

from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.telemetry.nvidia_smi.bug_report import read_bug_report
from forewarn.features.time_units import HOUR, SECOND

MIDNIGHT = 1_740_787_200 * SECOND  # 2025-03-01
RULE = "____________________________________________\n\n"
UUID = "GPU-11112222-3333-4444-5555-666677778888"


def report(*sections: str, date: str = "Sat Mar  1 02:30:00 CET 2025", zone: str = "+0100") -> str:
    """Return a report of these sections, made at 01:30 UTC."""
    start = (
        "Start of NVIDIA bug report log file.  Please include this file, along\n"
        f"with a description.\n\nnvidia-bug-report.sh Version: 1\n\nDate: {date}\n"
        "uname: Linux gpu-07 5.15.0-91-generic #1 SMP x86_64 GNU/Linux\ncommand line flags: \n\n"
    )
    issue = (
        "*** /etc/issue\n*** ls: -rw-r--r-- 1 root root 26 2024-02-05 10:00:00.000000000 "
        f"{zone} /etc/issue\nx\n\n"
    )
    end = "\nEnd of NVIDIA bug report log file.\n"
    return RULE + RULE.join([start, issue, *sections, end])


QUERY = f"""/usr/bin/nvidia-smi --query


==============NVSMI LOG==============

Timestamp                                 : Sat Mar  1 02:29:50 2025
Driver Version                            : 550.54.15

Attached GPUs                             : 1
GPU 00000000:C1:00.0
    Product Name                          : NVIDIA H100 PCIe
    Serial Number                         : 1650000012345
    GPU UUID                              : {UUID}
    Temperature
        GPU Current Temp                  : 47 C

"""
LOGS = """Scanning kernel log files for NVIDIA kernel messages:

  /var/log/messages:
Mar  1 01:05:00 gpu-07 kernel: NVRM: loading NVIDIA UNIX Driver

  journalctl -b -0:
Mar 01 02:10:00 gpu-07 kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid=7, GPU has fallen off the bus.
Mar 01 02:11:00 gpu-07 sudo[9]: grep NVRM: Xid (PCI:0000:c1:00): 62, pid=7

"""
INFORMATION = f"""*** /proc/driver/nvidia/./gpus/0000:c1:00.0/information
Model: \t\t NVIDIA H100 PCIe
GPU UUID: \t {UUID}
Bus Location: \t 0000:c1:00.0

"""


def test_parts_have_host_time_and_zone() -> None:
    found = read_bug_report(report(QUERY, "lspci\n\n00:00.0 bridge\n", LOGS, INFORMATION))
    assert (found.host, found.offset) == ("gpu-07", HOUR)
    assert found.time == MIDNIGHT + 90 * 60 * SECOND
    assert len(found.parts) == 4


def test_readings_and_xids_of_a_report() -> None:
    text = report(QUERY, LOGS, INFORMATION)
    rows = read_host_files(None, [HostFileText("nvidia-bug-report.log.gz", text, None)])
    (reading,) = rows.readings
    assert (reading["machine_id"], reading["gpu_serial"]) == ("gpu-07", "1650000012345")
    assert reading["temperature_gpu"] == 47
    assert reading["timestamp"] == MIDNIGHT + (89 * 60 + 50) * SECOND
    (xid,) = rows.events
    assert (xid["code"], xid["machine_id"], xid["pci"]) == (79, "gpu-07", "0000:c1:00")
    assert xid["timestamp"] == MIDNIGHT + 70 * 60 * SECOND
    assert not rows.unread


@pytest.mark.parametrize(
    ("date", "zone"),
    [
        ("Fri Feb 28 10:30:00 PM -03 2025", "-0300"),
        ("Sat Mar  1 01:30:00 UTC 2025", "+0000"),
        ("Sat 01 Mar 2025 07:00:00 AM IST", "+0530"),
    ],
)
def test_dates_of_other_locales(date: str, zone: str) -> None:
    assert read_bug_report(report(QUERY, date=date, zone=zone)).time == MIDNIGHT + 90 * 60 * SECOND


def test_folder_names_the_host_first() -> None:
    file = HostFileText("gn01/nvidia-bug-report.log.gz", report(QUERY), None)
    (reading,) = read_host_files("gn01", [file]).readings
    assert reading["machine_id"] == "gn01"


def test_lost_gpu_of_a_report_has_its_address() -> None:
    failed = (
        "/usr/bin/nvidia-smi --query\n\n"
        "Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error\n"
    )
    rows = read_host_files(None, [HostFileText("r.log", report(failed, INFORMATION), None)])
    (lost,) = rows.events
    assert (lost["kind"], lost["pci"], lost["machine_id"]) == ("lost", "0000:c1:00", "gpu-07")
    (board,) = rows.boards
    assert (board["pci"], board["gpu_uuid"]) == ("0000:c1:00", UUID)
    assert not rows.unread
