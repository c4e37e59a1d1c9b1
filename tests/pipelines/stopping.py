"""An end for loops that wait between two looks."""

from __future__ import annotations

import threading

__all__ = ["StoppingAfterTwo"]


class StoppingAfterTwo(threading.Event):
    """Is set after the second look."""

    looks = 0

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.looks += 1
        if self.looks == 2:
            self.set()
        return self.is_set()
