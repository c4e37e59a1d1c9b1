"""Rate limit of fatal events: a few per interval are reported, the rest is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.telemetry.telemetry_rows import event_id

__all__ = ["FaultRateLimit"]

_MAX_EVENTS_PER_INTERVAL = 3  # per kind, code and GPU
_MAX_KEYS = 1000  # (kind, code, GPU) keys counted at once
_MAX_SHOWN_CHARS = 200
_COPIED_COLUMNS = ("timestamp", "machine_id", "pci", "gpu_serial", "gpu_uuid")
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Count:
    tick: int
    events: int
    last: Mapping[str, Any]


@dataclass(slots=True)
class FaultRateLimit:
    """Bounds the events of a GPU that repeats itself, but reports it in every interval.

    A GPU that fell off the bus can log the same line a thousand times per second. A record needs
    one of them per interval, and a person needs the first ones.
    """

    _counts: dict[_Key, _Count] = field(default_factory=dict)

    def copy(self) -> FaultRateLimit:
        """Return a copy that can be discarded if its events cannot be written to disk."""
        return FaultRateLimit(self._counts.copy())

    def filter_events(
        self, rows: Iterable[dict[str, Any]], interval: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the events to report, and a `suppressed` event for the rest of each past interval.

        Parameters
        ----------
        rows : iterable of dict
            Rows of EVENTS.
        interval : int
            Nanoseconds.
        """
        for row in rows:
            key, tick = _key(row), row["timestamp"] // interval
            count = self._counts.get(key)
            if count is None or count.tick != tick:
                yield from self._end(key)
                if len(self._counts) >= _MAX_KEYS:
                    yield from self.finish_intervals(None, interval)
            events = 1 + (count.events if count is not None and count.tick == tick else 0)
            self._counts[key] = _Count(tick, events, row)
            if events <= _MAX_EVENTS_PER_INTERVAL:
                yield row

    def finish_intervals(self, now: int | None, interval: int) -> Iterator[dict[str, Any]]:
        """Yield the counts of intervals that have ended, or of all intervals if `now` is None."""
        for key, count in [*self._counts.items()]:
            if now is None or count.tick < now // interval:
                yield from self._end(key)

    def _end(self, key: _Key) -> Iterator[dict[str, Any]]:
        count = self._counts.pop(key, None)
        if count is None or count.events <= _MAX_EVENTS_PER_INTERVAL:
            return
        left, last = count.events - _MAX_EVENTS_PER_INTERVAL, count.last
        kind = f"{last['kind']} {last.get('code', '')}".strip()
        yield {name: last[name] for name in _COPIED_COLUMNS if name in last} | {
            "id": event_id(last["id"], "suppressed"),
            "kind": "suppressed",
            "count": left,
            "raw": f"{left} more of {kind} in one interval, last: {last['raw'][:_MAX_SHOWN_CHARS]}",
        }


def _key(row: Mapping[str, Any]) -> _Key:
    return row["kind"], row.get("code"), row.get("pci")
