"""Prometheus metrics of a service."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

__all__ = ["ServiceMetrics"]


class ServiceMetrics:
    """Counters and gauges of one service.

    Parameters
    ----------
    prefix : str
        Prefix of all metric names.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._registry = CollectorRegistry()
        self._refused = self.counter("refused_requests", "Requests refused.", ["status"])

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Add a counter."""
        return Counter(f"{self._prefix}_{name}", text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that is evaluated at each scrape."""
        gauge = Gauge(f"{self._prefix}_{name}", text, registry=self._registry)
        gauge.set_function(value)

    def gauges(self, name: str, text: str, label: str) -> Gauge:
        """Add gauges that are set explicitly, one for each value of a label."""
        return Gauge(f"{self._prefix}_{name}", text, [label], registry=self._registry)

    def refuse(self, status: int) -> None:
        """Count a refused request."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
