"""`forewarn collect`: the service and, beside it, the landing of what it has taken."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa
import uvicorn

from forewarn.features.errors import InputError
from forewarn.pipelines.collector.batch_intake import Intake
from forewarn.pipelines.collector.bounded_http import Bounds, bounded
from forewarn.pipelines.collector.http_app import Collector
from forewarn.pipelines.collector.inbox import Inbox, Taken
from forewarn.pipelines.collector.metrics import CollectorMetrics
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.config.site_tables import CollectorTable
from forewarn.pipelines.ingest.cmdb import Cmdb, read_cmdb
from forewarn.pipelines.ingest.host_files import read_tickets
from forewarn.pipelines.ingest.landing import Landed, Landing
from forewarn.pipelines.ingest.quarantine import Quarantine, is_broken
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.tokens import Tokens, parse_tokens

__all__ = ["CollectError", "Health", "Publisher", "Watched", "run_collector"]

_log = logging.getLogger("forewarn.collect")
_MOST = 5_000  # batches landed at once: a round of 2,500 hosts, and memory stays bounded
_PATIENCE, _ROUNDS = 300.0, 12  # seconds without a landing that are no trouble, or rounds
_HEAD, _DEADLINE = 16 << 10, 30.0  # bytes of the head of a request, seconds for all of it
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_Content = TypeVar("_Content")


class CollectError(InputError):
    """A service that cannot start."""


@dataclass(slots=True)
class Watched(Generic[_Content]):
    """A file that is read anew when it changes; while it is broken the last good content holds.

    Attributes
    ----------
    path : Path
    read : callable
    """

    path: Path
    read: Callable[[Path], _Content]
    _stamp: tuple[int, int] | None = None

    def changed(self) -> _Content | None:
        """Return the content if the file changed since the last call and can be read."""
        try:
            now = self.path.stat()
            stamp = (now.st_mtime_ns, now.st_size)
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            return self.read(self.path)
        except Exception as error:  # whatever is wrong with it: batches have to land
            _log.warning("the last good content of %s holds: %s", self.path, error)
            return None

    def forget(self) -> None:
        """Let the next call return the content, though it did not change."""
        self._stamp = None


@dataclass(slots=True)
class Publisher:
    """Lands what waits in an inbox, again and again.

    Attributes
    ----------
    inbox : Inbox
    landing : Landing
    cmdb, repairs : Watched or None
    stop : threading.Event
    more : bool
        More waited than was landed at once.
    """

    inbox: Inbox
    landing: Landing
    cmdb: Watched[Cmdb] | None = None
    repairs: Watched[tuple[pa.Table, int]] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    more: bool = False
    _told: set[str] = field(default_factory=set)
    _landed_at: float = field(default_factory=time.monotonic)

    def publish(self) -> int:
        """Land what waits; return how many batches. Interrupted, it does the same once more."""
        known = self.cmdb.changed() if self.cmdb is not None else None
        self.landing.cmdb = known or self.landing.cmdb
        tickets = self._tickets()
        taken = self.inbox.take(_MOST)
        self.more = taken.more
        for path, reason in taken.broken.items():
            self._set_aside(path, reason)
        if taken.files or tickets is not None:
            try:
                self._land(taken, tickets)
            except Exception as error:
                if not is_broken(error) or not taken.files:
                    raise
                _log.warning("not landed together, now one by one: %s", error)
                self._land_singly(taken.files, tickets)
        self._landed_at = time.monotonic()
        return len(taken.files)

    def age(self) -> float:
        """Return the seconds since all that waited had landed, or there was nothing to land."""
        return time.monotonic() - self._landed_at

    def _tickets(self) -> pa.Table | None:
        """Return the repair tickets if there are new ones, or those landed before were lost."""
        if self.repairs is None:
            return None
        if self.landing.lacks_tickets():
            self.repairs.forget()
        content = self.repairs.changed()
        return None if content is None else content[0]

    def _land(self, taken: Taken, tickets: pa.Table | None) -> None:
        landed = self.landing.land(taken.readings, taken.events, tickets)
        self.inbox.clear(taken.files)
        for moved in landed.quarantined:
            _log.error("%s", moved)
        if landed.ahead:
            _log.warning("%d rows of the future left out: was this clock set back?", landed.ahead)
        new = landed.unknown - self._told
        if new:
            _log.warning("%d serials not in the CMDB: %s ...", len(new), ", ".join(sorted(new)[:5]))
            self._told |= new
        self._tell_rivals(landed)

    def _tell_rivals(self, landed: Landed) -> None:
        for rival in landed.rivals:
            pair = f"{rival.machine_id} and {rival.holder} report one GPU, {rival.gpu_serial}"
            if pair not in self._told:
                _log.warning("%s: %s had it and keeps it", pair, rival.holder)
                self._told.add(pair)

    def _land_singly(self, files: tuple[Path, ...], tickets: pa.Table | None) -> None:
        """Land batch by batch; one that cannot be landed while no rows at all can is set aside."""
        self._land(self.inbox.read(()), tickets)
        for path in files:
            try:
                self._land(self.inbox.read([path]), None)
            except Exception as error:
                if not is_broken(error):
                    raise
                self._set_aside(path, f"{type(error).__name__}: {error}")

    def _set_aside(self, path: Path, reason: str) -> None:
        moved = Quarantine(self.landing.folder).take(path, (reason.splitlines() or [""])[0])
        _log.error("%s", moved)

    def run(self, every: float) -> None:
        """Publish until `stop`, and once more; what cannot be landed now is tried again."""
        while True:
            last = self.stop.wait(every)
            try:
                self.publish()
                while self.more:
                    self.publish()
            except Exception:  # whatever it is: the next batch may land
                _log.exception("not landed, tried again")
            if last:
                return


@dataclass(frozen=True, slots=True)
class Health:
    """Whether what is taken also lands.

    Attributes
    ----------
    publisher : Publisher
    intake : Intake
    patience : float
        Seconds that a landing may take, and a batch may wait.
    """

    publisher: Publisher
    intake: Intake
    patience: float

    def trouble(self) -> str | None:
        """Return what is wrong; None if nothing is."""
        if not self.intake.is_alive():
            return "nothing is taken any more"
        if self.publisher.age() > self.patience:
            return f"nothing has landed for {self.publisher.age():.0f} s"
        if self.waiting() > self.patience:
            return f"a batch has waited for {self.waiting():.0f} s"
        return None

    def waiting(self) -> float:
        """Return the seconds for which the oldest batch has waited to be landed."""
        since = self.publisher.inbox.since()
        return 0.0 if since is None else max(0.0, (self.intake.clock.now() - since) / 1e9)

    def measure(self, metrics: CollectorMetrics) -> None:
        """Add what is known here to the metrics."""
        quarantine = Quarantine(self.publisher.landing.folder)
        metrics.gauge(
            "landing_age_seconds",
            "Since all that waited had landed, or there was nothing to land.",
            self.publisher.age,
        )
        metrics.gauge("inbox_age_seconds", "The oldest batch not landed.", self.waiting)
        metrics.gauge(
            "inbox_files", "Batches not landed.", lambda: len(self.publisher.inbox.files())
        )
        metrics.gauge("quarantined_files", "Files set aside.", lambda: len(quarantine))


def run_collector(
    settings: Settings,
    out: Path,
    *,
    cmdb: Path | None,
    repairs: Path | None,
    tokens: str,
    host: str | None = None,
    port: int | None = None,
    clock: Clock | None = None,
) -> None:
    """Serve until the process is told to stop.

    Parameters
    ----------
    settings : Settings
    out : Path
        Folder of records.
    cmdb, repairs : Path, optional
        Read anew when they change; they have to be there and whole at the start.
    tokens : str
        `SITE=TOKEN,...`.
    host, port : optional
        Instead of those of the settings.
    clock : Clock, optional

    Raises
    ------
    InputError
        If there is no token, a file cannot be read, or the address cannot be had.
    """
    logging.basicConfig(level=logging.INFO, format="forewarn collect: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    table = settings.collector
    known = Tokens.of(parse_tokens(tokens), table.hosts)
    clock = clock or SystemClock()
    address = (host or table.host, table.port if port is None else port)
    landing = Landing(out, settings.records.interval, settings.failures.rules, clock=clock)
    inbox = Inbox(out / "_inbox")
    publisher = Publisher(
        inbox,
        landing,
        None if cmdb is None else Watched(cmdb, read_cmdb),
        None if repairs is None else Watched(repairs, read_tickets),
    )
    for path, read in ((cmdb, read_cmdb), (repairs, read_tickets)):
        if path is not None:
            read(path)
    intake = Intake(inbox, clock, Inbox(Quarantine(out).folder / "too_old"))
    patience = max(_PATIENCE, _ROUNDS * table.publish_every / 1e9)
    health = Health(publisher, intake, patience)
    limit = table.max_batch_mib << 20
    collector = Collector(known, settings.collection.as_told(), intake, limit, health.trouble)
    health.measure(collector.metrics)
    _serve(collector, publisher, settings, address)


def _bound(address: tuple[str, int], table: CollectorTable) -> socket.socket:
    """Check certificate and address before anything is written."""
    host, port = address
    if table.certificate:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                table.certificate, table.key
            )
        except OSError as error:
            raise CollectError(
                f"`collector.certificate` {table.certificate} and `collector.key` {table.key} "
                f"cannot be used ({error.strerror or error}), expected PEM files that fit."
            ) from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise CollectError(f"{host}:{port}: cannot be listened at ({error.strerror}).") from None


def _open_many_files() -> None:
    """Let every agent of a fleet keep its connection: the usual limit is 1,024 files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _serve(
    collector: Collector, publisher: Publisher, settings: Settings, address: tuple[str, int]
) -> None:
    table = settings.collector
    bound = _bound(address, table)
    if address[0] not in _LOOPBACK and not table.certificate:
        _log.warning("no `collector.certificate`: tokens travel in the clear on %s", address[0])
    bounds = Bounds(_HEAD, 2 * collector.limit + _HEAD, _DEADLINE)
    _open_many_files()
    config = uvicorn.Config(
        collector.app(),
        http=bounded(bounds, collector.metrics.refuse),
        ws="none",
        log_level="warning",
        access_log=False,
        ssl_certfile=table.certificate or None,
        ssl_keyfile=table.key or None,
        timeout_keep_alive=75,
    )
    publisher.landing.sweep()
    thread = threading.Thread(target=publisher.run, args=(table.publish_every / 1e9,))
    thread.start()
    collector.intake.start()
    scheme = "https" if table.certificate else "http"
    _log.info("listening on %s://%s:%d", scheme, *bound.getsockname()[:2])
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        collector.intake.stop()
        publisher.stop.set()
        thread.join()
