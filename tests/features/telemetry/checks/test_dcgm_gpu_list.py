from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.checks.dcgm_gpu_list import parse_dcgm_gpu_list
from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files

EDGE = "+--------+--------------------------------------------------------+\n"


def listing(numbers: list[int], name: str = "NVIDIA H100", end: str = "\n") -> str:
    """Return the output for some GPUs."""
    text = f"{len(numbers)} GPUs found.\n{EDGE}| GPU ID | {'Device Information':<54} |\n{EDGE}"
    for n in numbers:
        rows = [
            (n, f"Name: {name}"),
            ("", f"PCI Bus ID: 00000000:{n:02X}:00.0"),
            ("", f"Device UUID: GPU-{n:08x}-1111-2222-3333-444444444444"),
        ]
        text += "".join(f"| {slot:<6} | {what:<54} |\n" for slot, what in rows) + EDGE
    return (text + "0 NvSwitches found.\n+-----------+\n| Switch ID |\n").replace("\n", end)


@given(
    st.lists(st.integers(0, 255), unique=True, max_size=16),
    st.sampled_from(["NVIDIA H100", "<<<NULL>>>", ""]),
    st.sampled_from(["\n", "\r\n", "   \n"]),
)
def test_every_gpu_is_read(numbers: list[int], name: str, end: str) -> None:
    readings, unread = parse_dcgm_gpu_list(listing(numbers, name, end))
    assert [gpu.slot for gpu in readings] == numbers
    assert [gpu.pci for gpu in readings] == [f"0000:{n:02x}:00" for n in numbers]
    assert [int((gpu.uuid or "")[4:12], 16) for gpu in readings] == numbers
    assert all(gpu.texts == ({"gpu_type": name} if "H100" in name else {}) for gpu in readings)
    assert not unread


def test_diagnostics_name_their_gpus_by_the_list() -> None:
    tests = [{"name": "pcie", "results": [{"entity_id": 7, "status": "Fail"}]}]
    diagnostic = json.dumps({"DCGM Diagnostic": {"tests": tests}})
    files = [HostFileText("diag", diagnostic, 10**18), HostFileText("list", listing([7]), None)]
    (event,) = read_host_files("node-1", files).events
    assert event["check"] == "dcgm diag pcie"
    assert event["gpu_uuid"] == "GPU-00000007-1111-2222-3333-444444444444"
