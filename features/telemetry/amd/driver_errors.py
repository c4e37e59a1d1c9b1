"""Errors that AMD's driver amdgpu reports in kernel logs, which have no number as Xids have.

Forms of the lines: Linux `drivers/gpu/drm/amd/amdgpu` (`amdgpu_ras.c`, `amdgpu_ras_eeprom.c`,
`amdgpu_device.c`, `amdgpu_job.c`, `nbio_v7_4.c`) and `drivers/gpu/drm/amd/pm/swsmu`. The driver
resets a GPU after an uncorrectable error (kernel documentation of amdgpu, "RAS Reboot Behavior").
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from forewarn.features.telemetry.checks.check_result import CheckSeverity
from forewarn.features.telemetry.parsers.gpu_reading import parse_pci_address
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR, HardwareError

__all__ = ["DriverErrors"]

# What the driver, its DRM layer and RAS events put before a message. Messages without an address
# are about some GPU of the host.
_SOURCE = re.compile(
    r"(?=amdgpu|\[drm)(?:amdgpu (?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): )?"
    r"(?:amdgpu: )?(?:\[drm(?::\w[\w.]* \[amdgpu\]\]|\]) ?)?(?:\{\d+\} ?)?(?:\*ERROR\* )?"
)
_COUNT = re.compile(
    r"(?P<part>socket: ?\d+, ?die: ?\d+,? ?)?(?P<count>\d{1,18}) (?P<new>new )?"
    r"(?P<class>correctable|uncorrectable|deferred) hardware errors? detected in "
    r"(?P<total>total in )?(?P<block>\w+) block",
    re.IGNORECASE,
)
# An error of poisoned data that nothing used yet is deferred.
_CLASSES: dict[str, CheckSeverity] = {
    **{"correctable": "notice", "deferred": "warning"},
    **{"uncorrectable": "critical"},
}
_PATTERNS: tuple[tuple[str, str, CheckSeverity], ...] = (
    (r"uncorrectable hardware error ?\(\w+\) detected", "fatal error", "critical"),
    (r"GPU reset begin", "reset", "error"),
    (r"GPU reset\(\d+\) succeeded", "reset", "ok"),
    (r"GPU reset(?:\(\d+\))? failed|GPU reset end with ret = -", "reset", "critical"),
    (r"GPU recovery failed|ASIC reset failed|GPU mode\d reset failed|mode\d reset failed",
     "reset", "critical"),
    (r"device wedged, needs recovery", "reset", "critical"),
    (r"ring \S+ timeout(?!.*soft recovered)", "ring timeout", "warning"),
    (r"RAS records: ?\d+ exceeds? 90%", "bad pages", "warning"),
    (r"RAS records: ?\d+ exceeds? threshold", "bad pages", "critical"),
    (r"Saved bad pages \(?\d+\)? reaches threshold|.{0,40}\bbad page threshold exceed",
     "bad pages", "critical"),
    (r"Poison is created", "poison", "notice"),
    (r"RAS poison is consumed|.{0,40}\bpoison consumption\b", "poison", "error"),
    (r"device lost from bus|GPU .{0,40}fallen off the bus", "lost", "critical"),
    (r"Fatal error during GPU init", "start", "critical"),
    (r"probe of \S+ failed with error", "start", "critical"),
    (r"ERROR: GPU (?:over temperature|HW critical temperature)", "temperature", "critical"),
    (r"WARN: GPU is throttled", "throttled", "warning"),
    (r"SMU: I'm not done with your", "firmware", "error"),
    (r"MES failed to respon", "firmware", "warning"),
)  # fmt: skip
_FORMS = tuple(
    (re.compile(pattern, re.IGNORECASE), check, severity) for pattern, check, severity in _PATTERNS
)
# A counter of a GPU that is suspended or off the bus reads as all ones, in each of its channels.
_ALL_ONES = 0xFFFF
_PROBE = re.compile(r"probe of (?P<pci>\S+) failed")


@dataclass(slots=True)
class DriverErrors:
    """Reader of errors, a line at a time.

    A count is of new errors, or of all errors since the driver was loaded, which it prints with
    each query of a tool. Only what exceeds the count of an earlier line is an error.
    """

    _totals: dict[tuple[str | None, ...], int] = field(default_factory=dict)

    def error(self, message: str) -> HardwareError | None:
        """Return the error that a kernel message reports; None if it reports none.

        Parameters
        ----------
        message : str
            Without the prefix of its line.

        Examples
        --------
        >>> errors = DriverErrors()
        >>> line = "amdgpu 0000:c1:00.0: 2 correctable hardware errors detected in umc block"
        >>> errors.error(line).count, errors.error(line)
        (2, None)
        """
        source = _SOURCE.match(message)
        if source is None or not source.end():
            return None
        body, pci = message[source.end() :], parse_pci_address(source["pci"] or "")
        if count := _COUNT.match(body):
            return self._counted(count, pci)
        for pattern, check, severity in _FORMS:
            if pattern.match(body):
                probe = _PROBE.match(body)
                pci = parse_pci_address(probe["pci"]) if probe and pci is None else pci
                return HardwareError(GPU_ERROR, severity, pci, check=check)
        return None

    def _counted(self, match: re.Match[str], pci: str | None) -> HardwareError | None:
        """Return the errors of a block that no earlier line counted."""
        severity, block = _CLASSES[match["class"].lower()], match["block"].lower()
        key = (pci, match["part"], match["class"].lower(), block)
        count, before = int(match["count"]), self._totals.get(key, 0)
        if count and count % _ALL_ONES == 0:
            return None
        if match["new"]:
            self._totals[key] = before + count
        else:
            self._totals[key], count = count, count - before if count >= before else count
        if not count:
            return None
        return HardwareError(GPU_ERROR, severity, pci, count, f"{match['class'].lower()} {block}")
