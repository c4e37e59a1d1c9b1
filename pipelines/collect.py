"""`forewarn collect`: the service and, beside it, the landing of what it has taken."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa
import uvicorn

from forewarn.features.errors import InputError
from forewarn.pipelines.clock import Clock, SystemClock
from forewarn.pipelines.cmdb import Cmdb, read_cmdb
from forewarn.pipelines.collector import Collector, parse_tokens
from forewarn.pipelines.inbox import Inbox
from forewarn.pipelines.ingest import read_tickets
from forewarn.pipelines.intake import Intake
from forewarn.pipelines.landing import Landing
from forewarn.pipelines.settings import CollectorTable, Settings

__all__ = ["CollectError", "Publisher", "Watched", "run_collector"]

_log = logging.getLogger("forewarn.collect")
_MOST = 5_000  # batches landed at once: a round of 2,500 hosts, and memory stays bounded
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
        except (InputError, OSError) as error:
            _log.warning("the last good content of %s holds: %s", self.path, error)
            return None


@dataclass(slots=True)
class Publisher:
    """Lands what waits in an inbox, again and again.

    Attributes
    ----------
    inbox : Inbox
    landing : Landing
    cmdb, repairs : Watched or None
    """

    inbox: Inbox
    landing: Landing
    cmdb: Watched[Cmdb] | None = None
    repairs: Watched[tuple[pa.Table, int]] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    _told: set[str] = field(default_factory=set)

    def publish(self) -> int:
        """Land what waits; return how many batches. Interrupted, it does the same once more."""
        known = self.cmdb.changed() if self.cmdb is not None else None
        self.landing.cmdb = known or self.landing.cmdb
        tickets = self.repairs.changed() if self.repairs is not None else None
        taken = self.inbox.take(_MOST)
        if not taken.files and tickets is None:
            return 0
        landed = self.landing.land(taken.readings, taken.events, tickets and tickets[0])
        self.inbox.clear(taken.files)
        new = landed.unknown - self._told
        if new:
            _log.warning("%d serials not in the CMDB: %s ...", len(new), ", ".join(sorted(new)[:5]))
            self._told |= new
        for rival in landed.rivals:
            pair = f"{rival.machine_id} and {rival.holder} report one GPU, {rival.gpu_serial}"
            if pair not in self._told:
                _log.warning("%s: %s had it and keeps it", pair, rival.holder)
                self._told.add(pair)
        return len(taken.files)

    def run(self, every: float) -> None:
        """Publish until `stop`, and once more; what cannot be landed now is tried again."""
        while True:
            last = self.stop.wait(every)
            try:
                while self.publish() == _MOST:
                    pass
            except (InputError, OSError, pa.ArrowException):
                _log.exception("not landed, tried again")
            if last:
                return


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
    sites = parse_tokens(tokens)
    table = settings.collector
    address = (host or table.host, table.port if port is None else port)
    landing = Landing(out, settings.records.interval, settings.failures.rules)
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
    collector = Collector(
        sites,
        settings.collection.as_told(),
        Intake(inbox, clock or SystemClock()),
        table.max_batch_mib << 20,
    )
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


def _serve(
    collector: Collector, publisher: Publisher, settings: Settings, address: tuple[str, int]
) -> None:
    table = settings.collector
    bound = _bound(address, table)
    if address[0] not in _LOOPBACK and not table.certificate:
        _log.warning("no `collector.certificate`: tokens travel in the clear on %s", address[0])
    config = uvicorn.Config(
        collector.app(),
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
