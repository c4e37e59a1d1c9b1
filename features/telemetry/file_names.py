"""What the name of a dropped file tells: a time, and a host."""

from __future__ import annotations

import re

from forewarn.features.telemetry.parsers.local_clock import clock_time
from forewarn.features.telemetry.rows import is_host_name

__all__ = ["host_in_name", "time_in_name"]

_CLOCK_IN_NAME = re.compile(
    r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)[T_ -]?"
    r"([0-2]\d)[-:.h]?([0-5]\d)(?:[-:.m]?([0-5]\d))?(?!\d)"
)
_EPOCH_IN_NAME = re.compile(r"(?<!\d)(1[5-9]\d{8}|2[01]\d{8})(?:\d{3})?(?!\d)")
# Words that say what a file is, not whose.
_WORDS = re.compile(
    r"nvidia[-_]?smi|smi|dmesg|kmsg|kern(?:el)?|log|messages|metrics|dcgm|proc|stat"
)


def time_in_name(name: str) -> int | None:
    """Return the nanoseconds since 1970 that the name of a file tells, None if it tells none.

    Examples
    --------
    >>> time_in_name("smi_19700101.csv"), time_in_name("smi-2025-01-01T00:10.csv")
    (None, 1735690200000000000)
    """
    if match := _CLOCK_IN_NAME.search(name):
        year, month, day, hour, minute, second = (part or "00" for part in match.groups())
        return clock_time(f"{year}/{month}/{day} {hour}:{minute}:{second}")
    if match := _EPOCH_IN_NAME.search(name):
        return int(match[1]) * 1_000_000_000
    return None


def host_in_name(name: str) -> str | None:
    """Return the host that the name of a file tells beside a time and what it is.

    Examples
    --------
    >>> host_in_name("node-7_smi_2025-01-01T00:10.csv"), host_in_name("dmesg.log")
    ('node-7', None)
    """
    stem = re.sub(r"(?:\.[A-Za-z]{1,5})+$", "", name)
    stem = _EPOCH_IN_NAME.sub("", _CLOCK_IN_NAME.sub("", stem))
    parts = [part for part in re.split(r"[_ ]+|--+", stem) if not _WORDS.fullmatch(part)]
    host = next((part.strip(".-Z") for part in parts if part.strip(".-Z")), "")
    return host if is_host_name(host) and not _WORDS.fullmatch(host) else None
