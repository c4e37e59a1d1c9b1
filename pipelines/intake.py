"""Checks batches and keeps them, those of many requests with one write to disk."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.telemetry.tables import (
    EVENTS,
    READINGS,
    TableError,
    batch_rows,
    table_of,
)
from forewarn.pipelines.arrow_body import read_stream
from forewarn.pipelines.clock import Clock
from forewarn.pipelines.inbox import Inbox

__all__ = ["ARROW", "JSON", "Intake", "RefusedError"]

_log = logging.getLogger("forewarn.collect")
ARROW, JSON = "application/vnd.apache.arrow.stream", "application/json"
_AHEAD = 86_400 * 10**9  # a clock that is a day ahead is wrong, and would make partitions to come
_MOST = 200  # batches kept at once


class RefusedError(Exception):
    """A request that is not taken: status and reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(slots=True)
class _Offer:
    """One body, and whoever waits for what becomes of it."""

    body: bytes
    kind: str
    site: str
    kept: Future[dict[str, int]] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a body holds: rows of JSON, or tables."""

    offer: _Offer
    readings: Any
    events: Any

    def tables(self) -> tuple[pa.Table, pa.Table]:
        if isinstance(self.readings, pa.Table):
            return self.readings, self.events
        return table_of(self.readings, READINGS), table_of(self.events, EVENTS)


@dataclass(slots=True)
class Intake:
    """A thread that keeps what requests bring.

    Making tables and waiting for the disk cost the same for one batch as for a hundred, so what
    came in while the last write was on its way is kept with the next one.

    Attributes
    ----------
    inbox : Inbox
    clock : Clock
    """

    inbox: Inbox
    clock: Clock
    _offers: queue.SimpleQueue[_Offer | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to keep batches."""
        self._thread = threading.Thread(target=self._run, name="intake")
        self._thread.start()

    def stop(self) -> None:
        """Keep what was offered, and end."""
        self._offers.put(None)
        if self._thread is not None:
            self._thread.join()

    def offer(self, body: bytes, kind: str, site: str) -> Future[dict[str, int]]:
        """Offer a batch; the result comes when it is on disk: rows taken, and of the future.

        The future raises RefusedError if the batch is none.

        Parameters
        ----------
        body : bytes
        kind : str
            Content type: JSON or ARROW.
        site : str
            For the log.
        """
        one = _Offer(body, kind, site)
        self._offers.put(one)
        return one.kept

    def _run(self) -> None:
        while (first := self._offers.get()) is not None:
            group = [first]
            while len(group) < _MOST and not self._offers.empty():
                more = self._offers.get()
                if more is None:
                    self._offers.put(None)  # for the loop above, after this group
                    break
                group.append(more)
            try:
                self._keep(group)
            except Exception as error:  # a full disk: whoever waits has to hear of it
                for one in group:
                    if not one.kept.done():
                        one.kept.set_exception(error)

    def _keep(self, group: Sequence[_Offer]) -> None:
        """Check and write a group, then answer each of it."""
        opened = [one for offer in group if (one := _opened(offer)) is not None]
        # Arrow comes after JSON, whose rows become one table.
        opened.sort(key=lambda one: isinstance(one.readings, pa.Table))
        opened, readings, events = _joined(opened)
        if not opened:
            return
        now = self.clock.now()
        in_time = [_until(table, now + _AHEAD) for table in (readings, events)]
        self.inbox.put(readings.filter(in_time[0]), events.filter(in_time[1]), now)
        for one, (taken, ahead) in zip(opened, _counts(opened, in_time), strict=True):
            if ahead:
                _log.warning("%s: %d rows of the future: a clock is wrong", one.offer.site, ahead)
            one.offer.kept.set_result({"rows": taken, "of_the_future": ahead})


def _opened(offer: _Offer) -> _Opened | None:
    """Open a body, or refuse it."""
    try:
        if offer.kind == JSON:
            return _Opened(offer, *batch_rows(_json(offer.body)))
        if offer.kind == ARROW:
            return _Opened(offer, *read_stream(offer.body))
        why = f"content-type {offer.kind!r}, expected {JSON} or {ARROW}"
        offer.kept.set_exception(RefusedError(415, why))
    except RefusedError as refused:
        offer.kept.set_exception(refused)
    except TableError as error:
        offer.kept.set_exception(RefusedError(422, str(error)))
    return None


def _joined(opened: list[_Opened]) -> tuple[list[_Opened], pa.Table, pa.Table]:
    """Return the tables of all that are good, and refuse the rest."""
    try:
        rows = [one for one in opened if not isinstance(one.readings, pa.Table)]
        one_table = _Opened(
            _Offer(b"", JSON, ""),
            [row for one in rows for row in one.readings],
            [row for one in rows for row in one.events],
        )
        parts = [one_table.tables(), *(one.tables() for one in opened[len(rows) :])]
    except TableError as error:
        if len(opened) == 1:
            opened[0].offer.kept.set_exception(RefusedError(422, str(error)))
            return [], READINGS.empty_table(), EVENTS.empty_table()
        singly = [_joined([one]) for one in opened]
        opened = [one for good, _, _ in singly for one in good]
        parts = [(readings, events) for good, readings, events in singly if good]
    none = (READINGS.empty_table(), EVENTS.empty_table())
    readings, events = (pa.concat_tables(tables) for tables in zip(none, *parts, strict=True))
    return opened, readings, events


def _json(body: bytes) -> Any:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no JSON")

    try:
        return json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"no JSON ({str(error)[:80]})") from None


def _until(table: pa.Table, moment: int) -> npt.NDArray[np.bool_]:
    before: npt.NDArray[np.bool_] = table["timestamp"].cast(pa.int64()).to_numpy() <= moment
    return before


def _counts(
    opened: Sequence[_Opened], in_time: Sequence[npt.NDArray[np.bool_]]
) -> list[tuple[int, int]]:
    """Return for each batch how many of its rows are taken, and how many are of the future."""
    found, starts = [], [0, 0]
    for one in opened:
        taken = rows = 0
        for place, part in enumerate((one.readings, one.events)):
            end = starts[place] + len(part)
            taken += int(in_time[place][starts[place] : end].sum())
            rows += len(part)
            starts[place] = end
        found.append((taken, rows - taken))
    return found
