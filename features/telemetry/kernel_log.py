"""Xids and lost GPUs in a kernel log, in whatever form it was printed."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from forewarn.features.telemetry.reading import Unread, pci_address

__all__ = ["KernelEvent", "KernelLog", "LogLine", "parse_event", "parse_kernel_log", "read_line"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LATEST = 2**63 - 1
_DAY = 86_400 * 10**9

# What may stand before a message, outermost first. A log that went through a log daemon carries
# several of these one after another.
_KMSG = re.compile(r"(?P<level>\d{1,4}),(?P<sequence>\d{1,19}),(?P<micros>\d{1,16}),[^;]*;")
_DECODED = re.compile(r"[a-z]+ *:[a-z]+ *: *")
_SINCE_BOOT = re.compile(r"\[ *(?P<seconds>\d{1,10})\.(?P<micros>\d{6})\] ?")
_CLOCK = re.compile(
    r"\[\w{3} (?P<month>\w{3}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d) (?P<year>\d{4})\] ?"
)
_ISO = re.compile(
    r"(?P<moment>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)? "
)
_DAEMON = re.compile(
    r"(?:(?P<month>\w{3}) (?P<day>[ \d]\d) (?P<clock>\d\d:\d\d:\d\d) )?\S+ kernel: "
)

_XID = re.compile(r"NVRM:.*?\bXid \((?P<pci>[^)]*)\): (?P<code>\d{1,5})\b,? ?(?P<rest>.*)")
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \((?P<pci>[^)]*)\): (?P<code>\d{1,5}), ?(?P<rest>.*)")
_LOST = re.compile(r"NVRM:.*?\bGPU (?:at )?(?P<pci>[0-9A-Fa-fPCI:.]{7,}).*(?:off the bus|is lost)")
_SUPPRESSED = re.compile(r"(?:NVRM|nvidia).*?(?P<count>\d{1,9}) callbacks suppressed")
_PROCESS = re.compile(r"pid='?(?P<pid>\d{1,10}|<unknown>)'?(?:, name=(?P<name>[^,]*))?,? ?")
_BOARD = re.compile(r"NVRM: GPU at (?P<pci>PCI:\S+): (?P<uuid>GPU-[0-9a-f-]{36})")
_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: (?P<serial>\w+)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line without what was put before it.

    Attributes
    ----------
    message : str
    time : int or None
        Nanoseconds since 1970 UTC, where the line says so or the time of the boot is known.
    sequence : int or None
        Number of the record in /dev/kmsg: it grows by one, and tells what was read already.
    """

    message: str
    time: int | None = None
    sequence: int | None = None


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


@dataclass(frozen=True, slots=True)
class KernelLog:
    """What a log held.

    Attributes
    ----------
    events : list of KernelEvent
    boards : dict of str to (str, str or None)
        UUID and serial that the driver printed of the GPU at each PCI address.
    unread : Unread
        Lines that name an Xid and could not be read. Lines of others are not ours.
    """

    events: list[KernelEvent] = field(default_factory=list)
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
    log, board = KernelLog(), None
    for raw in _lines(text):
        line = read_line(raw, boot_time=boot_time, offset=offset, before=before)
        event = parse_event(line)
        if event is not None:
            log.events.append(event)
        elif re.search(r"\bS?Xid\b", line.message) and re.search("NVRM|nvswitch", line.message):
            log.unread.add("an Xid that cannot be read", raw)
        board = _note_board(log, line.message, board)
    return log


def _lines(text: str) -> Iterator[str]:
    """Yield the lines; those of /dev/kmsg that begin with a space belong to the one before."""
    for raw in text.split("\n"):
        if raw.strip() and not re.match(r" \w+=", raw):
            yield raw.rstrip("\r")


def _note_board(log: KernelLog, message: str, board: str | None) -> str | None:
    """Keep UUID and serial, which come on two lines; return the GPU that is being described."""
    if found := _BOARD.match(message):
        board = pci_address(found["pci"])
        if board is not None:
            log.boards[board] = (found["uuid"], None)
        return board
    if board is not None and (found := _SERIAL.match(message)):
        log.boards[board] = (log.boards[board][0], found["serial"])
    return None


def read_line(
    raw: str, *, boot_time: int | None = None, offset: int = 0, before: int | None = None
) -> LogLine:
    """Take off what stands before the message, and read the time from it.

    Parameters as in `parse_kernel_log`; one line, for whoever follows a log.
    """
    if found := _KMSG.match(raw):
        since = int(found["micros"]) * 1_000
        message = _unescaped(raw[found.end() :])
        return LogLine(message, _after(boot_time, since), int(found["sequence"]))
    rest, time = raw, None
    while found := _DECODED.match(rest) or _DAEMON.match(rest) or _any_time(rest):
        told = _time_of(found, boot_time, offset, before)
        # The kernel's own clock is nearer to the event than that of the daemon that wrote it down.
        time = told if told is not None else time
        rest = rest[found.end() :]
    return LogLine(rest, time)


def _any_time(text: str) -> re.Match[str] | None:
    return _SINCE_BOOT.match(text) or _CLOCK.match(text) or _ISO.match(text)


def _time_of(
    found: re.Match[str], boot_time: int | None, offset: int, before: int | None
) -> int | None:
    """Return the nanoseconds since 1970 that a prefix tells; None if it tells none."""
    if found.re is _SINCE_BOOT:
        since = int(found["seconds"]) * 1_000_000_000 + int(found["micros"]) * 1_000
        return _after(boot_time, since)
    if found.re is _CLOCK:
        return _on(found, int(found["year"]), offset)
    if found.re is _DAEMON and before is not None:
        year = (_EPOCH + dt.timedelta(microseconds=before // 1_000)).year
        told = _on(found, year, offset)
        return _on(found, year - 1, offset) if told is not None and told > before + _DAY else told
    if found.re is _ISO:
        fraction = int((found["fraction"] or "0").ljust(9, "0"))
        zone = (found["zone"] or "").replace("Z", "+00:00")
        return _utc(f"{found['moment']}{zone or '+00:00'}", fraction, 0 if zone else offset)
    return None


def _on(found: re.Match[str], year: int, offset: int) -> int | None:
    """Return the moment of a month, day and clock in a year."""
    if found["month"] not in _MONTHS:
        return None
    date = f"{year:04}-{_MONTHS.index(found['month']) + 1:02}-{int(found['day']):02}"
    return _utc(f"{date}T{found['clock']}+00:00", 0, offset)


def _after(boot_time: int | None, since: int) -> int | None:
    return None if boot_time is None or boot_time + since > _LATEST else boot_time + since


def _utc(text: str, fraction: int, offset: int) -> int | None:
    try:
        seconds = (dt.datetime.fromisoformat(text) - _EPOCH) // dt.timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None
    moment = seconds * 1_000_000_000 + fraction - offset
    return moment if 0 <= moment <= _LATEST else None


def _unescaped(text: str) -> str:
    r"""Undo the \xNN of /dev/kmsg."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), text)


def parse_event(line: LogLine) -> KernelEvent | None:
    """Return the event of a line, None if it has none that we know."""
    message = line.message
    if found := _XID.search(message):
        return _xid("xid", found, line)
    if found := _SXID.search(message):
        return _xid("sxid", found, line)
    if (found := _LOST.search(message)) and (pci := pci_address(found["pci"])):
        return KernelEvent("lost", line, pci=pci, text=message)
    if found := _SUPPRESSED.search(message):
        return KernelEvent("suppressed", line, text=message, count=int(found["count"]))
    return None


def _xid(kind: Literal["xid", "sxid"], found: re.Match[str], line: LogLine) -> KernelEvent | None:
    pci, rest = pci_address(found["pci"]), found["rest"]
    if pci is None:
        return None
    pid = process = None
    if told := _PROCESS.match(rest):
        pid = int(told["pid"]) if told["pid"].isdigit() else None
        process = None if told["name"] in (None, "", "<unknown>") else told["name"]
        rest = rest[told.end() :]
    return KernelEvent(kind, line, int(found["code"]), pci, pid, process, rest.strip())
