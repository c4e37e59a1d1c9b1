"""The result of one health check of a machine or a GPU, from any tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading

__all__ = ["CHECK_SEVERITIES", "CheckResult", "CheckSeverity"]

CheckSeverity = Literal["ok", "notice", "warning", "error", "critical"]
CHECK_SEVERITIES: tuple[CheckSeverity, ...] = ("ok", "notice", "warning", "error", "critical")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a health check.

    Attributes
    ----------
    check : str
        Name of the tool and of its test, such as `dcgm diag memory`.
    severity : {"ok", "notice", "warning", "error", "critical"}
        `ok` ends what the same check reported before.
    text : str
        The tool's message.
    gpu : GpuReading or None
        Identifies the GPU; None for the whole machine.
    time : int or None
        Nanoseconds since 1970 on the host's clock, if the tool prints a time.
    utc : bool
        `time` is UTC.
    host : str or None
        If the tool names it.
    kind : {"check", "gpu_error"}
        Kind of the event: `gpu_error` for an error that a GPU without Xids reports by a code.
    """

    check: str
    severity: CheckSeverity
    text: str
    gpu: GpuReading | None = None
    time: int | None = None
    utc: bool = False
    host: str | None = None
    kind: Literal["check", "gpu_error"] = "check"
