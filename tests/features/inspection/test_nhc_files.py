"""Files of Node Health Check: what is understood, and what is listed."""

from __future__ import annotations

import pytest

from forewarn.features.inspection.nhc_files import parse_nhc_file

# In the form of the sample that comes with Node Health Check.
SAMPLE = """
# NHC Configuration File
* || export NHC_RM=slurm
* || check_hw_cpuinfo 2 12 24
* || check_hw_physmem 32gb 32gb 5%
 * || check_hw_physmem_free 5GB
* || check_hw_eth eth1   # the storage network
* || check_hw_ib 400 mlx5_0:1
* || check_hw_ib 40
* || check_fs_mount_rw -f /
* || check_fs_mount -s nas:/home -t nfs -f /home
* || check_fs_free /tmp 20%
* || check_fs_ifree / 1k
* || check_file_test -r -w -x -d -k /tmp /var/tmp
* || check_ps_service -u root -S sshd
* || check_ps_loadavg $((2*HW_CORES))
* || check_ps_loadavg 48
* || check_dmi_data_match "BIOS Information: Version: 2.0.1"
login* || check_ps_daemon crond
/^node-[0-9]+$/ || check_ps_daemon slurmd
{node-[1-4]} || check_hw_swap 0 0 3%
!node-* || check_hw_eth eth9
"""


def test_sample_is_understood_or_listed() -> None:
    result = parse_nhc_file(SAMPLE, "node-3")
    assert [line.split(": ", 1)[1] for line in result.others] == [
        "check_hw_ib 40",
        "check_fs_mount -s nas:/home -t nfs -f /home",
        "check_ps_loadavg $((2*HW_CORES))",
        'check_dmi_data_match "BIOS Information: Version: 2.0.1"',
    ]
    names = [name.split("_", 2)[2] for name in result.checks]
    assert names == [
        *("hw_cpuinfo_1", "hw_cpuinfo_2", "hw_cpuinfo_3", "hw_physmem", "hw_physmem_free"),
        *("hw_eth", "hw_ib_1", "hw_ib_2", "fs_mount_rw", "fs_free", "fs_ifree"),
        *("file_test_1", "file_test_2", "ps_service", "ps_loadavg", "ps_daemon", "hw_swap"),
    ]
    assert all(check.when == ("nhc",) for check in result.checks.values())


def test_limits_are_those_of_the_file() -> None:
    result = parse_nhc_file(SAMPLE, "node-3")
    checks = {name.split("_", 2)[2]: check for name, check in result.checks.items()}
    memory = checks["hw_physmem"].limit
    assert memory is not None
    assert memory.min == pytest.approx(32 * 2**20 * 0.95)
    assert memory.max == pytest.approx(32 * 2**20 * 1.05)
    assert checks["fs_free"].value.args == ("space_share", "/tmp")
    assert checks["fs_ifree"].limit is not None
    assert checks["fs_ifree"].limit.min == 1000.0
    assert checks["ps_service"].value.args == ("sshd",)
    assert checks["file_test_1"].value.args == ("rwxdk", "/tmp")


@pytest.mark.parametrize(
    ("pattern", "machine", "applies"),
    [
        ("*", "a", True),
        ("n?", "n1", True),
        ("n?", "n10", False),
        ("/^n1/", "n10", True),
        ("/(/", "n1", False),
        ("{n[1-3]}", "n3", True),
        ("{n[1-3]}", "n4", False),
        ("!n1", "n1", False),
        ("!n1", "n2", True),
    ],
)
def test_pattern_of_machines(pattern: str, machine: str, applies: bool) -> None:
    result = parse_nhc_file(f"{pattern} || check_ps_daemon x", machine)
    assert bool(result.checks) == applies


@pytest.mark.parametrize(
    "check",
    [
        "check_hw_eth ../../etc/passwd",
        "check_ps_daemon $(reboot)",
        "check_fs_free /tmp lots",
        'check_file_test -r "unclosed',
        "check_hw_physmem",
        "check_cmd_output -m x rm -rf /",
    ],
)
def test_what_is_not_understood_does_not_run(check: str) -> None:
    result = parse_nhc_file(f"* || {check}", "n1")
    assert result.checks == {}
    assert result.others == [f"line 1: {check}"]
