"""Events of the kernel log, each with the GPU at its PCI address."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from forewarn.features.telemetry.event_folding import NoticeFolder
from forewarn.features.telemetry.parsers.event_reader import EventReader
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.kernel_event import KernelEvent
from forewarn.features.telemetry.parsers.kernel_log import note_unread
from forewarn.features.telemetry.parsers.log_line import LogLine, read_line
from forewarn.features.telemetry.parsers.log_time import HostClock
from forewarn.features.telemetry.parsers.proc_files import HostReading
from forewarn.features.telemetry.telemetry_rows import HostState, event_id, event_row, finding_row
from forewarn.pipelines.agent.fault_context import FaultContext
from forewarn.pipelines.agent.gpu_inventory import GpuInventory
from forewarn.pipelines.agent.kernel_log_follower import FollowedLine
from forewarn.pipelines.runtime.clock import Clock

__all__ = ["KernelLogEvents"]


@dataclass(slots=True)
class KernelLogEvents:
    """Converter of log lines to event rows; adds the lines to the fault context.

    Attributes
    ----------
    machine_id : str
    proc : callable
        Returns the values of /proc.
    inventory : GpuInventory
        Provides the GPU at an address.
    context : FaultContext
    unread : Unread
        Lines with an Xid that could not be parsed.
    """

    machine_id: str
    proc: Callable[[], HostReading]
    inventory: GpuInventory
    context: FaultContext
    unread: Unread = field(default_factory=Unread)
    _reader: EventReader = field(default_factory=EventReader)
    _folder: NoticeFolder = field(default_factory=NoticeFolder)
    _last: LogLine | None = None

    def rows(self, lines: Iterable[FollowedLine], clock: Clock) -> list[dict[str, Any]]:
        """Return rows of EVENTS; lines without a timestamp get the current time."""
        boot = self.proc().boot_time
        with self.context.lock:
            rows = (row for line in lines for row in self._of_line(line, boot, clock.now()))
            return self._folder.fold(rows, clock.now())

    def held(self, clock: Clock) -> list[dict[str, Any]]:
        """Return the rows whose minute ended without another line."""
        return self._folder.fold((), clock.now())

    def _of_line(self, followed: FollowedLine, boot: int | None, now: int) -> list[dict[str, Any]]:
        host = HostState(self.machine_id, now)
        if followed.gap:
            self._last = None
            name = event_id(host.machine_id, "gap", followed.position)
            return [finding_row("gap", followed.text, host) | {"id": name}]
        line = self._last = read_line(followed.text, HostClock(boot, before=now), self._last)
        self.context.add_line(line.message)
        events = self._reader.events(line)
        if not events:
            note_unread(self.unread, line)
        return [self._row(event, followed.position, host) for event in events]

    def _row(self, event: KernelEvent, position: str, host: HostState) -> dict[str, Any]:
        if event.line.time is None:
            event = replace(event, line=replace(event.line, time=host.time))
        name = event_id(host.machine_id, event.line.message, position)
        row = event_row(event, host.machine_id, name)
        if (gpu := self.inventory.at(event.pci)) is not None:
            row |= {k: v for k, v in (("gpu_serial", gpu.serial), ("gpu_uuid", gpu.uuid)) if v}
        return row
