"""The clock of a simulation that people can stop, step and speed up."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from forewarn.features.time_units import HOUR, Nanoseconds

__all__ = ["LiveClock"]

_MIN_SPEED, _MAX_SPEED = 0.25, 1e6
_LONGEST_WAIT: Final = 0.2  # seconds: a person who stops the clock should see it at once


@dataclass(slots=True)
class LiveClock:
    """Simulated hours that pass per second.

    Attributes
    ----------
    speed : float
        Simulated hours per second.
    """

    speed: float
    _stopped: bool = False
    _steps: int = 0
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _due: float = field(default_factory=time.monotonic)

    @property
    def stopped(self) -> bool:
        """Whether the clock is stopped."""
        return self._stopped

    def act(self, name: str) -> None:
        """Control the clock: `stop`, `go`, `step`, `slower` or `faster`; others change nothing."""
        with self._lock:
            if name == "step":
                self._stopped, self._steps = True, self._steps + 1
            elif name in ("stop", "go"):
                self._stopped, self._steps = name == "stop", 0
            elif name in ("slower", "faster"):
                factor = 0.5 if name == "slower" else 2.0
                self.speed = min(max(self.speed * factor, _MIN_SPEED), _MAX_SPEED)
            self._lock.notify_all()

    def pass_time(self, span: Nanoseconds) -> None:
        """Wait until a simulated span has passed; work since the last call counts as part of it."""
        with self._lock:
            while self._stopped and not self._steps:
                self._lock.wait()
                self._due = time.monotonic()
            if self._steps:
                self._steps -= 1
                return
            self._due = max(self._due + span / HOUR / self.speed, time.monotonic() - 1.0)
            while (left := self._due - time.monotonic()) > 0 and not self._stopped:
                self._lock.wait(min(left, _LONGEST_WAIT))
