"""A line of a kernel log without what was put before it, in whatever form it was printed."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from forewarn.features.telemetry.parsers.journal import is_journal, kernel_messages
from forewarn.features.telemetry.parsers.reading import Unread

__all__ = ["LogLine", "is_kernel_log", "log_lines", "read_line"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LATEST = 2**63 - 1
_DAY = 86_400 * 10**9

# What may stand before a message, outermost first. A log that went through a log daemon carries
# several of these one after another.
_KMSG = re.compile(r"(?P<level>\d{1,4}),(?P<sequence>\d{1,19}),(?P<micros>\d{1,16}),[^;]*;")
_PRIORITY = re.compile(r"<\d{1,3}>(?:1 (?=\d{4}-))?")
_DECODED = re.compile(r"[a-z]+ *:[a-z]+ *: *")
_CALLER = re.compile(r"\[ *[TC]\d{1,7}\] ?")
_SINCE_BOOT = re.compile(r"\[ *(?P<seconds>\d{1,10})\.(?P<micros>\d{6})(?: +<[ \d.]*>)?\] ?")
_CLOCK = re.compile(
    r"\[\w{3} (?P<month>\w{3}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d) (?P<year>\d{4})"
    r"(?: +<[ \d.]*>)?\] ?"
)
_ISO = re.compile(
    r"(?P<moment>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)? "
)
_FULL = re.compile(  # of the abbreviations of zones only that of UTC is the same everywhere
    r"\w{3} (?P<moment>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?"
    r" (?P<zone>UTC|[+-]\d\d:?\d\d)?(?:[A-Z]{2,5}|[+-]\d\d)? ?(?=\S+ kernel: )"
)
_UNIX = re.compile(r"(?P<epoch>\d{9,10})\.(?P<micros>\d{6}) (?=\S+ kernel: )")
_DAEMON = re.compile(
    r"(?:(?P<month>\w{3}) (?P<day>[ \d]\d) (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))? )?"
    r"\S+ kernel(?:: | \S+ \S+ (?:-|\[.*?\]) \ufeff?)"
)
_TIMED = (_SINCE_BOOT, _CLOCK, _ISO, _FULL, _UNIX)
# A line that a log daemon had from somebody else: whatever it says, the kernel does not.
_OTHER = re.compile(
    r"(?:<\d{1,3}>)?\w{3} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? "
    r"\S+ (?!kernel: )[^ :\[]+(?:\[\d+\])?: "
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DICTIONARY = re.compile(r" \w+=")  # of a record of /dev/kmsg
_ENDS = re.compile(r"-- .* ends? at \w{3} (?P<moment>[\d-]{10} [\d:]{8}) (?P<zone>\w+)")
_BLANK = "\ufeff \r\n\0"  # what a loss of power leaves in a file is zeros
_HEAD = 2000
_ANY = 2**62  # a moment for logs without a year, where only whether there is a time matters


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


def is_kernel_log(text: str) -> bool:
    """Tell whether most lines begin as those of a log do; only its first lines are looked at.

    Examples
    --------
    >>> is_kernel_log("<6>[ 5.000000] eth0: up"), is_kernel_log("serial, temperature.gpu")
    (True, False)
    """
    head = text.lstrip(_BLANK)[:_HEAD]
    if is_journal(head):
        return True
    lines = [raw for raw in head.splitlines()[:-1] or head.splitlines() if raw.strip()]
    begun = [raw for raw in lines if not raw.startswith((" ", "\t", "-- "))]
    logged = [
        raw for raw in begun if _OTHER.match(raw) or _read(raw, 0, 0, _ANY)[0].time is not None
    ]
    return 2 * len(logged) > len(begun) > 0


def log_lines(
    text: str,
    unread: Unread,
    *,
    boot_time: int | None = None,
    offset: int = 0,
    before: int | None = None,
) -> Iterator[LogLine]:
    """Yield the messages of the kernel; a line that begins like none goes on the one before.

    Parameters as in `parse_kernel_log`; `unread` counts what is no entry of a journal.
    """
    text = text.lstrip(_BLANK)
    if is_journal(text):
        yield from (LogLine(message, time) for time, message in kernel_messages(text, unread))
        return
    if before is None and (match := _ENDS.match(text)):
        before = _utc(f"{match['moment']}+00:00", 0, 0 if match["zone"] == "UTC" else offset)
    record: LogLine | None = None
    for raw in text.replace("\0", "").split("\n"):
        if not raw.strip() or _DICTIONARY.match(raw) or raw.startswith("-- "):
            continue
        if _OTHER.match(raw):
            record = None
            continue
        line, begins = _read(raw.strip(), boot_time, offset, before)
        if begins or record is None:
            record = line
        else:
            line = replace(line, time=record.time, sequence=record.sequence)
        yield line


def read_line(
    raw: str, *, boot_time: int | None = None, offset: int = 0, before: int | None = None
) -> LogLine:
    """Take off what stands before the message, and read the time from it.

    Parameters as in `parse_kernel_log`; one line, for whoever follows a log.
    """
    return _read(raw, boot_time, offset, before)[0]


def _read(raw: str, boot_time: int | None, offset: int, before: int | None) -> tuple[LogLine, bool]:
    """Return a line, and whether it begins as those of a log do."""
    raw = _COLOUR.sub("", raw) if "\x1b" in raw else raw
    if match := _KMSG.match(raw):
        since = int(match["micros"]) * 1_000
        message = _unescaped(raw[match.end() :])
        return LogLine(message, _after(boot_time, since), int(match["sequence"])), True
    rest, time, begins = raw, None, False
    while match := _prefix(rest):
        stamp = _time_of(match, boot_time, offset, before)
        # The kernel's own clock is nearer to the event than that of the daemon that wrote it down.
        time = stamp if stamp is not None else time
        begins = begins or match.re not in (_DECODED, _CALLER)
        rest = rest[match.end() :]
    return LogLine(rest, time), begins


def _prefix(text: str) -> re.Match[str] | None:
    """Return what stands next before a message."""
    matches = (form.match(text) for form in (_PRIORITY, _DECODED, _CALLER, _DAEMON, *_TIMED))
    return next((match for match in matches if match), None)


def _time_of(
    match: re.Match[str], boot_time: int | None, offset: int, before: int | None
) -> int | None:
    """Return the nanoseconds since 1970 that a prefix tells; None if it tells none."""
    if match.re is _SINCE_BOOT:
        since = int(match["seconds"]) * 1_000_000_000 + int(match["micros"]) * 1_000
        return _after(boot_time, since)
    if match.re is _CLOCK:
        return _on(match, int(match["year"]), offset)
    if match.re is _UNIX:
        return int(match["epoch"]) * 1_000_000_000 + int(match["micros"]) * 1_000
    if match.re is _DAEMON and before is not None:
        return _on_before(match, before, offset)
    if match.re in (_ISO, _FULL):
        zone = re.sub("Z|UTC", "+00:00", match["zone"] or "")
        text = f"{match['moment']}{zone or '+00:00'}"
        return _utc(text, _fraction(match), 0 if zone else offset)
    return None


def _on_before(match: re.Match[str], before: int, offset: int) -> int | None:
    """Return the last moment of a month, day and clock that is not after another by a day."""
    year = (_EPOCH + dt.timedelta(microseconds=before // 1_000)).year
    moments = (_on(match, then, offset) for then in range(year, max(year - 9, 0), -1))
    known = (moment for moment in moments if moment is not None and moment <= before + _DAY)
    return next(known, None)


def _on(match: re.Match[str], year: int, offset: int) -> int | None:
    """Return the moment of a month, day and clock in a year."""
    if match["month"] not in _MONTHS:
        return None
    date = f"{year:04}-{_MONTHS.index(match['month']) + 1:02}-{int(match['day']):02}"
    return _utc(f"{date}T{match['clock']}+00:00", _fraction(match), offset)


def _fraction(match: re.Match[str]) -> int:
    """Return the nanoseconds after the full second."""
    return int((match.groupdict().get("fraction") or "0").ljust(9, "0"))


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
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), text)
