"""`forewarn collect`: the HTTP service, with a thread that lands what it accepts."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.features.time_units import SECOND
from forewarn.pipelines.collector.batch_intake import BatchIntake
from forewarn.pipelines.collector.collector_metrics import CollectorMetrics
from forewarn.pipelines.collector.http_app import CollectorApp
from forewarn.pipelines.collector.inbox import Inbox
from forewarn.pipelines.collector.publisher import Publisher, WatchedFile
from forewarn.pipelines.ingest.cmdb import read_cmdb
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.quarantine import Quarantine
from forewarn.pipelines.ingest.repair_tickets import read_tickets
from forewarn.pipelines.metrics.declarations import (
    COLLECTOR_INBOX_AGE,
    COLLECTOR_INBOX_FILES,
    COLLECTOR_LANDING_AGE,
    COLLECTOR_QUARANTINED,
)
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.serving.listener import Listener
from forewarn.pipelines.serving.request_bodies import BodyReader
from forewarn.pipelines.serving.tokens import Tokens, parse_tokens

if TYPE_CHECKING:
    from forewarn.pipelines.config.settings import Settings

__all__ = ["CollectorHealth", "run_collector"]

_log = logging.getLogger("forewarn.collect")
_MIN_PATIENCE_SECONDS, _PATIENCE_INTERVALS = (
    300.0,
    12,
)  # healthy seconds without a landing, or publish intervals
_REQUEST_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """Health of the collector: whether accepted batches also land.

    Attributes
    ----------
    publisher : Publisher
    intake : BatchIntake
    patience : float
        Maximum duration of a landing, and maximum age of a waiting batch, in seconds.
    """

    publisher: Publisher
    intake: BatchIntake
    patience: float

    def trouble(self) -> str | None:
        """Return the current problem, or None."""
        if not self.intake.is_alive():
            return "the batch intake has stopped"
        if self.publisher.age() > self.patience:
            return f"nothing has landed for {self.publisher.age():.0f} s"
        if self.waiting() > self.patience:
            return f"a batch has waited for {self.waiting():.0f} s"
        return None

    def waiting(self) -> float:
        """Return the age of the oldest waiting batch in seconds."""
        since = self.publisher.inbox.since()
        return 0.0 if since is None else max(0.0, (self.intake.clock.now() - since) / SECOND)

    def measure(self, metrics: CollectorMetrics) -> None:
        """Add the gauges of inbox, landing and quarantine to the metrics."""
        quarantine = Quarantine(self.publisher.landing.folder)
        inbox = self.publisher.inbox
        metrics.watch(COLLECTOR_LANDING_AGE, self.publisher.age)
        metrics.watch(COLLECTOR_INBOX_AGE, self.waiting)
        metrics.watch(COLLECTOR_INBOX_FILES, lambda: len(inbox.files()))
        metrics.watch(COLLECTOR_QUARANTINED, lambda: len(quarantine))


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
    """Serve until the process is stopped.

    Parameters
    ----------
    settings : Settings
    out : Path
        Folder of records.
    cmdb, repairs : Path, optional
        Reloaded when they change; they must exist and be valid at the start.
    tokens : str
        `SITE=TOKEN,...`.
    host, port : optional
        Override those of the settings.
    clock : Clock, optional

    Raises
    ------
    InputError
        If there is no token, a file cannot be read, or the address is not available.
    """
    logging.basicConfig(level=logging.INFO, format="forewarn collect: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    table = settings.collector
    known = Tokens.from_config(parse_tokens(tokens), table.hosts)
    clock = clock or SystemClock()
    landing = Landing(out, settings.records.interval, settings.failures.rules, clock=clock)
    inbox = Inbox(out / "_inbox")
    cmdb_reader = partial(read_cmdb, export=settings.cmdb.reader)
    ticket_reader = partial(read_tickets, export=settings.tickets.reader)
    publisher = Publisher(
        inbox,
        landing,
        None if cmdb is None else WatchedFile(cmdb, cmdb_reader),
        None if repairs is None else WatchedFile(repairs, ticket_reader),
    )
    for path, read in ((cmdb, cmdb_reader), (repairs, ticket_reader)):
        if path is not None:
            read(path)
    intake = BatchIntake(inbox, clock, Inbox(Quarantine(out).folder / "too_old"))
    patience = max(_MIN_PATIENCE_SECONDS, _PATIENCE_INTERVALS * table.publish_every / SECOND)
    health = CollectorHealth(publisher, intake, patience)
    bodies = BodyReader(table.max_batch_mib << 20)
    collector = CollectorApp(known, settings.collection.as_json(), intake, bodies, health.trouble)
    health.measure(collector.metrics)
    at_port = table.port if port is None else port
    listener = Listener("collector", host or table.host, at_port, table.certificate, table.key)
    _serve(collector, publisher, listener, table.publish_every / SECOND)


def _serve(collector: CollectorApp, publisher: Publisher, listener: Listener, every: float) -> None:
    bound = listener.bind()
    listener.warn(_log)
    server = listener.server(
        collector.app(),
        limit=collector.bodies.limit,
        seconds=_REQUEST_TIMEOUT_SECONDS,
        refused=collector.metrics.refuse,
    )
    publisher.landing.remove_stale_files()
    thread = threading.Thread(target=publisher.run, args=(every,))
    thread.start()
    collector.intake.start()
    _log.info("listening on %s", listener.address(bound))
    try:
        server.run(sockets=[bound])
    finally:
        collector.intake.stop()
        publisher.stop.set()
        thread.join()
