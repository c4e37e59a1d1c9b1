"""A storm of fatal events: the first few of each interval are reported, the rest is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.telemetry.telemetry_rows import event_id

__all__ = ["FaultRateLimit"]

_MAX_EVENTS_PER_INTERVAL = 3  # events of one kind, code and GPU in an interval
_MAX_KEYS = 1000  # kinds, codes and GPUs counted at once
_MAX_SHOWN_CHARS = 200  # characters of the last line
_COPIED_COLUMNS = ("timestamp", "machine_id", "pci", "gpu_serial", "gpu_uuid")
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Count:
    tick: int
    events: int
    last: Mapping[str, Any]


@dataclass(slots=True)
class FaultRateLimit:
    """Lets a GPU that repeats itself be heard in every interval, at a bounded price.

    A GPU that fell off the bus can write the same line a thousand times a second. A record needs
    one of them in each interval, a person the first ones.
    """

    _counts: dict[_Key, _Count] = field(default_factory=dict)

    def copy(self) -> FaultRateLimit:
        """Return one that counts on from here: what it yields may not get onto the disk."""
        return FaultRateLimit(self._counts.copy())

    def filter_events(
        self, rows: Iterable[dict[str, Any]], interval: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the events to report, and one of kind `suppressed` for those of a past interval.

        Parameters
        ----------
        rows : iterable of dict
            Of EVENTS.
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
        """Yield what was counted in intervals that are over; in all of them where `now` is None."""
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
            "raw": f"{left} more of {kind} in one interval, the last one: {last['raw'][:_MAX_SHOWN_CHARS]}",
        }


def _key(row: Mapping[str, Any]) -> _Key:
    return row["kind"], row.get("code"), row.get("pci")
