"""Parser of a whole kernel log: its events, boards and covered span."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from forewarn.features.telemetry.parsers.event_reader import (
    EventReader,
    may_be_kernel_line,
    split_message,
)
from forewarn.features.telemetry.parsers.gpu_reading import Unread, parse_pci_address
from forewarn.features.telemetry.parsers.kernel_event import KernelEvent
from forewarn.features.telemetry.parsers.log_line import LogLine, log_lines

__all__ = ["KernelLog", "note_unread", "parse_kernel_log"]

_DRIVER_LINE = re.compile("NVRM|nvswitch")
_BOARD = re.compile(r"NVRM: GPU at (?P<pci>PCI:\S+): (?P<uuid>GPU-[0-9a-f-]{36})")
_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: (?P<serial>\w+)")
# The driver's additional line about a GPU that fell off the bus.
_LOST_SERIAL = re.compile(
    r"NVRM: GPU (?P<pci>[0-9A-Fa-f:.]{7,}): GPU serial number is (?P<serial>\w+)"
)
_UNKNOWN_FORM = "an Xid in a line of unknown format, whose writer is unknown"


@dataclass(slots=True)
class KernelLog:
    """The content of a kernel log.

    Attributes
    ----------
    events : list of KernelEvent
    first, last : int or None
        Times of the first and the last line that has a time.
    boards : dict of str to (str or None, str or None)
        UUID and serial that the driver printed for the GPU at each PCI address.
    of_kernel : int
        Number of lines that the kernel wrote.
    hosts : set of str
        Where a log collector names them. Its log may be a selection of the lines.
    unread : Unread
        Lines with an Xid that could not be read. Lines of programs are not counted.
    """

    events: list[KernelEvent] = field(default_factory=list)
    first: int | None = None
    last: int | None = None
    boards: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    of_kernel: int = 0
    hosts: set[str] = field(default_factory=set)
    unread: Unread = field(default_factory=Unread)


def parse_kernel_log(
    text: str, *, boot_time: int | None = None, offset: int = 0, before: int | None = None
) -> KernelLog:
    r"""Read a log of `dmesg` (plain, -T, -x, ISO), /dev/kmsg or a log daemon.

    Parameters
    ----------
    text : str
    boot_time : int, optional
        Nanoseconds since 1970 UTC; without it, times since boot are unknown.
    offset : int
        Nanoseconds by which clocks without a zone (`dmesg -T`) are ahead of UTC.
    before : int, optional
        Time at which the log was taken; determines the year if the log has none.

    Examples
    --------
    >>> log = parse_kernel_log("[5.000000] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off")
    >>> [(event.kind, event.code, event.pci) for event in log.events]
    [('xid', 79, '0000:3b:00')]
    """
    log, board = KernelLog(), None
    readers: defaultdict[str | None, EventReader] = defaultdict(EventReader)
    lines = log_lines(text, log.unread, boot_time=boot_time, offset=offset, before=before)
    for line in lines:
        if line.writer == "program":
            continue
        log.of_kernel += line.writer == "kernel"
        if line.writer == "kernel" and line.host is not None:
            log.hosts.add(line.host)
        if line.time is not None and line.writer == "kernel":
            log.first = line.time if log.first is None else min(log.first, line.time)
            log.last = line.time if log.last is None else max(log.last, line.time)
        for part in split_message(line):
            events = readers[line.host].events(part)
            log.events += events
            if not events:
                note_unread(log.unread, part)
            board = _note_board(log, part.message, board)
    return log


def note_unread(unread: Unread, line: LogLine) -> None:
    """Count a line without an event that mentions a fault and may be of the kernel."""
    message = line.message
    if line.writer == "program":
        return
    if re.search(r"\bS?Xid\b", message) and (ours := _DRIVER_LINE.search(message)):
        known = ours.start() == 0 and may_be_kernel_line(line)
        unread.add("an Xid that cannot be read" if known else _UNKNOWN_FORM, message)


def _note_board(log: KernelLog, message: str, board: str | None) -> str | None:
    """Record UUID and serial, which are on two lines; return the GPU being described."""
    if match := _BOARD.match(message):
        board = parse_pci_address(match["pci"])
        if board is not None:
            log.boards[board] = (match["uuid"], None)
        return board
    if (match := _LOST_SERIAL.match(message)) and (pci := parse_pci_address(match["pci"])):
        log.boards[pci] = (log.boards.get(pci, (None, None))[0], match["serial"])
    elif board is not None and (match := _SERIAL.match(message)):
        log.boards[board] = (log.boards[board][0], match["serial"])
    return None
