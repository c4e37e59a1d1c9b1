"""Conversion of the times in log prefixes to nanoseconds since 1970 UTC."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from forewarn.features.telemetry.parsers.log_prefix import CALENDAR, DATED, SINCE_BOOT, UNIX
from forewarn.features.time_units import DAY, SECOND

__all__ = ["HostClock", "month_number", "parse_iso_time"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MAX_TIME = 2**63 - 1

# Short names of the months in the C library's locales, in lower case and without a trailing point.
# Names must be unambiguous. Croatian is excluded: its `lis` differs from that of Polish and Czech.
_LANGUAGES = (
    "jan feb mar apr may jun jul aug sep oct nov dec",  # English
    "jan feb mär apr mai jun jul aug sep okt nov dez",  # German
    "janv févr mars avril mai juin juil août sept oct nov déc",  # French
    "ene feb mar abr may jun jul ago sep oct nov dic",  # Spanish
    "gen feb mar apr mag giu lug ago set ott nov dic",  # Italian
    "jan fev mar abr mai jun jul ago set out nov dez",  # Portuguese
    "jan feb mrt apr mei jun jul aug sep okt nov dec",  # Dutch
    "jan feb mar apr maj jun jul aug sep okt nov dec",  # Danish, Swedish
    "jan feb mars april mai juni juli aug sep okt nov des",  # Norwegian
    "tammi helmi maalis huhti touko kesä heinä elo syys loka marras joulu",  # Finnish
    "sty lut mar kwi maj cze lip sie wrz paź lis gru",  # Polish
    "led úno bře dub kvě čen čec srp zář říj lis pro",  # Czech
    "oca şub mar nis may haz tem ağu eyl eki kas ara",  # Turkish
    "янв фев мар апр мая июн июл авг сен окт ноя дек",  # Russian
    "янв февр мар апр май июня июля авг сент окт нояб дек",
    "січ лют бер кві тра чер лип сер вер жов лис гру",  # noqa: RUF001 - Ukrainian
)
_NUMBERS = {
    name: number for names in _LANGUAGES for number, name in enumerate(names.split(), start=1)
}
_NUMBERED = re.compile(r"(1[0-2]|0?[1-9])(?:月|월)")  # Chinese and Japanese, Korean


def month_number(name: str) -> int | None:
    """Return the number of a month by its short name; None if the name is unknown.

    Examples
    --------
    >>> month_number("Nov"), month_number("11月"), month_number("déc."), month_number("Foo")
    (11, 11, 12, None)
    """
    if match := _NUMBERED.fullmatch(name):
        return int(match[1])
    return _NUMBERS.get(name.lower().removesuffix("."))


@dataclass(frozen=True, slots=True)
class HostClock:
    """The clock of a host, as far as its log needs it.

    Attributes
    ----------
    boot_time : int or None
        Nanoseconds since 1970 UTC; without it, times since boot are unknown.
    offset : int
        Nanoseconds by which clocks without a zone (`dmesg -T`) are ahead of UTC.
    before : int or None
        Time at which the log was taken; determines the year if the log has none.
    """

    boot_time: int | None = None
    offset: int = 0
    before: int | None = None

    def moment(self, time: re.Match[str]) -> int | None:
        """Convert a time of `read_prefix` to nanoseconds since 1970 UTC; None if unknown."""
        if time.re is SINCE_BOOT:
            return self.after_boot(int(time["seconds"]) * SECOND + _fraction(time))
        if time.re is UNIX:
            return int(time["seconds"]) * SECOND + _fraction(time)
        if time.re in DATED:
            zone = (time["zone"] or "").replace("UTC", "Z")
            text = time["moment"] + zone.replace("Z", "+00:00")
            return parse_iso_time(text, _fraction(time), 0 if zone else self.offset)
        if time.re in CALENDAR and time.groupdict().get("year"):
            return self._on(time, int(time["year"]))
        return self._latest_on(time)

    def after_boot(self, since: int) -> int | None:
        """Return the time `since` nanoseconds after the boot."""
        known = self.boot_time is not None and self.boot_time + since <= _MAX_TIME
        return self.boot_time + since if known and self.boot_time is not None else None

    def _latest_on(self, time: re.Match[str]) -> int | None:
        """Return the latest time with this month, day and clock, at most a day after `before`."""
        if self.before is None:
            return None
        year = (_EPOCH + dt.timedelta(microseconds=self.before // 1_000)).year
        moments = (self._on(time, then) for then in range(year, max(year - 9, 0), -1))
        latest = self.before + DAY
        return next((moment for moment in moments if moment is not None and moment <= latest), None)

    def _on(self, time: re.Match[str], year: int) -> int | None:
        """Return the time with this month, day and clock in a year."""
        month = month_number(time["month"])
        if month is None:
            return None
        text = f"{year:04}-{month:02}-{int(time['day']):02}T{time['clock']}"
        return parse_iso_time(text, _fraction(time), self.offset)


def parse_iso_time(text: str, fraction: int, offset: int) -> int | None:
    """Convert an ISO time to nanoseconds since 1970 UTC; without a zone it is UTC.

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
    moment = seconds * SECOND + fraction - offset
    return moment if 0 <= moment <= _MAX_TIME else None


def _fraction(time: re.Match[str]) -> int:
    """Return the nanoseconds after the full second."""
    return int((time.groupdict().get("fraction") or "0").ljust(9, "0"))
