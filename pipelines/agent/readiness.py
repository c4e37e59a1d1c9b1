"""What an agent last knew of damage to its hardware, in a file for `forewarn ready`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from forewarn.pipelines.agent.agent_state import AgentState
from forewarn.pipelines.config.agent_policy import CollectionPolicy
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["Readiness"]

READY_FILE: Final = "ready.json"
_LIFETIME_INTERVALS = 3  # as in `forewarn ready`
_POLLED_KINDS = ("lost", "needs_reset", "check")
_MAX_TEXT_LENGTH = 200  # characters
_HARDWARE = CollectionPolicy()  # a site may report other Xids, which say nothing of the hardware


@dataclass(slots=True)
class Readiness:
    """Recent statements about the hardware of a host, each replaced by a later equal one.

    Readings and the kernel log are followed in different threads.

    Attributes
    ----------
    state : AgentState
    machine : str
    """

    state: AgentState
    machine: str
    _faults: dict[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, events: Iterable[Mapping[str, Any]], *, now: int, interval: int) -> None:
        """Add events, such as lines of the kernel log, and write the file.

        Parameters
        ----------
        events : iterable of mapping
            Rows of events; those that do not prove damage are ignored.
        now, interval : int
            Time, and time between two readings, in nanoseconds.
        """
        with self._lock:
            self._faults |= {_key(event): event for event in events if _is_damage(event)}
            self._store(now, interval)

    def replace(self, events: Iterable[Mapping[str, Any]], *, now: int, interval: int) -> None:
        """Replace what earlier polls of the GPUs have shown, and write the file."""
        with self._lock:
            for key in [key for key in self._faults if key[0] in _POLLED_KINDS]:
                del self._faults[key]
        self.add(events, now=now, interval=interval)

    def _store(self, now: int, interval: int) -> None:
        oldest = now - _LIFETIME_INTERVALS * interval
        self._faults = {k: row for k, row in self._faults.items() if row["timestamp"] > oldest}
        content = {
            "machine": self.machine,
            "at": format_iso(now),
            "interval_seconds": interval / 1e9,
            "faults": [_statement(row) for row in self._faults.values()],
        }
        self.state.store(READY_FILE, json.dumps(content))


def _is_damage(event: Mapping[str, Any]) -> bool:
    return event["kind"] in ("lost", "needs_reset") or _HARDWARE.is_fatal(event)


def _key(event: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("kind", "code", "check", "gpu_uuid", "gpu_serial", "pci")
    return tuple(str(event.get(name, "")) for name in names)


def _statement(event: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": format_iso(event["timestamp"]),
        "kind": event["kind"],
        "code": event.get("code"),
        "gpu": event.get("gpu_uuid") or event.get("gpu_serial") or event.get("pci"),
        "text": str(event.get("raw", ""))[:_MAX_TEXT_LENGTH],
    }
