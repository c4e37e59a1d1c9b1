"""Agent of a host: reads its GPUs, follows the kernel log, and reports faults."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.proc_files import HostReading
from forewarn.features.telemetry.silent_sensors import SilentSensorMonitor
from forewarn.features.telemetry.telemetry_rows import (
    HostState,
    check_row,
    finding_row,
    reading_row,
    state_row,
)
from forewarn.features.time_units import SECOND
from forewarn.pipelines.agent.agent_state import (
    AgentState,
    GpuInventoryFile,
    LogPositionFile,
    ScheduleFile,
)
from forewarn.pipelines.agent.collection_schedule import (
    first_due,
    is_far_ahead,
    is_on_time,
    next_tick,
)
from forewarn.pipelines.agent.damage_watch import DamageWatch
from forewarn.pipelines.agent.fault_context import FaultContext
from forewarn.pipelines.agent.fault_rate_limit import FaultRateLimit
from forewarn.pipelines.agent.gpu_inventory import GpuInventory, InventoryChange, gpu_key
from forewarn.pipelines.agent.health_changes import HealthChanges
from forewarn.pipelines.agent.kernel_log_events import KernelLogEvents
from forewarn.pipelines.agent.kernel_log_follower import Follower, open_follower
from forewarn.pipelines.agent.outbox import Outbox
from forewarn.pipelines.agent.port_counter_events import PortCounterEvents
from forewarn.pipelines.agent.readiness import Readiness
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, GpuSource, HangError, NoSourceError
from forewarn.pipelines.agent.sources.pci_bus import PciBus
from forewarn.pipelines.agent.spool import Spool
from forewarn.pipelines.config.agent_policy import AgentPolicy, CollectionPolicy
from forewarn.pipelines.runtime.clock import Clock

__all__ = ["Agent"]

_LOG_POLL_SECONDS = 1.0
_MAX_LINES_PER_READ = 1000  # bounds memory when the log grows fast


@dataclass(slots=True)
class Agent:
    """State and operations of an agent; tests call the methods individually.

    Attributes
    ----------
    policy : AgentPolicy
    collection : Collection
        What to collect: the collector's answer, or the policy's value until there is one.
    source : GpuSource
    spool : Spool
    clock : Clock
    say : callable
        Writes a line to the agent's log.
    proc : callable
        Returns the values of /proc.
    ports : PortCounterEvents
    ask : callable
        Returns what the collector wants to have collected; None if it does not answer.
    watched : GpuSource or None
        What `watch` polls; None if only programs can read the GPUs.
    wake, stop : threading.Event
        Set when there is something to send, and when the agent has to stop.
    """

    policy: AgentPolicy
    collection: CollectionPolicy
    source: GpuSource
    spool: Spool
    clock: Clock
    say: Callable[[str], None]
    proc: Callable[[], HostReading]
    ports: PortCounterEvents
    ask: Callable[[], CollectionPolicy | None] = lambda: None
    watched: GpuSource | None = None
    wake: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    _follower: Follower | None = None
    _log_read: bool | None = None
    _inventory: GpuInventory = field(default_factory=GpuInventory)
    _rate_limit: FaultRateLimit = field(default_factory=FaultRateLimit)
    _trouble: str = ""
    _states: dict[str, str | None] = field(default_factory=dict)
    _blind: SilentSensorMonitor = field(default_factory=SilentSensorMonitor)
    _damage: DamageWatch = field(default_factory=DamageWatch)
    _bus: PciBus = field(default_factory=PciBus)
    _watched_at: int = 0
    _health: HealthChanges = field(default_factory=HealthChanges)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _context: FaultContext = field(init=False)
    _log_events: KernelLogEvents = field(init=False)
    _state: AgentState = field(init=False)
    _outbox: Outbox = field(init=False)
    _readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        self._context = FaultContext(self._lock)
        self._log_events = KernelLogEvents(
            self.policy.machine_id, self.proc, self._inventory, self._context
        )
        self._outbox = Outbox(self.spool, self.say, self.wake)
        self._state = AgentState(self.policy.state, self.say)
        self._readiness = Readiness(self._state, self.policy.machine_id)
        stored = self._state.load("gpus.json", GpuInventoryFile) or GpuInventoryFile()
        self._inventory.known, self._inventory.missing = stored.readings()

    def close(self) -> None:
        """Close the kernel log; the next follower continues at the last stored position."""
        if self._follower is not None:
            self._follower.close()
        self._follower = None

    # --- readings ------------------------------------------------------------------------------

    def collect(self, scheduled: int | None = None) -> list[dict[str, Any]]:
        """Read all GPUs once, spool their rows and events, and return the rows.

        Parameters
        ----------
        scheduled : int, optional
            Scheduled time in nanoseconds, which becomes the timestamp if the reading starts soon
            after it.
        """
        now = self.clock.now()
        proc = HostReading()
        if "proc" in self.collection.sources:
            proc = replace(self.proc(), ports=self.ports.rates(now))
        time = now
        if scheduled is not None and is_on_time(now, scheduled, self.collection.interval):
            time = scheduled
        host = HostState(self.policy.machine_id, time, proc, bool(self._log_read))
        if "proc" in self.collection.sources and (events := self.ports.rows(host)):
            self._outbox.hold({"events": events})
        answer = self._answer(host)
        rows: list[dict[str, Any]] = []
        if answer is not None:
            self._damage.update(answer.readings)
            with self._lock:
                rows = [reading_row(reading, host) for reading in answer.readings]
                for reading, row in zip(answer.readings, rows, strict=True):
                    self._context.add_reading(gpu_key(reading), row)
                events = self._blind_sensors(answer, host)
            events = self._update_inventory(answer, host) + events
            self._report_recoveries(answer, host)
            for row in self._health.rows(answer.checks, host):
                if self.collection.is_fatal(row):
                    self._hold_fault([row], row.get("gpu_uuid") or row.get("gpu_serial"))
                else:
                    events.append(row)
            if rows or events:
                self._outbox.hold({"readings": rows, "events": events})
            self._log_skipped(answer.unread)
        self._update_readiness(answer, host)
        self._outbox.flush()
        return rows

    def _update_readiness(self, answer: GpuPoll | None, host: HostState) -> None:
        """Write what is known of damage; without a complete answer nothing has ended."""
        span = {"now": self.clock.now(), "interval": self.collection.interval}
        if answer is None or answer.trouble:
            self._readiness.add([], **span)
            return
        lost = [finding_row("lost", "", host, gpu) for gpu in self._inventory.missing.values()]
        states = [state_row(reading, host) for reading in answer.readings]
        failed = [check_row(result, host) for result in answer.checks if result.severity != "ok"]
        self._readiness.replace([*lost, *filter(None, states), *failed], **span)

    def watch(self) -> None:
        """Look for damage between two readings.

        Ports, lost GPUs and GPUs that need a recovery are reported as at a reading. A value that
        shows damage leads to a reading at once. Nothing else is sent, so silence is not health.
        """
        self._watched_at = now = self.clock.now()
        host = HostState(self.policy.machine_id, now, log_read=bool(self._log_read))
        events = self.ports.rows(host) if "proc" in self.collection.sources else []
        worse: list[str] = []
        if (answer := self._watched_gpus(host)) is not None:
            events += self._update_inventory(answer, host)
            self._report_recoveries(answer, host)
            worse = self._damage.update(answer.readings)
        if self.watched is None:
            worse = self._bus.gone(gpu.pci for gpu in self._inventory.known.values())
        if events:
            self._outbox.hold({"events": events})
        if worse:
            self.say(f"damage, reading at once: {'; '.join(worse)}")
            self.collect()
        self._outbox.flush()

    def _watched_gpus(self, host: HostState) -> GpuPoll | None:
        """Poll the GPUs between two readings; None without a complete answer.

        Only a hang is reported here. Anything else is left to the reading, which may have another
        program to ask.
        """
        if self.watched is None:
            return None
        try:
            answer = self.watched.read(self.collection.timeout / SECOND)
        except HangError as error:
            self._inventory.record_no_response()
            if self._trouble != "hang":
                self._report_trouble("hang", error, host)
            return None
        except NoSourceError:
            return None
        return None if answer.trouble else answer

    def _report_recoveries(self, answer: GpuPoll, host: HostState) -> None:
        """Report that a GPU needs a recovery, once until its state changes."""
        for reading in answer.readings:
            key, event = gpu_key(reading), state_row(reading, host)
            state = None if event is None else event["raw"]
            if event is not None and self._states.get(key) != state:
                self._hold_fault([event], key)
            self._states[key] = state

    def _log_skipped(self, unread: Unread) -> None:
        for why, count in unread.counts.items():
            self.say(f"skipped {count} times: {why}, such as {unread.examples[why]!r}")

    def learn(self) -> None:
        """Read the GPUs of the host, so that addresses in the kernel log can be mapped to GPUs."""
        host = HostState(self.policy.machine_id, self.clock.now())
        answer = self._answer(host)
        if answer is not None and (back := self._update_inventory(answer, host)):
            self._outbox.hold({"events": back})
        self._outbox.flush()

    def _answer(self, host: HostState) -> GpuPoll | None:
        """Poll the GPUs; a missing answer is a finding but says nothing about single GPUs."""
        try:
            return self.source.read(self.collection.timeout / SECOND)
        except (HangError, NoSourceError) as error:
            self._inventory.record_no_response()
            self._report_trouble("hang" if isinstance(error, HangError) else "blind", error, host)
            return None

    def _report_trouble(self, kind: str, why: object, host: HostState) -> None:
        """Report that GPUs do not answer, once until they do."""
        if self._trouble != kind:
            self._hold_fault([finding_row(kind, str(why), host)])
        self._trouble = kind
        self.say(f"{kind}: {why}")

    def _update_inventory(self, answer: GpuPoll, host: HostState) -> list[dict[str, Any]]:
        """Report GPUs that are lost; return the events of GPUs that are back."""
        with self._lock:
            change: InventoryChange = self._inventory.update(answer, host.time)
            stored = GpuInventoryFile.from_readings(self._inventory.known, self._inventory.missing)
        for gpu, since in change.lost:
            state = replace(host, time=since)
            row = finding_row("lost", "not among the GPUs of the host", state, gpu)
            self._hold_fault([row], gpu_key(gpu))
        if change.blind:
            self._report_trouble("blind", change.blind, host)
        else:
            self._trouble = ""
        self._state.store("gpus.json", stored.model_dump_json())
        return [
            finding_row("back", "among the GPUs of the host again", host, g) for g in change.back
        ]

    def store_events(self, events: list[dict[str, Any]]) -> bool:
        """Spool events of another source; return whether they are on disk."""
        return self._outbox.put({"events": events})

    def _hold_fault(self, events: list[dict[str, Any]], gpu: str | None = None) -> None:
        self._outbox.hold(self._context.report(events, gpu, self._tick()), fault=True)
        self._note_fault(events, gpu)

    def _blind_sensors(self, answer: GpuPoll, host: HostState) -> list[dict[str, Any]]:
        return [
            finding_row("blind", text, host, reading)
            for reading in answer.readings
            for text in self._blind.update(gpu_key(reading), reading.numbers)
        ]

    # --- the kernel log ------------------------------------------------------------------------

    def follow(self) -> int:
        """Read new lines of the kernel log, spool their events, and return the number of events."""
        if "kernel_log" not in self.collection.sources:
            return 0
        count = 0
        try:
            lines = self._open_log().lines()
            while some := list(islice(lines, _MAX_LINES_PER_READ)):
                events = self._log_events.rows(some, self.clock)
                self._log_skipped(self._log_events.unread)
                self._log_events.unread = Unread()
                if not self._report(events):
                    self.close()  # restart from the last stored position
                    return count
                count += len(events)
                # Stored last: lines that are read twice give the same event ids, but skipped lines
                # are lost.
                self._store_position()
                if self.stop.is_set():
                    return count
        except OSError as error:
            self._report_unreadable_log(error)
            return count
        if (held := self._log_events.held(self.clock)) and self._report(held):
            count += len(held)
        self._log_read = True
        self._report_ended(self.clock.now())
        return count

    def _open_log(self) -> Follower:
        if self._follower is None:
            stood = self._state.load("log.json", LogPositionFile) or LogPositionFile()
            self._follower = open_follower(self.policy.kernel_log, stood.model_dump())
        return self._follower

    def _store_position(self) -> None:
        if self._follower is not None:
            self._state.store("log.json", json.dumps(self._follower.position()))

    def _report_unreadable_log(self, error: OSError) -> None:
        """Report that the kernel log cannot be read, once until it can."""
        self.close()
        if self._log_read is not False:
            why = error.strerror or type(error).__name__
            text = f"the kernel log {self.policy.kernel_log} cannot be read: {why}"
            host = HostState(self.policy.machine_id, self.clock.now())
            if not self._spool_fault([finding_row("blind", text, host)]):
                return
        self._log_read = False

    def _report(self, events: list[dict[str, Any]]) -> bool:
        """Spool events, fatal ones first as fault reports; return whether all of them are on disk.

        The collection policy decides which events are fatal.
        """
        others = [event for event in events if not self.collection.is_fatal(event)]
        fatal = (event for event in events if self.collection.is_fatal(event))
        by_gpu: dict[str | None, list[dict[str, Any]]] = {}
        rate_limit = self._rate_limit.copy()
        for event in rate_limit.filter_events(fatal, self.collection.interval):
            if event["kind"] == "suppressed":
                others.append(event)
            else:
                gpu = event.get("gpu_uuid") or event.get("gpu_serial")
                by_gpu.setdefault(gpu, []).append(event)
        if not all(self._spool_fault(some, gpu) for gpu, some in by_gpu.items()):
            return False
        if others and not self._outbox.put({"events": others}):
            return False
        self._rate_limit = rate_limit
        return True

    def _report_ended(self, now: int | None) -> None:
        """Spool the counts of suppressed fatal events of past intervals."""
        rate_limit = self._rate_limit.copy()
        ended = list(rate_limit.finish_intervals(now, self.collection.interval))
        if not ended or self._outbox.put({"events": ended}):
            self._rate_limit = rate_limit

    def _spool_fault(self, events: list[dict[str, Any]], gpu: str | None = None) -> bool:
        """Spool a fault report; return whether it is on disk."""
        if not self._outbox.put(self._context.report(events, gpu, self._tick()), fault=True):
            return False
        self._note_fault(events, gpu)
        return True

    def _note_fault(self, events: list[dict[str, Any]], gpu: str | None) -> None:
        self._context.count(gpu, self._tick())
        self._readiness.add(events, now=self.clock.now(), interval=self.collection.interval)
        first, more = events[0], f" and {len(events) - 1} more" if len(events) > 1 else ""
        self.say(f"fault: {first['kind']} {first.get('code', '')} {first['raw'][:200]}{more}")

    def _tick(self) -> int:
        return self.clock.now() // self.collection.interval

    # --- running -------------------------------------------------------------------------------

    def follow_log(self) -> None:
        """Poll the kernel log every second until `stop` is set."""
        while not self.stop.is_set():
            self.follow()
            self.clock.wait(_LOG_POLL_SECONDS, self.stop)
        self._report_ended(None)

    def collect_on_schedule(self) -> None:
        """Collect at every full interval until `stop` is set."""
        self.learn()
        stored = self._state.load("schedule.json", ScheduleFile) or ScheduleFile()
        due = first_due(self.clock.now(), stored.last, self.collection.interval)
        while not self.stop.is_set():
            now = self.clock.now()
            if now < due:
                if is_far_ahead(due, now, self.collection.interval):  # the clock was set back
                    due = next_tick(now, self.collection.interval)
                    continue
                self._outbox.flush()
                most = _LOG_POLL_SECONDS if self._outbox.held else 60.0
                most = min(most, self._watch_if_due(now) / SECOND)
                self.clock.wait(min((due - now) / SECOND, most), self.stop)
                continue
            if "gpu" in self.collection.sources:
                self.collect(due)
            if not self._outbox.held:
                self._state.store("schedule.json", ScheduleFile(last=due).model_dump_json())
            # Never the same time twice, even if the clock is set back.
            collection = self.ask()
            self.collection = collection or self.collection
            due = next_tick(max(self.clock.now(), due + 1), self.collection.interval)

    def _watch_if_due(self, now: int) -> int:
        """Watch the hardware if it is time; return the nanoseconds until the next time."""
        every = self.collection.hardware_every
        if every is None or "gpu" not in self.collection.sources:
            return self.collection.interval
        since = now - self._watched_at
        if not 0 <= since < every:  # also if the clock was set back
            self.watch()
            return every
        return every - since
