"""The result of one health check of a machine or a GPU, whichever tool ran it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading

__all__ = ["CHECK_SEVERITIES", "CheckResult", "CheckSeverity"]

CheckSeverity = Literal["ok", "notice", "warning", "error", "critical"]
CHECK_SEVERITIES: tuple[CheckSeverity, ...] = ("ok", "notice", "warning", "error", "critical")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found.

    Attributes
    ----------
    check : str
        Name of the tool and of its test, such as `dcgm diag memory`.
    severity : {"ok", "notice", "warning", "error", "critical"}
        `ok` ends what the same check reported before.
    text : str
        The tool's own words.
    gpu : GpuReading or None
        Names the GPU; None for the machine as a whole.
    time : int or None
        Nanoseconds since 1970 on the clock of the host, where the tool says when it was.
    host : str or None
        Where the tool names it.
    """

    check: str
    severity: CheckSeverity
    text: str
    gpu: GpuReading | None = None
    time: int | None = None
    host: str | None = None
