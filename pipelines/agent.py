"""An agent: reads the GPUs of its host, follows the kernel log, reports what fails."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forewarn.features.telemetry.blind import BlindWatch
from forewarn.features.telemetry.kernel_log import EventReader, KernelEvent, read_line
from forewarn.features.telemetry.proc import HostReading
from forewarn.features.telemetry.reading import GpuReading
from forewarn.features.telemetry.rows import (
    HostState,
    event_id,
    event_row,
    finding_row,
    reading_row,
)
from forewarn.pipelines.clock import Clock
from forewarn.pipelines.gpu_sources import (
    Answer,
    GpuSource,
    HangError,
    NoSourceError,
)
from forewarn.pipelines.log_follower import Followed, Follower, follower_of
from forewarn.pipelines.policy import AgentPolicy, Collection
from forewarn.pipelines.spool import Spool, write_whole

__all__ = ["Agent"]

_SECOND = 10**9
_LOOK = 1.0  # seconds between two looks at the kernel log
_LINES, _READINGS = 30, 3  # context of a fault report
_BATCH = 1000  # events in one batch, however fast a log grows
_LATE = 4  # a reading begun within this part of the interval is the scheduled one
_JUMP = 6  # intervals by which a clock may fall back before the schedule begins anew


@dataclass(slots=True)
class Agent:
    """All that an agent knows; every method may be called on its own by a test.

    Attributes
    ----------
    policy : AgentPolicy
    collection : Collection
        What to collect: the collector's word, the policy's until then.
    source : GpuSource
    spool : Spool
    clock : Clock
    say : callable
        Takes a line for people.
    proc : callable
        Returns what /proc says.
    ask : callable
        Returns what the collector wants to have collected; None if it does not answer.
    wake, stop : threading.Event
        There is something to send; it is over.
    """

    policy: AgentPolicy
    collection: Collection
    source: GpuSource
    spool: Spool
    clock: Clock
    say: Callable[[str], None]
    proc: Callable[[], HostReading]
    ask: Callable[[], Collection | None] = lambda: None
    wake: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    _follower: Follower | None = None
    _reader: EventReader = field(default_factory=EventReader)
    _log_read: bool | None = None
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    _recent: dict[str, deque[dict[str, Any]]] = field(default_factory=dict)
    _known: dict[str, GpuReading] = field(default_factory=dict)
    _missing: dict[str, GpuReading] = field(default_factory=dict)
    _trouble: str = ""
    _blind: BlindWatch = field(default_factory=BlindWatch)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        stored = self._load("gpus.json")
        for name, store in (("known", self._known), ("missing", self._missing)):
            for key, gpu in stored.get(name, {}).items():
                store[key] = GpuReading(**gpu)

    def close(self) -> None:
        """Close the kernel log."""
        if self._follower is not None:
            self._follower.close()

    # --- readings ------------------------------------------------------------------------------

    def collect(self, scheduled: int | None = None) -> list[dict[str, Any]]:
        """Read all GPUs once, spool their rows and what is wrong with them; return the rows.

        Parameters
        ----------
        scheduled : int, optional
            The moment that the reading is for, in nanoseconds: it takes a moment to begin.
        """
        now = self.clock.now()
        proc = self.proc() if "proc" in self.collection.sources else HostReading()
        time = now
        if scheduled is not None and now - scheduled < self.collection.interval // _LATE:
            time = scheduled
        host = HostState(self.policy.machine_id, time, proc, bool(self._log_read))
        answer = self._answer(host)
        if answer is None:
            return []
        with self._lock:
            rows = [reading_row(reading, host) for reading in answer.readings]
            for reading, row in zip(answer.readings, rows, strict=True):
                self._recent.setdefault(_key(reading), deque(maxlen=_READINGS)).append(row)
            events = self._compare(answer, host)
            events += self._blind_sensors(answer, host)
        if rows or events:
            self.spool.put({"readings": rows, "events": events})
            self.wake.set()
        for why, count in answer.unread.counts.items():
            self.say(f"left out: {count} times {why}, such as {answer.unread.examples[why]!r}")
        return rows

    def learn(self) -> None:
        """Learn which GPUs are here, so that what the kernel says of an address has a name."""
        host = HostState(self.policy.machine_id, self.clock.now())
        answer = self._answer(host)
        if answer is not None:
            with self._lock:
                back = self._compare(answer, host)
            if back:
                self.spool.put({"events": back})

    def _answer(self, host: HostState) -> Answer | None:
        """Ask the GPUs; that they do not answer is a finding, reported once until they do."""
        try:
            answer = self.source.read(self.collection.timeout / _SECOND)
        except (HangError, NoSourceError) as error:
            kind = "hang" if isinstance(error, HangError) else "blind"
            if self._trouble != kind:
                self._fault([finding_row(kind, str(error), host)])
            self._trouble = kind
            self.say(f"{kind}: {error}")
            return None
        self._trouble = ""
        return answer

    def _compare(self, answer: Answer, host: HostState) -> list[dict[str, Any]]:
        """Find GPUs that were here and are not; one whose place another one took was replaced."""
        here = {_key(reading): reading for reading in answer.readings}
        taken = {reading.pci for reading in answer.readings}
        gone = {k: g for k, g in self._known.items() if k not in here and g.pci not in taken}
        by_place = {gpu.pci: gpu for gpu in self._known.values()}
        gone |= {
            _key(gpu): gpu
            for pci in answer.lost
            if (gpu := by_place.get(pci, GpuReading(pci=pci))) and _key(gpu) not in here
        }
        for key in gone.keys() - self._missing.keys():
            self._fault(
                [finding_row("lost", "not among the GPUs of the host", host, gone[key])], key
            )
        back = [self._missing[key] for key in self._missing.keys() & here.keys()]
        self._known = {key: _identity(gpu) for key, gpu in here.items()}
        self._missing = {key: _identity(gpu) for key, gpu in gone.items()}
        self._known |= self._missing
        self._store("gpus.json", {"known": _plain(self._known), "missing": _plain(self._missing)})
        return [finding_row("back", "among the GPUs of the host again", host, g) for g in back]

    def _blind_sensors(self, answer: Answer, host: HostState) -> list[dict[str, Any]]:
        return [
            finding_row("blind", text, host, reading)
            for reading in answer.readings
            for text in self._blind.update(_key(reading), reading.numbers)
        ]

    # --- the kernel log ------------------------------------------------------------------------

    def follow(self) -> int:
        """Read what the kernel log has new and spool its events; return how many."""
        if "kernel_log" not in self.collection.sources:
            return 0
        try:
            if self._follower is None:
                self._follower = follower_of(self.policy.kernel_log, self._load("log.json"))
            followed = list(self._follower.lines())
        except OSError as error:
            self._log_unread(error)
            return 0
        self._log_read = True
        if not followed:
            return 0
        boot = self.proc().boot_time
        with self._lock:
            events = [row for line in followed for row in self._events(line, boot)]
        self._report(events)
        # Only now: lines that are read again give the same events, lines that are not are lost.
        self._store("log.json", self._follower.position())
        return len(events)

    def _log_unread(self, error: OSError) -> None:
        """Report once, until it can be read again, that the kernel log cannot."""
        if self._log_read is not False:
            text = f"the kernel log {self.policy.kernel_log} cannot be read: {error.strerror}"
            host = HostState(self.policy.machine_id, self.clock.now())
            self._fault([finding_row("blind", text, host)])
        self._log_read = False

    def _events(self, followed: Followed, boot: int | None) -> list[dict[str, Any]]:
        """Return the rows of what a line tells, each with the GPU that sits at its address."""
        now = self.clock.now()
        host = HostState(self.policy.machine_id, now)
        if followed.gap:
            return [finding_row("gap", followed.text, host)]
        line = read_line(followed.text, boot_time=boot, before=now)
        self._lines.append(line.message[:400])
        events = self._reader.events(line)
        return [self._event_row(event, followed.place, host) for event in events]

    def _event_row(self, event: KernelEvent, place: str, host: HostState) -> dict[str, Any]:
        if event.line.time is None:
            event = replace(event, line=replace(event.line, time=host.time))
        name = event_id(host.machine_id, event.line.message, place)
        row = event_row(event, host.machine_id, name)
        gpu = next((g for g in self._known.values() if g.pci and g.pci == event.pci), None)
        if gpu is not None:
            row |= {k: v for k, v in (("gpu_serial", gpu.serial), ("gpu_uuid", gpu.uuid)) if v}
        return row

    def _report(self, events: list[dict[str, Any]]) -> None:
        """Spool events: those that the policy calls fatal as a fault report, ahead of the rest."""
        fatal = [e for e in events if e["kind"] == "lost" or self._is_fatal(e)]
        others = [e for e in events if e not in fatal]
        by_gpu: dict[str | None, list[dict[str, Any]]] = {}
        for event in fatal:
            by_gpu.setdefault(event.get("gpu_serial") or event.get("gpu_uuid"), []).append(event)
        for gpu, some in by_gpu.items():
            self._fault(some, gpu)
        for start in range(0, len(others), _BATCH):
            self.spool.put({"events": others[start : start + _BATCH]})
            self.wake.set()

    def _is_fatal(self, event: Mapping[str, Any]) -> bool:
        return event["kind"] == "xid" and event.get("code") in self.collection.report_xids

    def _fault(self, events: list[dict[str, Any]], gpu: str | None = None) -> None:
        """Spool a fault report: the events with the last readings and log lines before them."""
        context = {"readings": list(self._recent.get(gpu or "", ())), "log": list(self._lines)}
        told = [events[0] | {"context": json.dumps(context)}, *events[1:]]
        for start in range(0, len(told), _BATCH):
            self.spool.put({"events": told[start : start + _BATCH]}, fault=True)
        self.wake.set()
        first, more = told[0], f" and {len(told) - 1} more" if len(told) > 1 else ""
        self.say(f"fault: {first['kind']} {first.get('code', '')} {first['raw'][:200]}{more}")

    # --- running -------------------------------------------------------------------------------

    def run(self) -> None:
        """Collect on schedule until `stop`; the kernel log is looked at every second."""
        reader = threading.Thread(target=self._collect_on_schedule, name="readings", daemon=True)
        reader.start()
        while not self.stop.is_set():
            self.follow()
            self.clock.wait(_LOOK, self.stop)
        reader.join(timeout=1)
        self.close()

    def _collect_on_schedule(self) -> None:
        self.learn()
        due = self._first_due(self.clock.now())
        while not self.stop.is_set():
            now = self.clock.now()
            if now < due:
                if due - now > _JUMP * self.collection.interval:  # the clock was set back far
                    due = _next_tick(now, self.collection.interval)
                    continue
                self.clock.wait(min((due - now) / _SECOND, 60.0), self.stop)
                continue
            if "gpu" in self.collection.sources:
                self.collect(due)
            self._store("schedule.json", {"last": due})
            # Never the same moment twice, though a clock may fall back.
            told = self.ask()
            self.collection = told or self.collection
            due = _next_tick(max(self.clock.now(), due + 1), self.collection.interval)

    def _first_due(self, now: int) -> int:
        """Return the next moment to read at: one that has just passed counts if it was missed."""
        interval = self.collection.interval
        last = int(self._load("schedule.json").get("last", 0))
        due = _next_tick(now - interval // _LATE, interval)
        return due if due > last or last - now > _JUMP * interval else last + interval

    # --- what outlives the process --------------------------------------------------------------

    def _load(self, name: str) -> dict[str, Any]:
        try:
            stored = json.loads((self.policy.state / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def _store(self, name: str, value: Mapping[str, Any]) -> None:
        write_whole(self.policy.state / name, json.dumps(value).encode())


def _key(reading: GpuReading) -> str:
    return reading.serial or reading.uuid or reading.pci or f"slot {reading.slot}"


def _identity(gpu: GpuReading) -> GpuReading:
    return GpuReading(serial=gpu.serial, uuid=gpu.uuid, pci=gpu.pci, slot=gpu.slot)


def _plain(gpus: Mapping[str, GpuReading]) -> dict[str, dict[str, Any]]:
    return {
        key: {"serial": g.serial, "uuid": g.uuid, "pci": g.pci, "slot": g.slot}
        for key, g in gpus.items()
    }


def _next_tick(now: int, interval: int) -> int:
    return -(-now // interval) * interval
