"""Events of network ports for some intervals, from series of node_exporter in Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.telemetry.network.error_counters import (
    ACTIVE,
    PORT_COUNTERS,
    PORT_METRICS,
    STATE_METRIC,
    counter_name,
    counter_row,
    is_physical,
    port_name,
    state_row,
)
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.machine_label import MachineLabels
from forewarn.features.telemetry.parsers.prometheus_answers import Series, parse_matrix
from forewarn.features.time_units import SECOND
from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
from forewarn.pipelines.ingest.target_names import TargetNames

__all__ = ["PortChunk"]

_BY_TYPE = "node_net_ethtool"  # an exporter that has the counter as a label


@dataclass(slots=True)
class PortChunk:
    """Some intervals of all network ports of a server.

    Attributes
    ----------
    server : PrometheusClient
    machines : MachineLabels
    first, last : int
        Ends of the first and the last interval, nanoseconds since 1970 UTC.
    interval : int
        Nanoseconds.
    unread : Unread
    """

    server: PrometheusClient
    machines: MachineLabels
    first: int
    last: int
    interval: int
    unread: Unread = field(default_factory=Unread)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of EVENTS, at the end of the interval in which a counter rose.

        The server selects the counters that rose, which are few. A fall is a reset.

        Raises
        ------
        PrometheusError
            If the server cannot be queried.
        QueryTooLargeError
            If there are too many intervals.
        """
        names = TargetNames(self.server.samples, self.machines)
        for metric in self._metrics():
            if metric == STATE_METRIC:
                now, before = self._last(metric)
                query = f"{now} != {ACTIVE} and {before} == {ACTIVE}"
            else:
                selector = metric
                if metric == _BY_TYPE:
                    selector = f'{metric}{{type=~"{"|".join(PORT_COUNTERS)}"}}'
                now, before = self._last(selector)
                query = f"({now} - {before}) > 0"
            for series in self._matrix(query):
                yield from self._rows(metric, series, names.machine(series.labels, self.last))

    def _rows(self, metric: str, series: Series, machine: str | None) -> Iterator[dict[str, Any]]:
        labels = dict(series.labels)
        if not is_physical(labels.get("device", "")):
            return
        if machine is None:
            self.unread.add("a network port without a machine label", str(labels))
            return
        port, name = port_name(labels), counter_name(labels.get("type", metric))
        for time, value in zip(series.times, series.values, strict=True):
            at = round(time) * SECOND
            if metric == STATE_METRIC:
                row = state_row(machine, port, at, ACTIVE, int(value))
            else:
                row = counter_row(machine, port, name or metric, at, round(value)) or {}
            if row:
                yield row

    def _last(self, selector: str) -> tuple[str, str]:
        """Return the last value of an interval, and that of the interval before.

        Without a range, a sample older than five minutes is not seen.
        """
        span = self.interval // SECOND
        now = f"last_over_time({selector}[{span}s]"
        return f"{now})", f"{now} offset {span}s)"

    def _metrics(self) -> list[str]:
        """Return the metrics of ports that the server has."""
        last, _ = self._last(f'{{__name__=~"{PORT_METRICS}|{STATE_METRIC}"}}')
        query = f"count by (__name__) ({last})"
        names = sorted({series.labels.get("__name__", "") for series in self._matrix(query)})
        known = (_BY_TYPE, STATE_METRIC)
        return [name for name in names if name in known or counter_name(name) is not None]

    def _matrix(self, query: str) -> list[Series]:
        answer = self.server.query_range(query, self.first, self.last, self.interval)
        matrix, unread = parse_matrix(answer)
        self.unread.join(unread)
        return matrix
