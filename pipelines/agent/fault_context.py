"""Context of a fault report: the latest readings and kernel log lines before it."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FaultContext"]

_MAX_LINES, _MAX_READINGS_PER_GPU = 30, 3
_MAX_LINE_CHARS = 400
_MAX_CONTEXTS_PER_INTERVAL = 3  # per GPU


@dataclass(slots=True)
class FaultContext:
    """Latest readings and lines, attached to a limited number of reports per GPU and interval.

    Attributes
    ----------
    lock : threading.Lock
        Protects readings and lines, which two threads write and read.
    """

    lock: threading.Lock
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_LINES))
    _readings: dict[str, deque[Mapping[str, Any]]] = field(default_factory=dict)
    _reports: dict[str | None, tuple[int, int]] = field(default_factory=dict)

    def add_reading(self, gpu: str, row: Mapping[str, Any]) -> None:
        """Store a reading of a GPU; the caller holds the lock."""
        self._readings.setdefault(gpu, deque(maxlen=_MAX_READINGS_PER_GPU)).append(row)

    def add_line(self, message: str) -> None:
        """Store a line of the kernel log; the caller holds the lock."""
        self._lines.append(message[:_MAX_LINE_CHARS])

    def report(
        self, events: list[dict[str, Any]], gpu: str | None, tick: int
    ) -> dict[str, list[dict[str, Any]]]:
        """Return a fault report of events, with the context attached to the first one.

        Parameters
        ----------
        events : list of dict
            Rows of EVENTS.
        gpu : str or None
            GPU whose readings are attached.
        tick : int
            Number of the current interval.
        """
        if self._count(gpu, tick) >= _MAX_CONTEXTS_PER_INTERVAL:
            return {"events": events}
        with self.lock:
            readings, lines = list(self._readings.get(gpu or "", ())), list(self._lines)
        context = json.dumps({"readings": readings, "log": lines})
        return {"events": [events[0] | {"context": context}, *events[1:]]}

    def count(self, gpu: str | None, tick: int) -> None:
        """Count a report of a GPU."""
        self._reports[gpu] = tick, 1 + self._count(gpu, tick)

    def _count(self, gpu: str | None, tick: int) -> int:
        last_tick, reports = self._reports.get(gpu, (0, 0))
        return reports if last_tick == tick else 0
