"""Prometheus metrics of the collector, without host or site labels to bound cardinality."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from forewarn.features.time_units import SECONDS_PER_HOUR
from forewarn.pipelines.metrics.declarations import (
    COLLECTOR_AHEAD_HOSTS,
    COLLECTOR_CLOCK_SKEW,
    COLLECTOR_REFUSED,
    COLLECTOR_ROWS,
    COLLECTOR_TOO_OLD,
    SOURCES,
)
from forewarn.pipelines.serving.service_metrics import ServiceMetrics

__all__ = ["ClockSkews", "CollectorMetrics"]

_MAX_HOSTS = 10_000


@dataclass(slots=True)
class ClockSkews:
    """Clock skew of hosts whose clock was ahead within the last hour."""

    _seen: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note(self, host: str, seconds: float) -> None:
        """Record a batch from the future."""
        self._seen.pop(host, None)
        self._seen[host] = (time.monotonic(), seconds)
        if len(self._seen) > _MAX_HOSTS:
            del self._seen[next(iter(self._seen))]

    def recent(self) -> list[float]:
        """Return the skew of each host in seconds."""
        since = time.monotonic() - SECONDS_PER_HOUR
        self._seen = {host: skew for host, skew in self._seen.items() if skew[0] >= since}
        return [seconds for _, seconds in self._seen.values()]


class CollectorMetrics(ServiceMetrics):
    """Counters and gauges of a collector.

    Attributes
    ----------
    skews : ClockSkews
    """

    def __init__(self) -> None:
        super().__init__(SOURCES["collect"], COLLECTOR_REFUSED)
        self.skews = ClockSkews()
        self.watch(COLLECTOR_CLOCK_SKEW, lambda: max(self.skews.recent(), default=0.0))
        self.watch(COLLECTOR_AHEAD_HOSTS, lambda: len(self.skews.recent()))

    def count_batch(self, rows: int, too_old: int) -> None:
        """Count the rows of an accepted batch."""
        self.add(COLLECTOR_ROWS, rows)
        self.add(COLLECTOR_TOO_OLD, too_old)
