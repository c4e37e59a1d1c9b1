"""Outbox: batches on their way to the spool, in memory while the spool cannot be written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forewarn.pipelines.agent.spool import Spool, SpoolError

__all__ = ["Outbox"]

_MAX_HELD_BATCHES = 500  # three days of batches at 10 minutes


@dataclass(slots=True)
class Outbox:
    """Writes batches to the spool in order, and logs once when the spool cannot be written.

    Attributes
    ----------
    spool : Spool
    say : callable
        Writes a line to the agent's log.
    wake : threading.Event
        Set when there is something to send.
    held : deque of (dict, bool)
        Batches that are not on disk, and whether each is a fault report.
    """

    spool: Spool
    say: Callable[[str], None]
    wake: threading.Event
    held: deque[tuple[dict[str, Any], bool]] = field(
        default_factory=lambda: deque(maxlen=_MAX_HELD_BATCHES)
    )
    _unwritten: bool = False
    _dropped: int = 0

    def hold(self, batch: dict[str, Any], *, fault: bool = False) -> None:
        """Queue a batch for `flush`; if the queue is full, the oldest batch is dropped."""
        if len(self.held) == _MAX_HELD_BATCHES:
            self.say(
                f"more than {_MAX_HELD_BATCHES} batches queued in memory: dropped the oldest one"
            )
        self.held.append((batch, fault))

    def flush(self) -> None:
        """Spool the queued batches; those that cannot be written stay queued."""
        while self.held:
            batch, fault = self.held[0]
            if not self.put(batch, fault=fault):
                return
            self.held.popleft()

    def put(self, batch: Mapping[str, Any], *, fault: bool = False) -> bool:
        """Spool a batch, log changes of the spool's state, and return whether it is on disk."""
        try:
            self.spool.put(batch, fault=fault)
        except SpoolError as error:
            if not self._unwritten:
                self.say(f"{error}; batches are queued in memory")
            self._unwritten = True
            return False
        if self._unwritten:
            self.say("the spool can be written again")
        self._unwritten = False
        if self.spool.dropped > self._dropped:
            self.say(f"the spool is full: {self.spool.dropped} batches evicted since the start")
        self._dropped = self.spool.dropped
        self.wake.set()
        return True
