"""`forewarn ingest --prometheus`: DCGM metrics of a Prometheus server, chunk by chunk."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx

from forewarn.features.duration import duration_in_words
from forewarn.features.errors import InputError
from forewarn.features.telemetry.parsers.dcgm import BLANK, METRICS, Metric
from forewarn.features.telemetry.parsers.prometheus import (
    GpuLabels,
    Series,
    gpu_labels,
    parse_matrix,
    why_not_whole,
)
from forewarn.features.telemetry.parsers.reading import GpuReading, Unread
from forewarn.features.telemetry.rows import HostState, event_id, is_host_name, reading_row
from forewarn.features.telemetry.tables import EVENTS, READINGS, TableError, table_of
from forewarn.pipelines.ingest.landing import Landed, Landing
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.record_store import replacing

__all__ = ["PrometheusError", "Pulled", "Server", "pull"]

_SECOND = 10**9
_KEPT = 15 * 86_400 * _SECOND
_CHUNK = 12  # intervals asked for at once: 20,000 GPUs give a quarter of a million values a query
_RETRIES = 3
_BUSY = (502, 503, 504)  # a server that starts, or a proxy before it
_PAGE = 65_536  # bytes read of an answer that is an error
_TOKEN = "FOREWARN_PROMETHEUS_TOKEN"
_USER = re.compile(r"(?P<scheme>(?:[A-Za-z][A-Za-z0-9+.-]*://)?)(?P<user>[^/?#]*)@(?P<host>.*)")


class PrometheusError(InputError):
    """A server that cannot be asked, or that answers something else."""


class _TooMuchError(Exception):
    """The server says that a query is too large for it."""


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


@dataclass(slots=True)
class Server:
    """A Prometheus server, or anything that speaks its HTTP API.

    Attributes
    ----------
    url : str
        Without /api. `USER:PASSWORD@` is taken out of it and sent as basic authentication, so that
        messages and files can name the server.
    token : str or None
        Sent as a bearer token.
    most_bytes, most_seconds : int and float
        Of one answer: a longer one is too much, a later one is none.
    pause : float
        Seconds before a server that is not ready is asked again, at most three times.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    most_bytes: int = 256 << 20
    most_seconds: float = 300.0
    pause: float = 1.0
    _client: httpx.AsyncClient = field(init=False, repr=False)
    # Only so does a limit hold for all of an exchange, from the connection to the last byte.
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner, init=False, repr=False)

    def __post_init__(self) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it prints addresses
        self.url, auth = _without_user(self.url)
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise PrometheusError(
                f"{_TOKEN}: holds a character that no header can, expected ASCII."
            )
        self._client = httpx.AsyncClient(
            auth=None if self.token else auth,
            headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
            timeout=120,
            transport=httpx.AsyncHTTPTransport(retries=_RETRIES),
        )

    @classmethod
    def from_environment(cls, url: str) -> Server:
        """Return a server whose token, if it wants one, is in FOREWARN_PROMETHEUS_TOKEN."""
        return cls(url, os.environ.get(_TOKEN, "").strip() or None)

    def close(self) -> None:
        """Close its connections."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def ask(self, query: str, first: int, last: int, step: int) -> Any:
        """Return the answer to a range query, as JSON was decoded.

        Raises
        ------
        PrometheusError
            If there is no server, or it refuses.
        """
        parameters = {"query": query, "start": first / _SECOND, "end": last / _SECOND}
        return self._answer("query_range", parameters | {"step": step / _SECOND})

    def samples(self, selector: str, end: int, span: int) -> Any:
        """Return the samples themselves in (end - span, end], as JSON was decoded.

        A range query would repeat the last sample where one is missing.

        Raises
        ------
        PrometheusError
            If there is no server, or it refuses.
        """
        query = f"{selector}[{span // 1_000_000}ms]"
        try:
            return self._answer("query", {"query": query, "time": end / _SECOND})
        except _TooMuchError:
            raise PrometheusError(f"{self.url}: the answer to {query} is too large.") from None

    def _answer(self, path: str, parameters: Mapping[str, Any]) -> Any:
        status, body = self._status_and_body(f"{self.url.rstrip('/')}/api/v1/{path}", parameters)
        if status == 422 and b"too many samples" in body:
            raise _TooMuchError
        if status != 200:
            excerpt = " ".join(body.decode(errors="replace").split())[:200]
            raise PrometheusError(
                f"{self.url}: answered {status} ({excerpt}), expected an answer of the API of "
                "Prometheus."
            )
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise PrometheusError(
                f"{self.url}: answered no JSON, expected an answer of the API of Prometheus."
            ) from None
        if why := why_not_whole(answer):
            raise PrometheusError(f"{self.url}: answered {why}, expected a whole matrix.")
        return answer

    def _status_and_body(self, address: str, parameters: Mapping[str, Any]) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        try:
            return self._runner.run(self._exchange(address, parameters))
        except TimeoutError:
            raise PrometheusError(
                f"{self.url}: gave no whole answer in {duration_in_words(self.most_seconds)}."
            ) from None
        except httpx.InvalidURL:  # its text may hold a part of a password
            raise PrometheusError(
                f"{self.url}: is no address, expected such as http://localhost:9090."
            ) from None
        except httpx.HTTPError as error:
            raise PrometheusError(f"{self.url}: cannot be asked ({error}).") from None

    async def _exchange(self, address: str, parameters: Mapping[str, Any]) -> tuple[int, bytes]:
        async with asyncio.timeout(self.most_seconds):
            for attempt in range(_RETRIES + 1):
                if attempt:
                    await asyncio.sleep(self.pause)
                async with self._client.stream("POST", address, data=dict(parameters)) as answer:
                    status, body = answer.status_code, await self._body(answer)
                if status not in _BUSY:
                    break
        return status, body

    async def _body(self, answer: httpx.Response) -> bytes:
        """Return what an answer holds, of an error only its begin."""
        parts, size = [], 0
        async for part in answer.aiter_bytes():
            parts.append(part)
            size += len(part)
            if answer.status_code != 200 and size > _PAGE:
                break
            if size > self.most_bytes:
                raise _TooMuchError
        return b"".join(parts)


def _without_user(url: str) -> tuple[str, httpx.BasicAuth | None]:
    """Take user and password out of an address."""
    match = _USER.fullmatch(url)
    rest = f"{match['scheme']}{match['host']}" if match else url
    if "@" in rest:
        raise PrometheusError(
            "the address of Prometheus holds a `@` behind its first `/`; in a password write / as "
            "%2F, ? as %3F, # as %23 and @ as %40."
        )
    if match is None:
        return url, None
    user, _, password = match["user"].partition(":")
    return rest, httpx.BasicAuth(unquote(user), unquote(password))


def query_of(metric: Metric, part: int, seconds: int) -> str:
    """Return the query for one interval of a metric, under any of its names.

    An interval with a blank value in it is left out: its mean would be one of nothing real.

    Examples
    --------
    >>> query_of(METRICS[4], 0, 600)  # doctest: +ELLIPSIS
    '(avg_over_time(DCGM_FI_DEV_FB_USED[600s]) and max_over_time(DCGM_FI_DEV_FB_USED[600s]) < ...)'
    """
    over = "avg_over_time" if metric.over == "mean" else "last_over_time"
    return " or ".join(
        f"({over}({name}[{seconds}s]) and max_over_time({name}[{seconds}s]) < {BLANK:.0f})"
        for name in metric.names[part]
    )


def changes_of(metric: Metric, seconds: int) -> str:
    """Return the query for how often a gauge that shows the last event changed in an interval.

    `changes` does not see what changed between the last sample before an interval and the first
    one in it: there the last values of both intervals are compared, where there are both.
    """
    return " or ".join(_changed(f"{name}[{seconds}s]", seconds) for name in metric.names[0])


def _changed(span: str, seconds: int) -> str:
    border = f"last_over_time({span}) != bool last_over_time({span} offset {seconds}s)"
    return f"(changes({span}) > 0 or ({border}) or changes({span}))"


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
    begin = end - _KEPT if start is None else start
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
            match = _USER.fullmatch(mark["url"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if match and f"{match['scheme']}{match['host']}".rstrip("/") == url.rstrip("/"):
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
        note(f"{mark_file}: does not tell how far the server was asked, begun anew")
        return 0


def _pull_chunk(server: Server, landing: Landing, first: int, last: int, pulled: Pulled) -> int:
    """Land the next intervals, fewer where the server says that it is too much; return the last."""
    size = _CHUNK
    while True:
        upto = min(last, first + (size - 1) * landing.interval)
        try:
            gpus = _gpus(server, first, upto, landing.interval, pulled)
            break
        except _TooMuchError:
            if size == 1:
                raise PrometheusError(
                    f"{server.url}: one interval is too much for it, expected a larger "
                    "--query.max-samples."
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
