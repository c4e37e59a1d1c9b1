"""`forewarn collect`: the service and, beside it, the landing of what it has taken."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from forewarn.features.errors import InputError
from forewarn.pipelines.collector.batch_intake import Intake
from forewarn.pipelines.collector.bounded_http import Bounds, bounded
from forewarn.pipelines.collector.http_app import Collector
from forewarn.pipelines.collector.inbox import Inbox
from forewarn.pipelines.collector.metrics import CollectorMetrics
from forewarn.pipelines.collector.publisher import Publisher, Watched
from forewarn.pipelines.ingest.cmdb import read_cmdb
from forewarn.pipelines.ingest.host_files import read_tickets
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.quarantine import Quarantine
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.tokens import Tokens, parse_tokens

if TYPE_CHECKING:
    from forewarn.pipelines.config.settings import Settings
    from forewarn.pipelines.config.site_tables import CollectorTable

__all__ = ["CollectError", "Health", "run_collector"]

_log = logging.getLogger("forewarn.collect")
_PATIENCE, _ROUNDS = 300.0, 12  # seconds without a landing that are no trouble, or rounds
_HEAD, _DEADLINE = 16 << 10, 30.0  # bytes of the head of a request, seconds for all of it
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class CollectError(InputError):
    """A service that cannot start."""


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
