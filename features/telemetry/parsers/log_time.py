"""The moment that a time before a log's message stands for."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from forewarn.features.telemetry.parsers.log_prefix import CALENDAR, DATED, SINCE_BOOT, UNIX
from forewarn.features.telemetry.parsers.month_names import month_number

__all__ = ["Clocks", "moment_on"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LATEST = 2**63 - 1
_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND


@dataclass(frozen=True, slots=True)
class Clocks:
    """What has to be known of a host to date its log.

    Attributes
    ----------
    boot_time : int or None
        Nanoseconds since 1970 UTC; without it lines that count from the boot have no time.
    offset : int
        Nanoseconds by which clocks without a zone (`dmesg -T`) are ahead of UTC.
    before : int or None
        When the log was taken: tells the year where a log daemon wrote none.
    """

    boot_time: int | None = None
    offset: int = 0
    before: int | None = None

    def moment(self, time: re.Match[str]) -> int | None:
        """Return the nanoseconds since 1970 UTC of a time of `read_prefix`; None without one."""
        if time.re is SINCE_BOOT:
            return self.after_boot(int(time["seconds"]) * _SECOND + _fraction(time))
        if time.re is UNIX:
            return int(time["seconds"]) * _SECOND + _fraction(time)
        if time.re in DATED:
            zone = (time["zone"] or "").replace("UTC", "Z")
            text = time["moment"] + zone.replace("Z", "+00:00")
            return moment_on(text, _fraction(time), 0 if zone else self.offset)
        if time.re in CALENDAR and time.groupdict().get("year"):
            return self._on(time, int(time["year"]))
        return self._latest_on(time)

    def after_boot(self, since: int) -> int | None:
        """Return the moment so many nanoseconds after the boot."""
        known = self.boot_time is not None and self.boot_time + since <= _LATEST
        return self.boot_time + since if known and self.boot_time is not None else None

    def _latest_on(self, time: re.Match[str]) -> int | None:
        """Return the last moment of a month, day and clock that is not after `before` by a day."""
        if self.before is None:
            return None
        year = (_EPOCH + dt.timedelta(microseconds=self.before // 1_000)).year
        moments = (self._on(time, then) for then in range(year, max(year - 9, 0), -1))
        latest = self.before + _DAY
        return next((moment for moment in moments if moment is not None and moment <= latest), None)

    def _on(self, time: re.Match[str], year: int) -> int | None:
        """Return the moment of a month, day and clock in a year."""
        month = month_number(time["month"])
        if month is None:
            return None
        text = f"{year:04}-{month:02}-{int(time['day']):02}T{time['clock']}"
        return moment_on(text, _fraction(time), self.offset)


def moment_on(text: str, fraction: int, offset: int) -> int | None:
    """Return the nanoseconds since 1970 UTC of an ISO time; without a zone it is UTC.

    Parameters
    ----------
    text : str
    fraction : int
        Nanoseconds after the full second.
    offset : int
        Nanoseconds by which its clock is ahead.
    """
    try:
        then = dt.datetime.fromisoformat(text)
        then = then if then.tzinfo else then.replace(tzinfo=dt.UTC)
        seconds = (then - _EPOCH) // dt.timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None
    moment = seconds * _SECOND + fraction - offset
    return moment if 0 <= moment <= _LATEST else None


def _fraction(time: re.Match[str]) -> int:
    """Return the nanoseconds after the full second."""
    return int((time.groupdict().get("fraction") or "0").ljust(9, "0"))
