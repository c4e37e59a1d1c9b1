"""Publisher: lands accepted batches, and reloads the CMDB and the tickets when they change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from forewarn.pipelines.collector.inbox import Inbox, InboxContent
from forewarn.pipelines.ingest.cmdb import Cmdb
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.landing_counts import LandingCounts, serial_notes
from forewarn.pipelines.ingest.quarantine import Quarantine, is_corrupt
from forewarn.pipelines.ingest.repair_tickets import Tickets

__all__ = ["Publisher", "WatchedFile"]

_log = logging.getLogger("forewarn.collect")
_MAX_BATCHES_PER_LANDING = 5_000  # one round of 2,500 hosts, with bounded memory
_Content = TypeVar("_Content")


@dataclass(slots=True)
class WatchedFile(Generic[_Content]):
    """A file that is reloaded when it changes; while it is invalid, the last valid content is used.

    Attributes
    ----------
    path : Path
    read : callable
    """

    path: Path
    read: Callable[[Path], _Content]
    _stamp: tuple[int, int] | None = None

    def changed(self) -> _Content | None:
        """Return the content if the file has changed since the last call and is valid."""
        try:
            now = self.path.stat()
            stamp = (now.st_mtime_ns, now.st_size)
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            return self.read(self.path)
        except Exception as error:  # batches must land whatever is wrong with this file
            _log.warning("%s is invalid, using its last valid content: %s", self.path, error)
            return None

    def forget(self) -> None:
        """Make the next call return the content even without a change."""
        self._stamp = None


@dataclass(slots=True)
class Publisher:
    """Periodically lands the batches of an inbox.

    Attributes
    ----------
    inbox : Inbox
    landing : Landing
    cmdb, repairs : WatchedFile or None
    stop : threading.Event
    more : bool
        Whether batches remain after the last landing.
    """

    inbox: Inbox
    landing: Landing
    cmdb: WatchedFile[Cmdb] | None = None
    repairs: WatchedFile[Tickets] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    more: bool = False
    _warned: set[str] = field(default_factory=set)
    _landed_at: float = field(default_factory=time.monotonic)

    def publish(self) -> int:
        """Land waiting batches and return their number; it can be repeated safely."""
        known = self.cmdb.changed() if self.cmdb is not None else None
        self.landing.cmdb = known or self.landing.cmdb
        tickets = self._tickets()
        content = self.inbox.read_oldest(_MAX_BATCHES_PER_LANDING)
        self.more = content.more
        for path, reason in content.broken.items():
            self._set_aside(path, reason)
        if content.files or tickets is not None:
            try:
                self._land(content, tickets)
            except Exception as error:
                if not is_corrupt(error) or not content.files:
                    raise
                _log.warning("landing failed, landing batches one by one: %s", error)
                self._land_singly(content.files, tickets)
        self._landed_at = time.monotonic()
        return len(content.files)

    def age(self) -> float:
        """Return the seconds since the last successful landing."""
        return time.monotonic() - self._landed_at

    def _tickets(self) -> pa.Table | None:
        """Return the repair tickets if they changed, or if the landed ones were lost."""
        if self.repairs is None:
            return None
        if self.landing.lacks_tickets():
            self.repairs.forget()
        tickets = self.repairs.changed()
        if tickets is None:
            return None
        for line in tickets.notes():
            _log.warning("%s", line)
        return tickets.table

    def _land(self, content: InboxContent, tickets: pa.Table | None) -> None:
        landed = self.landing.land(content.readings, content.events, tickets)
        self.inbox.clear(content.files)
        for moved in landed.quarantined:
            _log.error("%s", moved)
        if landed.ahead:
            _log.warning(
                "%d rows from the future skipped: was the clock of this host set back?",
                landed.ahead,
            )
        new = landed.unknown - self._warned
        if new:
            _log.warning("%d serials not in the CMDB: %s ...", len(new), ", ".join(sorted(new)[:5]))
            self._warned |= new
        self._warn_of_conflicts(landed)
        for line in serial_notes(landed):
            if line not in self._warned:
                _log.warning("%s", line)
                self._warned.add(line)

    def _warn_of_conflicts(self, landed: LandingCounts) -> None:
        for conflict in landed.conflicts:
            pair = (
                f"{conflict.machine_id} and {conflict.holder} both report GPU {conflict.gpu_serial}"
            )
            if pair not in self._warned:
                _log.warning(
                    "%s; readings of the former are dropped because %s had the GPU first",
                    pair,
                    conflict.holder,
                )
                self._warned.add(pair)

    def _land_singly(self, files: tuple[Path, ...], tickets: pa.Table | None) -> None:
        """Land batches one by one; quarantine those that fail after an empty landing succeeded."""
        self._land(self.inbox.read(()), tickets)
        for path in files:
            try:
                self._land(self.inbox.read([path]), None)
            except Exception as error:
                if not is_corrupt(error):
                    raise
                self._set_aside(path, f"{type(error).__name__}: {error}")

    def _set_aside(self, path: Path, reason: str) -> None:
        moved = Quarantine(self.landing.folder).move_in(path, (reason.splitlines() or [""])[0])
        _log.error("%s", moved)

    def run(self, every: float) -> None:
        """Publish until `stop` is set, and once more; failed landings are retried."""
        while True:
            last = self.stop.wait(every)
            try:
                self.publish()
                while self.more:
                    self.publish()
            except Exception:  # the next batch may land
                _log.exception("landing failed, will retry")
            if last:
                return
