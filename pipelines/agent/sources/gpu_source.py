"""Interface of GPU sources and the result of a poll."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread

__all__ = ["GpuPoll", "GpuSource", "HangError", "NoSourceError"]


class HangError(Exception):
    """A GPU or its driver did not answer in time, which is a finding of its own."""


class NoSourceError(Exception):
    """No source on this host can read a GPU."""


@dataclass(frozen=True, slots=True)
class GpuPoll:
    """All GPUs of a host at one time.

    Attributes
    ----------
    readings : list of GpuReading
    lost : tuple of str
        PCI addresses of GPUs that the driver reports as lost.
    unread : Unread
    trouble : str
        Reason why a GPU may exist although it has no reading; empty if there is none.
    checks : list of CheckResult
        Health of GPUs with their readings, if the source knows it.
    """

    readings: list[GpuReading]
    lost: tuple[str, ...] = ()
    unread: Unread = field(default_factory=Unread)
    trouble: str = ""
    checks: list[CheckResult] = field(default_factory=list)


class GpuSource(Protocol):
    """Source that can read the GPUs of this host."""

    def read(self, timeout: float) -> GpuPoll:
        """Return all GPUs within `timeout` seconds.

        Raises
        ------
        HangError
            If there is no answer in time.
        NoSourceError
            If no GPU can be read, which says nothing about any single GPU.
        """
        ...
