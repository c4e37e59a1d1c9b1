"""What a source of readings answers: all GPUs of a host, or why there is no answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread

__all__ = ["GpuPoll", "GpuSource", "HangError", "NoSourceError"]


class HangError(Exception):
    """A GPU or its driver did not answer in time: a finding of its own."""


class NoSourceError(Exception):
    """Nothing on this host can read a GPU."""


@dataclass(frozen=True, slots=True)
class GpuPoll:
    """All GPUs of a host at one moment.

    Attributes
    ----------
    readings : list of GpuReading
    lost : tuple of str
        PCI addresses of GPUs that are called lost.
    unread : Unread
    trouble : str
        Why a GPU that is not among the readings may be there all the same; empty if the source
        had none.
    """

    readings: list[GpuReading]
    lost: tuple[str, ...] = ()
    unread: Unread = field(default_factory=Unread)
    trouble: str = ""


class GpuSource(Protocol):
    """Anything that can read the GPUs of this host."""

    def read(self, timeout: float) -> GpuPoll:
        """Return all GPUs within so many seconds; raises HangError or NoSourceError.

        No GPU at all is a NoSourceError, and no statement on any of them.
        """
        ...
