"""Prometheus metrics of the collector, without host or site labels to bound cardinality."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from forewarn.features.time_units import SECONDS_PER_HOUR
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
        super().__init__("forewarn_collector")
        self.skews = ClockSkews()
        self._rows = self.counter("rows", "Rows accepted and stored on disk.")
        self._too_old = self.counter("too_old_rows", "Rows too old for records, moved aside.")
        self.gauge(
            "clock_skew_seconds",
            "Largest clock skew of a host whose batches were refused within the last hour.",
            lambda: max(self.skews.recent(), default=0.0),
        )
        self.gauge(
            "hosts_ahead",
            "Hosts whose batches were refused within the last hour because of clock skew.",
            lambda: len(self.skews.recent()),
        )

    def count_batch(self, rows: int, too_old: int) -> None:
        """Count the rows of an accepted batch."""
        self._rows.inc(rows)
        self._too_old.inc(too_old)
