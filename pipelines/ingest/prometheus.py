"""`forewarn ingest --prometheus`: DCGM metrics of a Prometheus server, chunk by chunk."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.duration import duration_in_words
from forewarn.features.telemetry.parsers.dcgm import METRICS
from forewarn.features.telemetry.parsers.prometheus import (
    GpuLabels,
    Series,
    gpu_labels,
    parse_matrix,
)
from forewarn.features.telemetry.parsers.reading import GpuReading, Unread
from forewarn.features.telemetry.rows import HostState, event_id, is_host_name, reading_row
from forewarn.features.telemetry.tables import EVENTS, READINGS, TableError, table_of
from forewarn.pipelines.ingest.dcgm_queries import changes_of, query_of
from forewarn.pipelines.ingest.landed import Landed
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.prometheus_server import (
    PrometheusError,
    Server,
    TooMuchError,
    without_user,
)
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.atomic_files import replacing

__all__ = ["Pulled", "pull"]

_SECOND = 10**9
_RETENTION = 15 * 86_400 * _SECOND
_CHUNK = 12  # intervals asked for at once: 20,000 GPUs give a quarter of a million values a query


@dataclass(slots=True)
class Pulled:
    """What came of it.

    Attributes
    ----------
    start, end : int
        Ends of the first and after the last interval asked for, nanoseconds since 1970 UTC.
    landed : Landed
        Of all chunks.
    unread : Unread
    instances : int
        Series of parts of split GPUs, which are left out.
    """

    start: int
    end: int
    landed: Landed = field(default_factory=Landed)
    unread: Unread = field(default_factory=Unread)
    instances: int = 0


def pull(server: Server, landing: Landing, *, start: int | None, end: int) -> Pulled:
    """Ask for all intervals that end in [start, end], and land them chunk by chunk.

    What was landed is written down after each chunk, so that the next call goes on from there.

    Parameters
    ----------
    server : Server
    landing : Landing
    start : int or None
        Nanoseconds since 1970 UTC; None goes on after what an earlier call landed, and at most as
        far back as a server keeps its samples by default.
    end : int

    Raises
    ------
    PrometheusError
        If the server cannot be asked.
    """
    interval = landing.interval
    mark_file = landing.folder / "_state" / f"prometheus-{_short(server.url)}.json"
    _adopt_mark(mark_file, server.url)
    done = _done(mark_file) if start is None else 0
    begin = end - _RETENTION if start is None else start
    first = max(-(-begin // interval) * interval, done + interval if done else 0)
    last = end // interval * interval
    pulled = Pulled(first, last)
    with progress_bar(max(0, (last - first) // interval + 1), "prometheus", "interval") as bar:
        while first <= last:
            upto = _pull_chunk(server, landing, first, last, pulled)
            with replacing(mark_file) as path:
                path.write_text(json.dumps({"url": server.url, "done": upto}), encoding="utf-8")
            bar.update((upto - first) // interval + 1)
            first = upto + interval
    return pulled


def _short(url: str) -> str:
    return hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:12]


def _adopt_mark(mark_file: Path, url: str) -> None:
    """Take over the mark of an older release, which kept user and password of the address."""
    for old in sorted(mark_file.parent.glob("prometheus-*.json")):
        try:
            mark = json.loads(old.read_text(encoding="utf-8"))
            bare = without_user(mark["url"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if bare is not None and bare.rstrip("/") == url.rstrip("/"):
            if not mark_file.exists():
                with replacing(mark_file) as path:
                    path.write_text(json.dumps(mark | {"url": url}), encoding="utf-8")
            old.unlink()


def _done(mark_file: Path) -> int:
    """Return the end of the last interval that was landed, 0 where nobody knows."""
    try:
        return int(json.loads(mark_file.read_text(encoding="utf-8"))["done"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError, RecursionError):
        note(f"{mark_file}: does not say how far the server was asked; begins anew")
        return 0


def _pull_chunk(server: Server, landing: Landing, first: int, last: int, pulled: Pulled) -> int:
    """Land the next intervals, fewer where the server says that it is too much; return the last."""
    size = _CHUNK
    while True:
        upto = min(last, first + (size - 1) * landing.interval)
        try:
            gpus = _gpus(server, first, upto, landing.interval, pulled)
            break
        except TooMuchError:
            if size == 1:
                raise PrometheusError(
                    f"{server.url}: refuses the samples of a single interval as too many, "
                    "expected a server with a larger --query.max-samples."
                ) from None
            size //= 2
    readings = [row for gpu in gpus for row in gpu.readings()]
    events = [row for gpu in gpus for row in gpu.events(landing.interval)]
    try:
        tables = table_of(readings, READINGS), table_of(events, EVENTS)
    except TableError as error:
        raise PrometheusError(f"{server.url}: {error}.") from None
    pulled.landed.join(landing.land(*tables))
    return upto


@dataclass(slots=True)
class _Gpu:
    """Values of one GPU by column and part, and by moment."""

    labels: GpuLabels
    values: dict[tuple[str, int], Mapping[int, float]] = field(default_factory=dict)
    xids: dict[int, float] = field(default_factory=dict)
    changes: dict[int, float] = field(default_factory=dict)

    @property
    def host(self) -> str | None:
        return self.labels.host if self.labels.host and is_host_name(self.labels.host) else None

    def readings(self) -> Iterator[dict[str, Any]]:
        texts = {"gpu_type": self.labels.gpu_type, "driver_version": self.labels.driver_version}
        for time in sorted({time for column in self.values.values() for time in column}):
            reading = GpuReading(
                numbers=dict(self._numbers(time)),
                texts={name: text for name, text in texts.items() if text},
                serial=self.labels.serial,
                uuid=self.labels.uuid,
                pci=self.labels.pci,
                slot=self.labels.slot,
            )
            yield reading_row(reading, HostState(self.host, time, log_read=time in self.changes))

    def _numbers(self, time: int) -> Iterator[tuple[str, float]]:
        for metric in METRICS:
            parts = [self.values.get((metric.column, i), {}) for i in range(len(metric.names))]
            known = [part[time] for part in parts if time in part]
            if metric.over != "change" and len(known) == len(parts):
                yield metric.column, math.fsum(known)

    def events(self, interval: int) -> Iterator[dict[str, Any]]:
        """Yield the Xid that the gauge changed to; it says no more than in which interval."""
        length = duration_in_words(interval / 1e9)
        for time, changes in sorted(self.changes.items()):
            code = self.xids.get(time, 0.0)
            if changes > 0 and code > 0:
                gpu = self.labels.serial or self.labels.uuid
                row = {
                    "timestamp": time,
                    "machine_id": self.host,
                    "id": event_id("prometheus", self.host, gpu, self.labels.slot, time),
                    "kind": "xid",
                    "code": int(code),
                    "gpu_serial": self.labels.serial,
                    "gpu_uuid": self.labels.uuid,
                    "pci": self.labels.pci,
                    "count": int(changes),
                    "raw": f"the Xid gauge changed to {code:g} within {length}",
                }
                yield {name: value for name, value in row.items() if value is not None}


def _gpus(server: Server, first: int, last: int, interval: int, pulled: Pulled) -> list[_Gpu]:
    """Ask for every metric and put the series of each GPU together."""
    gpus: dict[tuple[str | None, ...], _Gpu] = {}
    seconds = interval // _SECOND
    for metric in METRICS:
        for part in range(len(metric.names)):
            query = query_of(metric, part, seconds)
            for gpu, values in _series(server, query, first, last, interval, gpus, pulled):
                if metric.over == "change":
                    gpu.xids.update(values)
                else:
                    gpu.values[metric.column, part] = values
        if metric.over == "change":
            query = changes_of(metric, seconds)
            for gpu, values in _series(server, query, first, last, interval, gpus, pulled):
                gpu.changes.update(values)
    return list(gpus.values())


def _series(
    server: Server,
    query: str,
    first: int,
    last: int,
    interval: int,
    gpus: dict[tuple[str | None, ...], _Gpu],
    pulled: Pulled,
) -> Iterator[tuple[_Gpu, dict[int, float]]]:
    series, unread = parse_matrix(server.ask(query, first, last, interval))
    pulled.unread.join(unread)
    for gpu_series in series:
        labels = gpu_labels(gpu_series.labels)
        if labels.instance:
            pulled.instances += 1
        elif labels.serial is None and labels.uuid is None:
            pulled.unread.add("a series that names no GPU", str(dict(gpu_series.labels)))
        else:
            key = (labels.serial, labels.uuid, labels.host)
            yield gpus.setdefault(key, _Gpu(labels)), _by_time(gpu_series)


def _by_time(series: Series) -> dict[int, float]:
    return {
        round(time * 1000) * 1_000_000: value
        for time, value in zip(series.times, series.values, strict=True)
    }
