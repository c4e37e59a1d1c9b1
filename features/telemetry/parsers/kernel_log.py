"""Xids and lost GPUs in a kernel log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from forewarn.features.telemetry.parsers.log_line import LogLine, log_lines, read_line
from forewarn.features.telemetry.parsers.reading import Unread, pci_address

__all__ = [
    "EventReader",
    "KernelEvent",
    "KernelLog",
    "LogLine",
    "parse_event",
    "parse_kernel_log",
    "read_line",
]

_NEW_LINE = re.compile(r"\n|#012")  # the second is how rsyslog writes one
_OURS = re.compile("NVRM|nvswitch")
_XID = re.compile(r"NVRM:.*?\bXid \((?P<pci>[^)]*)\): (?P<code>\d{1,5})\b,? ?(?P<rest>.*)")
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \((?P<pci>[^)]*)\): (?P<code>\d{1,5}), ?(?P<rest>.*)")
_LOST = re.compile(r"NVRM:.*?\bGPU (?:at )?(?P<pci>[0-9A-Fa-fPCI:.]{7,}).*(?:off the bus|is lost)")
# What it says in two lines or three of a GPU that gives no answer when the driver is loaded.
_REFUSED = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{5,})")
_SUPPRESSED = re.compile(r"(?:NVRM|nvidia).*?(?P<count>\d{1,9}) callbacks suppressed")
_PROCESS = re.compile(r"pid='?(?P<pid>\d{1,10}|<unknown>)'?(?:, name=(?P<name>[^,]*))?,? ?")
_BOARD = re.compile(r"NVRM: GPU at (?P<pci>PCI:\S+): (?P<uuid>GPU-[0-9a-f-]{36})")
_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: (?P<serial>\w+)")


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """Something that the driver reported of a GPU or a switch.

    Attributes
    ----------
    kind : {"xid", "sxid", "lost", "suppressed"}
        `lost` is a GPU off the bus without an Xid; `suppressed` are messages that the kernel did
        not print, so that there were more events than the log shows.
    line : LogLine
    code : int or None
        Of the Xid or SXid.
    pci : str or None
        In the form of `pci_address`.
    pid, process : int and str, or None
        Where the driver knew them.
    text : str
        The rest of the message.
    count : int
        Messages that it stands for.
    """

    kind: Literal["xid", "sxid", "lost", "suppressed"]
    line: LogLine
    code: int | None = None
    pci: str | None = None
    pid: int | None = None
    process: str | None = None
    text: str = ""
    count: int = 1


@dataclass(slots=True)
class KernelLog:
    """What a log held.

    Attributes
    ----------
    events : list of KernelEvent
    first, last : int or None
        Times of the first and the last line that tells one.
    boards : dict of str to (str, str or None)
        UUID and serial that the driver printed of the GPU at each PCI address.
    unread : Unread
        Lines that name an Xid and could not be read. Lines of others are not ours.
    """

    events: list[KernelEvent] = field(default_factory=list)
    first: int | None = None
    last: int | None = None
    boards: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    unread: Unread = field(default_factory=Unread)


def parse_kernel_log(
    text: str, *, boot_time: int | None = None, offset: int = 0, before: int | None = None
) -> KernelLog:
    r"""Read a whole log: `dmesg` (plain, -T, -x, ISO), /dev/kmsg, or what a log daemon kept.

    Parameters
    ----------
    text : str
    boot_time : int, optional
        Nanoseconds since 1970 UTC; without it lines that count from the boot have no time.
    offset : int
        Nanoseconds by which clocks without a zone (`dmesg -T`) are ahead of UTC.
    before : int, optional
        When the log was taken: tells the year where a log daemon wrote none.

    Examples
    --------
    >>> log = parse_kernel_log("[5.000000] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off")
    >>> [(event.kind, event.code, event.pci) for event in log.events]
    [('xid', 79, '0000:3b:00')]
    """
    log, board, reader = KernelLog(), None, EventReader()
    lines = log_lines(text, log.unread, boot_time=boot_time, offset=offset, before=before)
    for line in lines:
        if line.time is not None:
            log.first = line.time if log.first is None else min(log.first, line.time)
            log.last = line.time if log.last is None else max(log.last, line.time)
        for part in _parts(line):
            events = reader.events(part)
            log.events += events
            message = part.message
            if not events and re.search(r"\bS?Xid\b", message) and re.search(_OURS, message):
                log.unread.add("an Xid that cannot be read", message)
            board = _note_board(log, message, board)
    return log


def _parts(line: LogLine) -> Iterator[LogLine]:
    """Yield a message of several lines line by line."""
    texts = _NEW_LINE.split(line.message)
    if len(texts) == 1:
        yield line
        return
    yield from (replace(line, message=text.strip()) for text in texts if text.strip())


def _note_board(log: KernelLog, message: str, board: str | None) -> str | None:
    """Keep UUID and serial, which come on two lines; return the GPU that is being described."""
    if match := _BOARD.match(message):
        board = pci_address(match["pci"])
        if board is not None:
            log.boards[board] = (match["uuid"], None)
        return board
    if board is not None and (match := _SERIAL.match(message)):
        log.boards[board] = (log.boards[board][0], match["serial"])
    return None


@dataclass(slots=True)
class EventReader:
    """Reads events line by line, also those that the driver tells in several lines."""

    _begun: list[LogLine] = field(default_factory=list)

    def events(self, line: LogLine) -> list[KernelEvent]:
        """Return what a line, which may hold several, tells or completes."""
        events = (self._event(part) for part in _parts(line))
        return [event for event in events if event is not None]

    def _event(self, line: LogLine) -> KernelEvent | None:
        message = line.message.strip()
        if event := parse_event(line):
            self._begun = []
            return event
        if _REFUSED.match(message):
            self._begun = [line]
        elif self._begun and message.startswith("NVRM:"):  # others may print in between
            self._begun.append(line)
            if "fallen off the bus" in message:
                return self._lost()
            if not message.endswith("installed in this system has"):
                self._begun = []
        return None

    def _lost(self) -> KernelEvent | None:
        """Return the event of a GPU that gave no answer when the driver was loaded."""
        first, text = self._begun[0], _joined(line.message for line in self._begun)
        self._begun = []
        pci = pci_address(first.message)
        if pci is None:
            return None
        return KernelEvent("lost", replace(first, message=text), pci=pci, text=text)


def _joined(messages: Iterable[str]) -> str:
    return "NVRM: " + " ".join(text.strip().removeprefix("NVRM:").strip() for text in messages)


def parse_event(line: LogLine) -> KernelEvent | None:
    """Return the event of a line, None if it has none that we know."""
    message = line.message
    if match := _XID.search(message):
        return _xid("xid", match, line)
    if match := _SXID.search(message):
        return _xid("sxid", match, line)
    if (match := _LOST.search(message)) and (pci := pci_address(match["pci"])):
        return KernelEvent("lost", line, pci=pci, text=message)
    if match := _SUPPRESSED.search(message):
        return KernelEvent("suppressed", line, text=message, count=int(match["count"]))
    return None


def _xid(kind: Literal["xid", "sxid"], match: re.Match[str], line: LogLine) -> KernelEvent | None:
    pci, rest = pci_address(match["pci"]), match["rest"]
    if pci is None:
        return None
    pid = process = None
    if owner := _PROCESS.match(rest):
        pid = int(owner["pid"]) if owner["pid"].isdigit() else None
        process = None if owner["name"] in (None, "", "<unknown>") else owner["name"]
        rest = rest[owner.end() :]
    return KernelEvent(kind, line, int(match["code"]), pci, pid, process, rest.strip())
