"""What a collector tells Prometheus of itself: no name of a host or site, so few series."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

__all__ = ["ClockSkews", "CollectorMetrics"]

_HOUR = 3600.0
_HOSTS = 10_000


@dataclass(slots=True)
class ClockSkews:
    """How far the clocks of hosts were ahead within the last hour."""

    _seen: dict[str, tuple[float, float]] = field(default_factory=dict)

    def note(self, host: str, seconds: float) -> None:
        """Remember a batch of the future."""
        self._seen.pop(host, None)
        self._seen[host] = (time.monotonic(), seconds)
        if len(self._seen) > _HOSTS:
            del self._seen[next(iter(self._seen))]

    def recent(self) -> list[float]:
        """Return the seconds of each host."""
        since = time.monotonic() - _HOUR
        self._seen = {host: skew for host, skew in self._seen.items() if skew[0] >= since}
        return [seconds for _, seconds in self._seen.values()]


class CollectorMetrics:
    """Counters and gauges of one collector.

    Attributes
    ----------
    skews : ClockSkews
    """

    def __init__(self) -> None:
        self.skews = ClockSkews()
        self._registry = CollectorRegistry()
        self._rows = self._counter("rows", "Rows taken, safe on disk.")
        self._too_old = self._counter("too_old_rows", "Rows too old for records, set aside.")
        self._refused = self._counter("refused_requests", "Requests refused.", ["status"])
        self.gauge(
            "clock_skew_seconds",
            "Most that a host's clock was ahead within the last hour, where it was too much.",
            lambda: max(self.skews.recent(), default=0.0),
        )
        self.gauge(
            "hosts_ahead",
            "Hosts whose batches were refused within the last hour, for their clock is ahead.",
            lambda: len(self.skews.recent()),
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...] | list[str] = ()) -> Counter:
        return Counter(f"forewarn_collector_{name}", text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that is asked for when it is read."""
        gauge = Gauge(f"forewarn_collector_{name}", text, registry=self._registry)
        gauge.set_function(value)

    def take(self, rows: int, too_old: int) -> None:
        """Count a batch that was taken."""
        self._rows.inc(rows)
        self._too_old.inc(too_old)

    def refuse(self, status: int) -> None:
        """Count a request that was refused."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """Return all of it in the text format of Prometheus."""
        return generate_latest(self._registry)
