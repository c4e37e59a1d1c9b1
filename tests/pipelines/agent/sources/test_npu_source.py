"""The agent's source of Ascend NPUs, with a program that prints what npu-smi prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.features.telemetry.telemetry_rows import HostState
from forewarn.features.time_units import HOUR
from forewarn.pipelines.agent.health_changes import HealthChanges
from forewarn.pipelines.agent.sources.gpu_source import HangError, NoSourceError
from forewarn.pipelines.agent.sources.gpu_source_selection import MixedSource, open_source
from forewarn.pipelines.agent.sources.npu_smi import NpuSmi
from forewarn.pipelines.agent.sources.nvidia_smi import NvidiaSmi

WAIT = 60.0  # seconds; enough for an answer on a busy machine
HEAD = """\
+---------------------------------------------------------------------------------------------+
| npu-smi 25.2.0                   Version: 25.2.0                                            |
+---------------------------+---------------+-------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)        Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)     |
+===========================+===============+=================================================+
"""
CHIP = """\
| {npu}     910B3               | {health:13} | 95.1        44             0    / 0             |
| {chip}     {npu}             | 0000:C{npu}:0{chip}.0  | 7     0    / 0      3417 / 65536   |
+===========================+===============+=================================================+
"""
BOARD = """\
	NPU ID                         : $5
	Serial Number                  : SN0$5
	Chip Count                     : 2"""
DIE = """\
	NPU ID                         : $5
	Chip ID                        : $7
	VDie ID                        : 5A0$5$7 00A0 5C35 B9D0 1043"""
FAULT = """\
	Health Status                  : Alarm
	Error Code                     : 0x80E18402
	Error Information              : node type=memory"""
Install = Callable[[str, str], str]


def table(*chips: tuple[int, int, str]) -> str:
    return HEAD + "".join(CHIP.format(npu=npu, chip=chip, health=h) for npu, chip, h in chips)


def npu_smi(*chips: tuple[int, int, str], fault: str = FAULT) -> str:
    """Return a script; it counts its runs in `runs` next to it."""
    cases = ("$2) cat <<END\n" + table(*chips) + "END\n;;").replace("$2)", '"")')
    cases += (
        f'\nboard) if [ -n "$7" ]; then cat <<END\n{DIE}\nEND\nelse cat <<END\n{BOARD}\nEND\nfi;;'
    )
    cases += f"\nhealth) cat <<END\n{fault}\nEND\n;;"
    return f'echo "$*" >> "$0.runs"\ncase "$3" in\n{cases}\nesac'


def test_chips_of_a_board_have_identities(install: Install) -> None:
    program = install("npu-smi", npu_smi((3, 0, "OK"), (3, 1, "OK")))
    source = NpuSmi(program)
    poll = source.read(WAIT)
    assert [(g.uuid, g.serial, g.pci) for g in poll.readings] == [
        ("5A030-00A0-5C35-B9D0-1043", "SN03", "0000:c3:00"),
        ("5A031-00A0-5C35-B9D0-1043", "SN03", "0000:c3:01"),
    ]
    assert poll.readings[0].numbers["memory_used"] == 3417
    assert {result.severity for result in poll.checks} == {"ok"}
    source.read(WAIT)
    runs = Path(f"{program}.runs").read_text().splitlines()
    assert runs.count("info") == 2
    assert len(runs) == 6


def test_fault_codes_of_an_unhealthy_chip(install: Install) -> None:
    program = install("npu-smi", npu_smi((0, 0, "OK"), (1, 0, "Alarm")))
    (fault,) = [r for r in NpuSmi(program).read(WAIT).checks if r.kind == "gpu_error"]
    assert (fault.check, fault.severity) == ("80E18402 SeparateNPU", "critical")
    assert fault.gpu is not None
    assert fault.gpu.serial == "SN01"


def test_error_names_npu_smi(install: Install) -> None:
    broken = install("npu-smi", "echo 'dcmi module initialize failed'; exit 87")
    with pytest.raises(NoSourceError, match="exit code 87: 'dcmi module initialize failed'"):
        NpuSmi(broken).read(WAIT)
    with pytest.raises(HangError, match=r"not respond within 0\.2 s"):
        NpuSmi(install("npu-smi", "exec sleep 1000")).read(0.2)


def test_npu_host_needs_no_nvidia_program(install: Install) -> None:
    install("npu-smi", npu_smi((0, 0, "OK")))
    assert isinstance(open_source("auto", WAIT), NpuSmi)
    assert isinstance(open_source("npu-smi", WAIT), NpuSmi)
    assert isinstance(open_source("nvidia-smi", WAIT), NvidiaSmi)


def test_mixed_host_has_checks_of_npus(install: Install) -> None:
    install("npu-smi", npu_smi((0, 0, "Alarm")))
    install("nvidia-smi", "printf 'index, serial, temperature.gpu\\n0, S0, 40\\n'")
    source = open_source("auto", WAIT)
    assert isinstance(source, MixedSource)
    poll = source.read(WAIT)
    assert [gpu.serial for gpu in poll.readings] == ["S0", "SN00"]
    assert "80E18402 SeparateNPU" in {result.check for result in poll.checks}


def result(serial: str, severity: str, check: str = "health", kind: str = "check") -> CheckResult:
    gpu = GpuReading(serial=serial, slot=0)
    return CheckResult(check, severity, severity, gpu, kind=kind)  # type: ignore[arg-type]


def test_only_changes_of_health_are_events() -> None:
    changes, host = HealthChanges(), HostState("npu01", 1)
    code = result("A", "critical", "80E18402 SeparateNPU", "gpu_error")
    other = result("A", "error", "80FF0000 unknown level", "gpu_error")

    def rows(*results: CheckResult) -> list[tuple[str, str]]:
        found = changes.rows(results, host)
        assert all("slot" not in row for row in found)
        return [(row["check"], row["severity"]) for row in found]

    assert rows(result("A", "ok"), result("B", "ok")) == []
    assert rows(result("A", "error"), code, result("B", "ok")) == [
        ("health", "error"),
        (code.check, "critical"),
    ]
    assert rows(result("A", "error"), code) == []
    assert rows(result("A", "error")) == []  # no time for the codes
    assert rows(result("A", "error"), other) == [(other.check, "error"), (code.check, "ok")]
    assert rows(result("B", "ok")) == []
    host = replace(host, time=host.time + HOUR)
    assert rows(result("A", "error")) == [("health", "error")]  # sent again
    assert rows(result("A", "ok")) == [("health", "ok"), (other.check, "ok")]
