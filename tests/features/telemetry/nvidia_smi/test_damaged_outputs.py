"""Outputs with lines cut, doubled and mixed: nothing raises, and what is read was printed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files

UUID = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
LINES = (
    "Sat Mar  1 00:10:00 2025",
    "1740787800",
    "| NVIDIA-SMI 570.86.10    Driver Version: 570.86.10    CUDA Version: 12.8 |",
    "|   0  NVIDIA H200       On  |   00000000:1B:00.0 Off |                    0 |",
    "| N/A   51C    P0   412W /  700W |   70123MiB / 143771MiB |  97%      Default |",
    "# gpu    pwr  gtemp",
    "# Idx      W      C",
    "    0    412     51",
    f"GPU 0: NVIDIA H200 (UUID: {UUID})",
    "index, uuid, temperature.gpu, power.draw [W]",
    f"0, {UUID}, 51, 412 W",
    "==============NVSMI LOG==============",
    "GPU 00000000:1B:00.0",
    "    Temperature",
    "        GPU Current Temp                  : 51 C",
    '{"DCGM Diagnostic": {"tests": [{"name": "pcie", "results": '
    '[{"entity_id": 0, "status": "Fail"}]}]}}',
    '{"body": {"Overall Health": {"value": "Healthy"}}}',
    "____________________________________________",
    "Start of NVIDIA bug report log file.",
    "uname: Linux gpu-07 5.15 x86_64",
    "",
)  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 90)), max_size=25),
    st.booleans(),
)
def test_damaged_outputs_raise_nothing(lines: list[tuple[str, int]], whole: bool) -> None:
    text = "\n".join(line if whole or length > 60 else line[:length] for line, length in lines)
    rows = read_host_files("node-1", [HostFileText("a", text, 1_740_787_800 * 10**9)])
    for row in rows.readings if whole else []:
        assert row.get("temperature_gpu", 51) == 51
        assert row.get("power_draw", 412) == 412
        assert row.get("gpu_uuid", UUID) == UUID
