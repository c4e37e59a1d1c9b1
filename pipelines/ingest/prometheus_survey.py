"""What a Prometheus server has of dcgm-exporter: metrics, GPUs, and the time of the last sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forewarn.features.telemetry.network.error_counters import PORT_METRICS, STATE_METRIC
from forewarn.features.telemetry.parsers.dcgm_metrics import METRICS, XID_COUNT_METRIC
from forewarn.features.telemetry.parsers.prometheus_answers import GPU_LABELS
from forewarn.features.time_units import DAY, HOUR, SECOND
from forewarn.pipelines.ingest.prometheus_client import (
    PrometheusClient,
    PrometheusError,
    QueryTooLargeError,
)

__all__ = ["ServerSurvey", "missing_fields", "survey_server"]

_SPAN = 15 * DAY  # what Prometheus keeps by default
_DCGM = "DCGM_"
_TEMPERATURES = ("DCGM_FI_DEV_GPU_TEMP", "npu_chip_info_temperature")
_STEPS = (6 * HOUR, _SPAN)  # between the moments that are queried; the second one if too many
_PORTS = f'count by (__name__) (last_over_time({{__name__=~"{PORT_METRICS}|{STATE_METRIC}"}}[15m]))'
_EXPORTERS = "DCGM_.+|npu_chip_info_.+"
_NAMES = f'count by (__name__) ({{__name__=~"{_EXPORTERS}"}})'
# A moment has no sample where the scrapes are further apart than the server looks back, which
# is five minutes. A query of hours costs more, so it comes second.
_NAMES_OF_AN_HOUR = f'count by (__name__) (last_over_time({{__name__=~"{_EXPORTERS}"}}[1h]))'


@dataclass(frozen=True, slots=True)
class ServerSurvey:
    """What a server has.

    Attributes
    ----------
    url : str
        Without user and password.
    names : frozenset of str
        Metrics of dcgm-exporter and npu-exporter.
    gpus : int
        GPUs at the last sample.
    last : int
        Time of the last sample, nanoseconds since 1970 UTC, rounded down to an hour if the server
        has none at present.
    ports : frozenset of str
        Metrics of network ports at that time.
    """

    url: str
    names: frozenset[str]
    gpus: int
    last: int
    ports: frozenset[str] = frozenset()

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The DCGM fields to switch on, by record column."""
        return missing_fields(self.names)


def missing_fields(names: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Return the DCGM fields that records lack, by column; none if the server has no DCGM.

    Examples
    --------
    >>> missing_fields(frozenset({"DCGM_FI_DEV_XID_ERRORS"}))["power_draw"]
    ('DCGM_FI_DEV_POWER_USAGE',)
    """
    missing: dict[str, tuple[str, ...]] = {}
    is_nvidia = any(name.startswith(_DCGM) for name in names)
    for metric in METRICS if is_nvidia else ():
        parts = [part for part in metric.names if part[0].startswith(_DCGM)]
        absent = tuple(part[0] for part in parts if not names & {*part})
        if absent and (metric.needs_all or len(absent) == len(metric.names)):
            missing[metric.column] = absent
    if XID_COUNT_METRIC in names:
        missing.pop("xid", None)
    return missing


def survey_server(server: PrometheusClient, now: int) -> ServerSurvey:
    """Survey a server.

    Parameters
    ----------
    server : PrometheusClient
    now : int
        Nanoseconds since 1970 UTC.

    Raises
    ------
    PrometheusError
        If it cannot be reached, or has no metric of an exporter.
    """
    series = _series(server, _NAMES, now) or _series(server, _NAMES_OF_AN_HOUR, now)
    names = frozenset(row["metric"].get("__name__", "") for row in series)
    if not names:
        raise PrometheusError(
            f"{server.url}: has no metric of dcgm-exporter (DCGM_...) or npu-exporter of the last "
            f"{_SPAN // DAY} days, expected some. Check the scrape configuration."
        )
    last = max(map(_last_time, series))
    if last < now - HOUR:
        last = _last_hour(server, sorted(names)[0], now)
    n_gpus = _count_gpus(server, sorted(names), last)
    return ServerSurvey(server.url, names, n_gpus, last, _port_metrics(server, last))


def _series(server: PrometheusClient, query: str, now: int) -> list[Any]:
    """Return the number of series by name at some moments, the last one being now."""
    for step in _STEPS:
        try:
            return _result(server, query, now - _SPAN // step * step, now, step)
        except QueryTooLargeError:
            continue
    return _result(server, query, now, now, HOUR)


def _result(server: PrometheusClient, query: str, first: int, last: int, step: int) -> list[Any]:
    answer = server.query_range(query, first, last, step)
    return [row for row in answer["data"]["result"] if row.get("values")]


def _last_time(series: Mapping[str, Any]) -> int:
    return int(float(series["values"][-1][0]) * SECOND)


def _port_metrics(server: PrometheusClient, at: int) -> frozenset[str]:
    """Return the metrics of network ports; none if there are too many to count."""
    try:
        series = _result(server, _PORTS, at, at, HOUR)
    except QueryTooLargeError:
        return frozenset()
    return frozenset(row["metric"].get("__name__", "") for row in series)


def _last_hour(server: PrometheusClient, name: str, now: int) -> int:
    """Return the last full hour at which a metric had a sample within the hour before."""
    query = f"count(count_over_time({name}[1h]))"
    series = _result(server, query, now - _SPAN, now, HOUR)
    return max(map(_last_time, series), default=now)


def _count_gpus(server: PrometheusClient, names: list[str], at: int) -> int:
    labels = ", ".join(GPU_LABELS)
    metric = "|".join(n for n in names if n.startswith(_TEMPERATURES)) or names[0]
    query = f'count(count by ({labels}) (last_over_time({{__name__=~"{metric}"}}[1h])))'
    series = _result(server, query, at, at, HOUR)
    return int(float(series[0]["values"][-1][1])) if series else 0
