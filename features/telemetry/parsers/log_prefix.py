"""Parser of the prefix of a log line: times and the writer.

Any program can quote the kernel. Therefore only this module determines the writer of a line, from
the prefix that the log daemon or the kernel wrote and never from the message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "CALENDAR",
    "DATED",
    "DRIVER",
    "KMSG",
    "SINCE_BOOT",
    "UNIX",
    "Prefix",
    "Writer",
    "facility_writer",
    "read_prefix",
]

# None if the prefix does not show it.
Writer = Literal["kernel", "program"] | None

_FRACTION = r"(?:[.,](?P<fraction>\d{1,9}))?"
_ZONE = r"Z|[+-]\d\d(?::?\d\d)?"
_SINCE = (
    r"(?: +<[ \d.]*>)?"  # time since the previous line: `dmesg -d`, `journalctl -o short-delta`
)

# --- writer by facility: 0 or `kern` is the kernel, which no program can set
KMSG = re.compile(r"(?P<level>\d{1,4}),(?P<sequence>\d{1,19}),(?P<micros>\d{1,16}),[^;]*;")
_PRIORITY = re.compile(r"<(?P<level>\d{1,3})>(?:1 (?=\d{4}-))?")
_DECODED = re.compile(  # `dmesg -x`; `talosctl dmesg` names the host first
    r"(?:\S+: )?(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|"
    r"local\d) *: *(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug) *: *"
)
# --- times of the kernel or `dmesg`, in brackets
SINCE_BOOT = re.compile(rf"\[ *(?P<seconds>\d{{1,10}})\.(?P<fraction>\d{{1,6}}){_SINCE}\] ?")
_BRACKETED = re.compile(
    r"\[\S{1,12} +(?P<month>\S{1,8}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d) (?P<year>\d{4})"
    rf"{_SINCE}\] ?"
)
_BRACKETED_ISO = re.compile(
    rf"\[(?P<moment>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d){_FRACTION}(?P<zone>Z)\]: "
)
_COMMA = re.compile(  # `dmesg --time-format=iso`
    rf"(?P<moment>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d),(?P<fraction>\d{{6}})(?P<zone>{_ZONE})? "
)
_CALLER = re.compile(r"\[ *[TC]\d{1,7}\] ?")
# --- times of a log daemon, followed by host and program
_TAG = re.compile(r"kernel(?:\[0\])?:")  # alone if a tool removed time and host
_FACILITY = r"(?:kern[. ][a-z]+ )?"
_SOURCE = rf"(?=\S+ [^:]*: | *(?:\S+ +)?{_FACILITY}{_TAG.pattern})"
_ISO = re.compile(rf"(?P<moment>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d){_FRACTION}(?P<zone>{_ZONE})? ")
_BLANK_ISO = re.compile(
    rf"(?P<moment>\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d){_FRACTION} ?(?P<zone>{_ZONE})? {_SOURCE}"
)
_FULL = re.compile(  # of zone abbreviations only UTC is unambiguous
    rf"\S{{1,12}} (?P<moment>\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d){_FRACTION}"
    rf" (?P<zone>UTC|[+-]\d\d:?\d\d)?(?:[A-Z]{{2,5}}|[+-]\d\d)? ?{_SOURCE}"
)
UNIX = re.compile(rf"(?P<seconds>\d{{9,10}})\.(?P<fraction>\d{{6}}) {_SOURCE}")
_MONTH_DAY = r"(?P<month>\d{1,2}[月월]|[^\W\d_]{3,6}\.?) {1,2}(?P<day>\d{1,2}) "
_CLOCK = rf"(?P<clock>\d\d:\d\d:\d\d){_FRACTION} "
_SYSLOG = re.compile(rf"{_MONTH_DAY}(?:(?P<year>\d{{4}}) )?{_CLOCK}")
_YEAR_FIRST = re.compile(rf"(?P<year>\d{{4}}) {_MONTH_DAY}{_CLOCK}")
DATED = (_ISO, _BLANK_ISO, _FULL, _COMMA, _BRACKETED_ISO)
CALENDAR = (_BRACKETED, _SYSLOG, _YEAR_FIRST)
_DAEMON_TIMES = (_ISO, _BLANK_ISO, _FULL, UNIX, _SYSLOG, _YEAR_FIRST)
_KERNEL_TIMES = (SINCE_BOOT, _BRACKETED, _BRACKETED_ISO, _COMMA)
# --- host and program: RFC 3164 (busybox adds `kern.err`), RFC 5424
_HOST = r"[^\s\[\]]*[^\s\[\]:]"
_KERNEL = re.compile(
    rf"(?:{_HOST} +)?{_FACILITY}{_TAG.pattern}|"
    rf"{_HOST} kernel \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+) \ufeff?"
)
# Prefixes of programs' own logs, in which `kernel` is the name of a logger.
_LEVEL = re.compile(
    rf"(?:trace|debug|info|notice|warn|warning|err|error|crit|critical|alert|emerg|fatal|panic):? "
    rf"+{_TAG.pattern}",
    re.IGNORECASE,
)
_PROGRAM = re.compile(rf"{_HOST} [^\s\[\]:]+\[\d+\]: ")
_ANY_PROGRAM = re.compile(  # also without a pid, in RFC 5424, or in the log of a container
    rf"{_HOST} (?!NVRM: )[^\s\[\]:]+(?:\[[^\]]*\])?: |"
    rf"{_HOST} \S+ \S+ \S+ (?:-|\[)|(?:stdout|stderr) [FP] "
)
# The driver's own message, which directly follows a time if a tool removed host and program. Kernel
# messages about a process start with its name of up to 15 characters, such as `NVRM: a[7]: `, which
# its user chose.
DRIVER = re.compile(r"NVRM: (?![^\[\]]{0,15}\[\d+\]: )|nvidia-nvswitch\d+: ")
_OF_KERNEL = (*_KERNEL_TIMES, _CALLER, _TAG)
_BLANKS = " \t"
_MAX_PARTS = 8  # times, callers and tags at the start of a kernel line
_NANOSECONDS = 9  # digits in the timestamp of a container runtime, but of no log daemon


@dataclass(frozen=True, slots=True)
class Prefix:
    """The parsed prefix of a log line.

    Attributes
    ----------
    message : str
        The rest of the line.
    times : tuple of re.Match
        Times as written, the outermost first.
    writer : Writer
    """

    message: str
    times: tuple[re.Match[str], ...]
    writer: Writer

    @property
    def begins(self) -> bool:
        """Whether the line starts like a log line."""
        return bool(self.times) or self.writer is not None


def read_prefix(raw: str) -> Prefix:
    """Split a line into its prefix and its message.

    Examples
    --------
    >>> read_prefix("Mar  1 00:00:05 node-1 kernel: [    5.000000] eth0: up").writer
    'kernel'
    >>> read_prefix("Mar  1 00:00:05 node-1 gpud[7]: NVRM: Xid (PCI:0000:3b:00): 79").writer
    'program'
    """
    rest, stated = _facility(raw)
    times: list[re.Match[str]] = []
    writer = stated
    if match := _first(rest, (*_KERNEL_TIMES, *_DAEMON_TIMES)):
        times.append(match)
        source, rest = _source(match, rest[match.end() :].lstrip(_BLANKS))
        writer = source or stated
    elif match := _TAG.match(rest):
        writer, rest = "kernel", rest[match.end() :].lstrip(_BLANKS)
    for _ in range(_MAX_PARTS):
        match = _first(rest, _OF_KERNEL) if writer == "kernel" else None
        if match is None:
            break
        times += [match] if match.re in _KERNEL_TIMES else []
        rest = rest[match.end() :].lstrip(_BLANKS)
    return Prefix(rest, tuple(times), "program" if stated == "program" else writer)


def facility_writer(level: str) -> Writer:
    """Return the writer by a syslog level; its facility is all but the last three bits."""
    return "kernel" if int(level) < 8 else "program"


def _facility(raw: str) -> tuple[str, Writer]:
    """Remove priority and facility; return the writer that they show."""
    stated: Writer = None
    if match := _PRIORITY.match(raw):
        stated, raw = facility_writer(match["level"]), raw[match.end() :]
    if match := _DECODED.match(raw):
        stated, raw = "kernel" if match["facility"] == "kern" else "program", raw[match.end() :]
    return raw, stated


def _source(time: re.Match[str], rest: str) -> tuple[Writer, str]:
    """Return the writer of the text after a time, and the message without host and program."""
    if _LEVEL.match(rest):  # there is no host
        return None, rest
    if match := _KERNEL.match(rest):
        return "kernel", rest[match.end() :].lstrip(_BLANKS)
    if time.re is _BRACKETED_ISO:  # other programs use this format as well
        return None, rest
    if time.re in _KERNEL_TIMES:  # journalctl prints such a time before host and program as well
        return "program" if _PROGRAM.match(rest) else "kernel", rest
    of_container = len(time.groupdict().get("fraction") or "") == _NANOSECONDS
    if of_container or _ANY_PROGRAM.match(rest):
        return "program", rest
    # Log daemons write the offset of their zone; programs and runtimes write `Z` and no host.
    of_program = time.groupdict().get("zone") == "Z"
    return "kernel" if DRIVER.match(rest) and not of_program else None, rest


def _first(text: str, forms: tuple[re.Pattern[str], ...]) -> re.Match[str] | None:
    return next((match for form in forms if (match := form.match(text))), None)
