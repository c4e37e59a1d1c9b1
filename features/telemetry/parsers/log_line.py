"""Log lines without their prefix, in any format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from forewarn.features.telemetry.parsers.collected_log import (
    CollectedLine,
    collected_lines,
    is_collected_log,
)
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.journal import (
    is_journal,
    journal_line,
    journal_messages,
)
from forewarn.features.telemetry.parsers.log_prefix import (
    DRIVER,
    KMSG,
    Writer,
    facility_writer,
    read_prefix,
)
from forewarn.features.telemetry.parsers.log_time import HostClock, parse_iso_time

__all__ = ["LogLine", "is_kernel_log", "log_lines", "read_line"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DICTIONARY = re.compile(r" \w+=")  # of a record of /dev/kmsg
_ENDS = re.compile(r"-- .* ends? at \S{1,12} (?P<moment>[\d-]{10} [\d:]{8}) (?P<zone>\w+)")
_CONTINUES = re.compile(r"\s|NVRM: |nvidia-nvswitch\d")  # start of a continuation line
_BLANK = "\ufeff \r\n\0"  # a power loss leaves zeros in a file
_ANNOUNCED, _ON_TERMINAL = "Message from syslogd@", " kernel:["
_NEW_LINE = "#012"  # as rsyslog escapes it
_MAX_SNIFFED_LENGTH = 2000
_ANY_CLOCK = HostClock(0, 0, 2**62)  # to test only whether a line has a time


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line without its prefix.

    Attributes
    ----------
    message : str
    time : int or None
        Nanoseconds since 1970 UTC, if the line has a time or the boot time is known.
    sequence : int or None
        Number of the record in /dev/kmsg; it increases by one and shows what was already read.
    writer : {"kernel", "program"} or None
        None if the prefix does not show the writer.
    host : str or None
        Where a log collector names it.
    """

    message: str
    time: int | None = None
    sequence: int | None = None
    writer: Writer = None
    host: str | None = None


def is_kernel_log(text: str) -> bool:
    """Tell whether most of the first lines start like log lines.

    Examples
    --------
    >>> is_kernel_log("<6>[ 5.000000] eth0: up"), is_kernel_log("serial, temperature.gpu")
    (True, False)
    """
    head = text.lstrip(_BLANK)[:_MAX_SNIFFED_LENGTH]
    if is_journal(head) or is_collected_log(head):
        return True
    lines = [raw for raw in head.splitlines()[:-1] or head.splitlines() if raw.strip()]
    begun = [raw for raw in lines if _may_begin(raw)]
    logged = [raw for raw in begun if _read(raw.strip(), _ANY_CLOCK)[0].time is not None]
    return 2 * len(logged) > len(begun) > 0


def _may_begin(raw: str) -> bool:
    """Tell whether a line may begin a message; on terminals a line of syslogd announces one."""
    return raw.startswith(_ON_TERMINAL) or not raw.startswith((" ", "\t", "-- ", _ANNOUNCED))


def log_lines(
    text: str,
    unread: Unread,
    *,
    boot_time: int | None = None,
    offset: int = 0,
    before: int | None = None,
) -> Iterator[LogLine]:
    """Yield the lines of a log.

    Parameters as in `parse_kernel_log`; `unread` counts invalid journal entries.
    """
    text = text.lstrip(_BLANK)
    if is_collected_log(text):
        for entry in collected_lines(text, unread):
            yield _collected(entry, HostClock(None, offset, before))
        return
    if is_journal(text):
        for time, message, writer in journal_messages(text, unread):
            yield LogLine(message, time, writer=writer)
        return
    if before is None and (match := _ENDS.match(text)):
        moment = match["moment"].replace(" ", "T")
        before = parse_iso_time(moment, 0, 0 if match["zone"] == "UTC" else offset)
    clocks, last = HostClock(boot_time, offset, before), None
    for raw in text.replace("\0", "").split("\n"):
        if raw.strip() and not _DICTIONARY.match(raw) and not raw.startswith("-- "):
            last = read_line(raw, clocks, last)
            yield last


def _collected(entry: CollectedLine, clock: HostClock) -> LogLine:
    """Return the line of a log collector; what the collector says of its writer and time counts."""
    if entry.writer == "program":
        return LogLine(entry.message, entry.time, None, "program", entry.host)
    moment = clock if entry.time is None else replace(clock, before=entry.time)
    line = _read(entry.message.strip(), moment)[0]
    if entry.writer == "kernel" and line.writer is None:
        line = _read(f"kernel: {entry.message.strip()}", moment)[0]
    time = entry.time if entry.writer == "kernel" or line.time is None else line.time
    return replace(line, time=time, host=entry.host)


def read_line(raw: str, clocks: HostClock, last: LogLine | None = None) -> LogLine:
    """Read one line of a log.

    A line without a prefix continues the previous line if it is indented or starts like a
    continuation of the driver. Otherwise it has no time and no known writer.

    Parameters
    ----------
    raw : str
    clocks : HostClock
    last : LogLine, optional
        The previous line.
    """
    line, begins = _read(raw.strip(), clocks)
    if begins or last is None or not _CONTINUES.match(raw):
        return line
    return replace(last, message=line.message)


def _read(raw: str, clocks: HostClock) -> tuple[LogLine, bool]:
    """Return a line, and whether it starts like a log line."""
    raw = _COLOUR.sub("", raw) if "\x1b" in raw else raw
    if match := KMSG.match(raw):
        time = clocks.after_boot(int(match["micros"]) * 1_000)
        writer = facility_writer(match["level"])
        return LogLine(_unescaped(raw[match.end() :]), time, int(match["sequence"]), writer), True
    if entry := journal_line(raw):
        return LogLine(entry[1], entry[0], writer=entry[2]), True
    prefix = read_prefix(raw)
    # The kernel's clock is closer to the event than that of the log daemon.
    known = [moment for time in prefix.times if (moment := clocks.moment(time)) is not None]
    message = prefix.message
    if DRIVER.match(message):  # other lines contain names that a user chose
        message = message.replace(_NEW_LINE, "\n")
    return LogLine(message, known[-1] if known else None, None, prefix.writer), prefix.begins


def _unescaped(text: str) -> str:
    r"""Unescape the \xNN of /dev/kmsg."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), text)
