"""Lines of amdgpu about errors, resets and retired pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.amd.driver_errors import DriverErrors
from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log

GPU = "amdgpu 0000:8d:00.0: "
PREFIXES = (GPU, GPU + "amdgpu: ", GPU + "amdgpu: {7}", GPU + "{7}", GPU + "amdgpu: [drm] *ERROR* ")
CASES = {
    "3 correctable hardware errors detected in umc block": ("notice", "correctable umc", 3),
    "socket: 2, die: 1, 4 new correctable hardware errors detected in gfx block": (
        *("notice", "correctable gfx", 4),
    ),
    "socket: 2, die: 1 1 deferred hardware errors detected in total in umc block": (
        *("warning", "deferred umc", 1),
    ),
    "6 uncorrectable hardware errors detected in xgmi_wafl block": (
        *("critical", "uncorrectable xgmi_wafl", 6),
    ),
    "uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!": (
        *("critical", "fatal error", 1),
    ),
    "GPU reset begin!. Source:  2": ("error", "reset", 1),
    "GPU reset(4) succeeded!": ("ok", "reset", 1),
    "GPU reset(4) failed": ("critical", "reset", 1),
    "GPU reset end with ret = -19": ("critical", "reset", 1),
    "ring sdma2 timeout, signaled seq=17, emitted seq=19": ("warning", "ring timeout", 1),
    "RAS records:262 exceed threshold:256": ("critical", "bad pages", 1),
    "RAS records:240 exceeds 90% of threshold:256": ("warning", "bad pages", 1),
    "Poison is created, no user action is needed.": ("notice", "poison", 1),
    "GPU reset for sdma RAS poison consumption is issued!": ("error", "poison", 1),
    "device lost from bus!": ("critical", "lost", 1),
    "Fatal error during GPU init": ("critical", "start", 1),
}
NO_ERRORS = (
    "0 uncorrectable hardware errors detected in umc block",
    f"{32 * 0xFFFF} uncorrectable hardware errors detected in umc block",  # of a suspended GPU
    "no uncorrectable hardware errors detected in umc block",
    "ring comp_1.0.1 timeout, but soft recovered",
    "GPU reset succeeded, trying to resume",
    "RAS: optional ras ta ucode is not available",
    "GPU reset end with ret = 0",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("body", CASES)
def test_errors_have_severity_and_address(prefix: str, body: str) -> None:
    error = DriverErrors().error(prefix + body)
    assert error is not None
    assert (error.severity, error.check, error.count) == CASES[body]
    assert (error.kind, error.pci) == ("gpu_error", "0000:8d:00")


@pytest.mark.parametrize("body", NO_ERRORS)
def test_other_lines_are_no_errors(body: str) -> None:
    assert DriverErrors().error(GPU + "amdgpu: " + body) is None


def test_line_without_address_names_no_gpu() -> None:
    line = "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted"
    error = DriverErrors().error(line)
    assert error is not None
    assert (error.pci, error.check) == (None, "ring timeout")
    assert DriverErrors().error("GPU reset begin!") is None  # of another driver


def test_programs_cannot_write_errors() -> None:
    quoted = "gpuwatch[77]: amdgpu 0000:8d:00.0: amdgpu: GPU reset(4) failed"
    log = parse_kernel_log(f"Nov 20 10:00:00 gn7 {quoted}\n", before=10**18)
    assert log.events == []
    assert DriverErrors().error("amdgpu: GPU res[7]: segfault at 0 ip 0") is None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_repeated_totals_count_once(new: list[int]) -> None:
    """A tool that queries the counters makes the driver print their totals again."""
    errors, total, counted = DriverErrors(), 0, 0
    for count in new:
        total += count
        for _ in range(2):
            line = f"{GPU}amdgpu: {total} correctable hardware errors detected in umc block"
            error = errors.error(line)
            counted += error.count if error is not None else 0
    assert counted == total


def test_total_after_new_errors_adds_nothing() -> None:
    errors, part = DriverErrors(), f"{GPU}amdgpu: {{3}}socket: 1, die: 0, "
    first = errors.error(f"{part}2 new uncorrectable hardware errors detected in umc block")
    again = errors.error(f"{part}2 uncorrectable hardware errors detected in total in umc block")
    assert first is not None
    assert (first.count, again) == (2, None)
