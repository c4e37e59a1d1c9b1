"""Messages for files that hosts have and that no parser reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.telemetry.host_files.unsupported_files import describe_text

# First lines of each tool, and a word of what is read instead.
TOOLS = {
    "ipmitool sel": ("  1f | 02/03/25 | 10:11:12 UTC | Memory #0x21 | ECC | Asserted\n", "kernel"),
    "ipmitool sdr": ("Inlet Temp | 24 degrees C      | ok\nFAN7       | no reading | ns\n", "-q"),
    "ipmitool sensor": ("PS1_In | 9.000 | Watts | ok | na | na | na | na | na | na\n", "-q"),
    "Redfish": ('{"@odata.id": "/redfish/v1/Systems/1", "Members": []}', "kernel"),
    "a table of `dcgmi`": ("+-----+-----+\n| GROUPS    |\n| 2 groups found. |\n", "discovery"),
    "dcgmproftester": ("Worker 0:0[1004]: TensorEngineActive: generated ???\n", "diag -j"),
    "nvidia-smi topo": ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-55\n", "-q"),
    "nvidia-smi nvlink": (
        "GPU 0: NVIDIA H100 (UUID: GPU-aaaaaaaa-1111-2222-3333-444444444444)\n"
        "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n", "-L"),
    "nvidia-smi vgpu": ("GPU 00000000:3B:00.0\n    Active vGPUs       : 1\n", "-q"),
    "nvidia-smi stats": ("0, gpuUtil, 1740787200000001, 7\n", "--query-gpu"),
    "gpustat": ("n1  Sat Mar  1 00:00:00 2025\n[0] H100 | 41'C, 7 % | 9 / 81559 MB |\n", "--json"),
    "an exporter of AMD": ('gpu_gfx_activity{gpu_id="3",serial_number="7"} 55\n', "amd-smi"),
    "npu-smi info watch": (
        "NpuID(Idx)  ChipId(Idx) Pwr(W)  Temp(C)  AI Core(%)\n1   0   88.0   33   0\n", "npu-smi"),
    "npu-smi info -m": (
        "\tNPU ID     Chip ID     Chip Logic ID\n\t0   0   0\n", "board"),
    "nvtop": ('[\n  {\n   "device_name": "H100",\n   "gpu_util": "3%"\n  }\n]\n', "--query-gpu"),
    "fabric manager": ("[Mar 01 2025 00:00:00] [ERROR] [tid 7] NVSwitch fatal error\n", "kernel"),
    "ibstat": ("CA 'mlx5_3'\n\tCA type: MT4129\n", "/sys/class/infiniband"),
    "a port that is not named": ("=== ./link_downed ===\n7\n\n", "/sys/class/infiniband"),
    "EDAC": ("/sys/devices/system/edac/mc/mc1/ce_count\n7\n", "kernel"),
    "rasdaemon": ("No Memory errors.\n\nMCE events:\n1 2025-03-01 00:00:00 error\n", "kernel"),
    "mcelog": ("Hardware event. This is not a software error.\nMCE 0\nCPU 7 BANK 3\n", "kernel"),
    "kernel messages without times": ("NVRM: Xid (PCI:0000:3b:00): 79, pid=7\n", "dmesg -T"),
    "lspci": ("3b:00.0 3D controller: NVIDIA Corporation GH100\n\tControl: I/O-\n", "-q"),
    "Slurm": ("JobID           JobName      State\n------------ ---------- -----\n", "sacctmgr"),
    "another system": ("Copyright (c) 1992-2025 The FreeBSD Project.\n", "Linux"),
    "Prometheus": ('{"status": "success", "data": {"resultType": "matrix", "result": []}}', "URL"),
    "sosreport": ("sosreport (version 4.7)\n\nThis command collects\n", "dmesg"),
    "an archive": ("\ufffd7zXZ\0\0\x04", "unpacked"),
    "a binary file": ("\ufffd\ufffd\x01abc\ufffd\x02" * 9, "text"),
}  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS)
def test_message_names_tool_and_what_is_read(tool: str) -> None:
    text, instead = TOOLS[tool]
    rows = read_host_files("node-1", [HostFileText("node-1/file", text, None)])
    ((what, number),) = rows.unread.counts.items()
    assert number == 1
    assert rows.unread.examples[what] == "node-1/file"
    head, _, rest = what.partition(", which is not read; ")
    assert head.startswith("looks like ")
    assert tool in head
    assert instead in rest
    assert rest.endswith(" would be")
    assert (rows.readings, rows.events) == ([], [])


@given(st.sampled_from(sorted(TOOLS)), st.integers(0, 3), st.sampled_from(["\n", "\r\n"]))
def test_blank_lines_before_change_nothing(tool: str, blank: int, end: str) -> None:
    text = TOOLS[tool][0].replace("\n", end)
    assert tool in describe_text(end * blank + text)


def test_unknown_text_stays_unknown() -> None:
    assert describe_text("a note of a colleague\n") == "a file of unknown kind"
