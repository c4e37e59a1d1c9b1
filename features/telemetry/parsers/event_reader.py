"""Reader of kernel log events, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from forewarn.features.telemetry.amd.driver_errors import DriverErrors
from forewarn.features.telemetry.parsers.gpu_reading import parse_pci_address
from forewarn.features.telemetry.parsers.hardware_event import DecodedBanks, PlatformErrors
from forewarn.features.telemetry.parsers.kernel_event import (
    KernelEvent,
    hardware_event,
    parse_event,
)
from forewarn.features.telemetry.parsers.log_line import LogLine
from forewarn.features.telemetry.parsers.log_prefix import DRIVER

__all__ = ["EventReader", "may_be_kernel_line", "split_message"]

# First of two or three lines about a GPU that does not respond when the driver is loaded.
_REFUSED = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{5,})")


def may_be_kernel_line(line: LogLine) -> bool:
    """Tell whether the kernel wrote a line, or nothing precedes its message."""
    return line.writer == "kernel" or (line.writer is None and line.time is None)


def split_message(line: LogLine) -> Iterator[LogLine]:
    """Split a message of several lines if its first line is the driver's.

    In other messages a line can start with text that a user chose, such as a file name.
    """
    texts = line.message.split("\n")
    if len(texts) == 1 or not DRIVER.match(line.message):
        yield line
        return
    yield from (replace(line, message=text.strip()) for text in texts if text.strip())


@dataclass(slots=True)
class EventReader:
    """A reader of events, including those that the driver reports in several lines."""

    _begun: list[LogLine] = field(default_factory=list)
    _failed_init: KernelEvent | None = None
    _platform: PlatformErrors = field(default_factory=PlatformErrors)
    _amd: DriverErrors = field(default_factory=DriverErrors)
    _banks: DecodedBanks = field(default_factory=DecodedBanks)

    def events(self, line: LogLine) -> list[KernelEvent]:
        """Return the events that a line reports or completes.

        Lines of programs are ignored: a program may quote the kernel of another time or host.
        """
        if not may_be_kernel_line(line):
            return []
        events = (self._event(part) for part in split_message(line))
        return [event for event in events if event is not None]

    def _event(self, line: LogLine) -> KernelEvent | None:
        message = line.message.strip()
        bank = self._banks.error(message)
        if event := parse_event(line):
            self._begun = []
            return event if self._is_news(event) else None
        if error := self._platform.error(message) or self._amd.error(message) or bank:
            return hardware_event(error, line)
        if _REFUSED.match(message):
            self._begun = [line]
        elif self._begun and message.startswith("NVRM:"):  # other programs may print in between
            self._begun.append(line)
            if "fallen off the bus" in message:
                return self._lost()
            if not message.endswith("installed in this system has"):
                self._begun = []
        return None

    def _is_news(self, event: KernelEvent) -> bool:
        """Return False for the driver's second line about one failed start."""
        first = self._failed_init
        again = event.text == "rm_init_adapter" and first is not None and first.pci == event.pci
        self._failed_init = event if event.kind == "init_failed" and not again else None
        return not again

    def _lost(self) -> KernelEvent | None:
        """Return the event of a GPU that did not respond when the driver was loaded."""
        first, text = self._begun[0], _joined(line.message for line in self._begun)
        self._begun = []
        pci = parse_pci_address(first.message)
        if pci is None:
            return None
        return KernelEvent("lost", replace(first, message=text), pci=pci, text=text)


def _joined(messages: Iterable[str]) -> str:
    return "NVRM: " + " ".join(text.strip().removeprefix("NVRM:").strip() for text in messages)
