"""The clock of a service, so that a test can let time run faster."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from forewarn.features.time_units import MINUTE

__all__ = ["MAX_CLOCK_SKEW", "Clock", "SystemClock"]

# Clocks drift and batches travel: what is further ahead of ours than this is a clock that is wrong.
MAX_CLOCK_SKEW = 5 * MINUTE


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> int:
        """Return nanoseconds since 1970 UTC."""
        ...

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Wait for an event, at most so long; tell whether it came."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Return nanoseconds since 1970 UTC."""
        return time.time_ns()

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Wait for an event, at most so long; tell whether it came."""
        return until.wait(seconds)
