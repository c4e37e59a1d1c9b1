"""Batch intake: validates batches and writes those of many requests together (group commit)."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.telemetry_tables import (
    EVENTS,
    READINGS,
    TableError,
    batch_rows,
    build_table,
)
from forewarn.features.time_units import DAY
from forewarn.pipelines.collector.arrow_stream import read_stream
from forewarn.pipelines.collector.clock_error import ClockError
from forewarn.pipelines.collector.inbox import Inbox
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW, Clock
from forewarn.pipelines.serving.request_bodies import RefusedError, parse_json
from forewarn.pipelines.serving.tokens import TokenHolder

__all__ = ["ARROW", "JSON", "BatchIntake"]

_log = logging.getLogger("forewarn.collect")
ARROW, JSON = "application/vnd.apache.arrow.stream", "application/json"
_MAX_GROUP_BATCHES = 200
_MAX_GROUP_BYTES = (
    8 << 20
)  # unless a single batch is larger; rows in memory take many times as much
_MAX_BATCH_ROWS = 100_000  # an hour of a host has a few hundred
# JSON objects and lists take a hundred times their encoded size in memory.
_MAX_JSON_CONTAINERS = 2 * _MAX_BATCH_ROWS
_MAX_ROW_AGE = 30 * DAY  # every hour that a batch contains is rewritten


@dataclass(slots=True)
class _PendingBatch:
    """A request body and the future of its result."""

    body: bytes
    kind: str
    speaker: TokenHolder
    result: Future[dict[str, int]] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _ParsedBatch:
    """Content of a body: rows of JSON, or tables."""

    pending: _PendingBatch
    readings: Any
    events: Any

    def tables(self) -> tuple[pa.Table, pa.Table]:
        if isinstance(self.readings, pa.Table):
            return self.readings, self.events
        return build_table(self.readings, READINGS), build_table(self.events, EVENTS)


@dataclass(slots=True)
class BatchIntake:
    """Thread that stores the batches of requests.

    Building tables and waiting for the disk cost the same for one batch as for a hundred. Batches
    that arrive during a write are therefore stored together by the next one.

    Attributes
    ----------
    inbox : Inbox
    clock : Clock
    outdated : Inbox
        Stores rows older than 30 days for inspection; they do not become records.
    """

    inbox: Inbox
    clock: Clock
    outdated: Inbox
    _queue: queue.SimpleQueue[_PendingBatch | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="intake")
        self._thread.start()

    def stop(self) -> None:
        """Store the pending batches and stop the thread."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()

    def submit(self, body: bytes, kind: str, speaker: TokenHolder) -> Future[dict[str, int]]:
        """Queue a batch; the future returns its numbers of accepted and outdated rows.

        The future raises RefusedError if the batch is invalid.

        Parameters
        ----------
        body : bytes
        kind : str
            Content type: JSON or ARROW.
        speaker : Speaker
            Owner of the request's token.
        """
        pending = _PendingBatch(body, kind, speaker)
        self._queue.put(pending)
        return pending.result

    def is_alive(self) -> bool:
        """Return whether the thread is running."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        left: list[_PendingBatch | None] = []
        while (first := left.pop() if left else self._queue.get()) is not None:
            group = [first, *self._more(len(first.body), left)]
            try:
                self._keep(group)
            except Exception as error:  # such as a full disk: each request must get the error
                for pending in group:
                    if not pending.result.done():
                        pending.result.set_exception(error)

    def _more(self, size: int, left: list[_PendingBatch | None]) -> Iterator[_PendingBatch]:
        """Yield further batches for the same write; append one that does not fit to `left`."""
        for _ in range(_MAX_GROUP_BATCHES - 1):
            if self._queue.empty():
                return
            pending = self._queue.get()
            size += 0 if pending is None else len(pending.body)
            if pending is None or size > _MAX_GROUP_BYTES:
                left.append(pending)
                return
            yield pending

    def _keep(self, group: Sequence[_PendingBatch]) -> None:
        """Validate and write a group, then resolve the future of each batch."""
        opened = [batch for pending in group if (batch := _parse_batch(pending)) is not None]
        # Arrow after JSON, whose rows are merged into one table.
        opened.sort(key=lambda batch: isinstance(batch.readings, pa.Table))
        opened, readings, events = _merge_batches(opened)
        events = _with_vouchers(events, opened)
        now = self.clock.now()
        tables = [_GroupRows.from_table(readings), _GroupRows.from_table(events)]
        answers = []
        for batch in opened:
            lengths = (len(batch.readings), len(batch.events))
            parts = [rows.following(length) for rows, length in zip(tables, lengths, strict=True)]
            try:
                answers.append((batch.pending.result, _check_batch(batch.pending, parts, now)))
            except RefusedError as refused:
                for part in parts:
                    part.rows.taken[part.span] = False
                batch.pending.result.set_exception(refused)
        old, new = zip(*(rows.split(now - _MAX_ROW_AGE) for rows in tables), strict=True)
        self.outdated.put(old[0], old[1], now)
        self.inbox.put(new[0], new[1], now)
        for answered, answer in answers:
            answered.set_result(answer)


def _with_vouchers(events: pa.Table, opened: Sequence[_ParsedBatch]) -> pa.Table:
    """Set the voucher of each event, whatever its sender claims."""
    vouched = [batch.pending.speaker.vouched for batch in opened for _ in range(len(batch.events))]
    index = EVENTS.get_field_index("vouched")
    return events.set_column(index, EVENTS.field(index), pa.array(vouched, pa.string()))


@dataclass(slots=True)
class _GroupRows:
    """Rows of several batches, and which of them are accepted."""

    table: pa.Table
    times: npt.NDArray[np.int64]
    taken: npt.NDArray[np.bool_]
    end: int = 0

    @classmethod
    def from_table(cls, table: pa.Table) -> _GroupRows:
        times = table["timestamp"].cast(pa.int64()).to_numpy()
        return cls(table, times, np.ones(len(table), dtype=np.bool_))

    def following(self, length: int) -> _BatchRows:
        """Return the rows of the next batch."""
        start, self.end = self.end, self.end + length
        return _BatchRows(self, slice(start, self.end))

    def split(self, moment: int) -> tuple[pa.Table, pa.Table]:
        """Return the accepted rows before a time, and those since."""
        old = self.times < moment
        new = self.taken & ~old
        since = self.table if new.all() else self.table.filter(new)
        return self.table.filter(self.taken & old), since


@dataclass(frozen=True, slots=True)
class _BatchRows:
    """Rows of one batch within a group."""

    rows: _GroupRows
    span: slice

    def times(self) -> npt.NDArray[np.int64]:
        return self.rows.times[self.span]

    def hosts(self) -> list[str | None]:
        column = self.rows.table["machine_id"].slice(self.span.start, len(self.times()))
        names: list[str | None] = pc.unique(column).to_pylist()
        return names

    def newest(self) -> tuple[int, str]:
        """Return time and host of the newest row."""
        row = self.span.start + int(self.times().argmax())
        return int(self.rows.times[row]), self.rows.table["machine_id"][row].as_py() or "no host"


def _check_batch(pending: _PendingBatch, parts: Sequence[_BatchRows], now: int) -> dict[str, int]:
    """Return the answer to the sender of a batch, or raise RefusedError."""
    parts = [part for part in parts if len(part.times())]
    for host in {host for part in parts for host in part.hosts()}:
        if not pending.speaker.speaks_for(host):
            raise RefusedError(403, f"the token of {pending.speaker.site} is not valid for {host}")
    time, host = max((part.newest() for part in parts), default=(now, ""))
    if time > now + MAX_CLOCK_SKEW:
        raise ClockError(host, time - now, now)
    total = sum(len(part.times()) for part in parts)
    old = sum(int((part.times() < now - _MAX_ROW_AGE).sum()) for part in parts)
    if old:
        _log.warning("%s: %d rows older than 30 days, moved aside", pending.speaker.site, old)
    return {"rows": total - old, "too_old": old}


def _parse_batch(pending: _PendingBatch) -> _ParsedBatch | None:
    """Parse a body, or refuse it and return None."""
    try:
        if pending.kind not in (JSON, ARROW):
            raise RefusedError(415, f"content-type {pending.kind!r}, expected {JSON} or {ARROW}")
        parts = (
            batch_rows(parse_json(pending.body, _MAX_JSON_CONTAINERS))
            if pending.kind == JSON
            else read_stream(pending.body)
        )
        rows = sum(map(len, parts))
        if rows > _MAX_BATCH_ROWS:
            raise RefusedError(413, f"a batch of {rows} rows, expected at most {_MAX_BATCH_ROWS}")
        return _ParsedBatch(pending, *parts)
    except RefusedError as refused:
        pending.result.set_exception(refused)
    except TableError as error:
        pending.result.set_exception(RefusedError(422, str(error)))
    return None


def _merge_batches(opened: list[_ParsedBatch]) -> tuple[list[_ParsedBatch], pa.Table, pa.Table]:
    """Return the valid batches with their merged tables, and refuse the others."""
    try:
        rows = [batch for batch in opened if not isinstance(batch.readings, pa.Table)]
        json_batch = _ParsedBatch(
            _PendingBatch(b"", JSON, TokenHolder("")),
            [row for batch in rows for row in batch.readings],
            [row for batch in rows for row in batch.events],
        )
        parts = [json_batch.tables(), *(batch.tables() for batch in opened[len(rows) :])]
    except TableError as error:
        if len(opened) == 1:
            opened[0].pending.result.set_exception(RefusedError(422, str(error)))
            return [], READINGS.empty_table(), EVENTS.empty_table()
        singly = [_merge_batches([batch]) for batch in opened]
        opened = [batch for good, _, _ in singly for batch in good]
        parts = [(readings, events) for good, readings, events in singly if good]
    none = (READINGS.empty_table(), EVENTS.empty_table())
    readings, events = (pa.concat_tables(tables) for tables in zip(none, *parts, strict=True))
    return opened, readings, events
