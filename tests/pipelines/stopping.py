"""An event that ends polling loops."""

from __future__ import annotations

import threading

__all__ = ["StoppingAfterTwo"]


class StoppingAfterTwo(threading.Event):
    """An event that is set after the second check."""

    looks = 0

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.looks += 1
        if self.looks == 2:
            self.set()
        return self.is_set()
