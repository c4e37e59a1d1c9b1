"""The words for one feature of one GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RECORD", "Reading", "channel_of", "in_words"]

_SPANNED = ("mean", "spread", "trend", "rate", "peers")

# The name that a model gives to a channel k records before the last of the window.
RECORD = re.compile(r"(.+)\[-\d+\]")

_UNITS = {
    "temperature_gpu": " °C",
    "power_draw": " W",
    "utilization_gpu": " %",
    "utilization_memory": " %",
    "memory_used": " MiB",
    "clock_sm": " MHz",
    "pcie_link_width": " lanes",
}
_SEVERITIES = {1: "of an application", 2: "of degraded hardware", 3: "that is fatal"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A feature of one instance.

    Attributes
    ----------
    name : str
        Name of the feature, or of a channel of the window.
    kind : str
        How a channel of the window was summed up: `last`, `gained` or `seen`; else empty.
    value, usual : float
        The GPU's, and the median of its peers; NaN is missing.
    window : str
        Length of the window.
    """

    name: str
    kind: str
    value: float
    usual: float
    window: str


def channel_of(feature: str) -> str:
    """Return the column that a feature is about.

    Examples
    --------
    >>> channel_of("mean:power_draw:7d"), channel_of("xid[-3]"), channel_of("count:xid=63")
    ('power_draw', 'xid', 'xid')
    """
    record = RECORD.fullmatch(feature)
    if record or ":" not in feature:
        return record[1] if record else feature
    kind, *rest = feature.split(":")
    if kind == "failures":
        return feature
    name = rest[1] if kind == "peers" else rest[0]
    return re.sub(r"=.*", "", name).removeprefix("grave ")


def in_words(reading: Reading) -> str:
    """Return one reason in words.

    Examples
    --------
    >>> in_words(Reading("mean:temperature_gpu:7d", "", 71.2, 60.0, "3h"))
    'temperature_gpu 71.2 °C on average over 7d (peers 60)'
    >>> in_words(Reading("ecc_corrected", "gained", 41.0, 0.0, "3h"))
    'ecc_corrected +41 within 3h (peers 0)'
    """
    if math.isnan(reading.value):
        return _missing_words(reading)
    if reading.kind:
        return _window_words(reading)
    kind, text = reading.name.split(":", 1)
    return (
        _category(reading, text) if kind == "category" else _WORDS[kind](reading, *text.split(":"))
    )


def _missing_words(reading: Reading) -> str:
    """Say what is missing: a past as long as the span, or the reading itself."""
    kind, last = reading.name.split(":")[0], reading.name.split(":")[-1]
    if kind == "since":
        return "a short past"
    if kind in _SPANNED and last != reading.window:
        return f"a past shorter than {last}"
    return f"{_title(channel_of(reading.name))} not known"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _peers(reading: Reading) -> str:
    return "" if math.isnan(reading.usual) else f" (peers {_number(reading.usual)})"


def _title(channel: str) -> str:
    """Return a channel in words; `y|x` is y given x."""
    return channel.replace("|", " given ")


def _unit(channel: str) -> str:
    return _UNITS.get(channel.split("|")[0], "")


def _window_words(reading: Reading) -> str:
    name, value, peers = reading.name, _number(reading.value), _peers(reading)
    if reading.kind == "gained":
        return f"{name} +{value} within {reading.window}{peers}"
    if reading.kind == "seen" and not reading.value:
        return f"no {name} within {reading.window}"
    if reading.kind == "seen":
        return f"{name} {value} within {reading.window}"
    return f"{name} {value}{_unit(name)}{peers}"


def _mean(reading: Reading, channel: str, span: str) -> str:
    sign = "+" if "|" in channel and reading.value > 0 else ""
    value = f"{sign}{_number(reading.value)}{_unit(channel)}"
    return f"{_title(channel)} {value} on average over {span}{_peers(reading)}"


def _spread(reading: Reading, channel: str, span: str) -> str:
    value = f"{_number(reading.value)}{_unit(channel)}"
    return f"{_title(channel)} varies by {value} over {span}{_peers(reading)}"


def _trend(reading: Reading, channel: str, span: str) -> str:
    verb = "rose" if reading.value >= 0 else "fell"
    value = f"{_number(abs(reading.value))}{_unit(channel)}"
    return f"{_title(channel)} {verb} by {value} within {span}{_peers(reading)}"


def _rate(reading: Reading, channel: str, span: str) -> str:
    return f"{channel} {_number(reading.value)} an hour over {span}{_peers(reading)}"


def _since(reading: Reading, channel: str) -> str:
    return f"{channel} last seen {_number(reading.value)} h ago{_peers(reading)}"


def _versus(reading: Reading, group: str, channel: str, span: str) -> str:
    sign = "+" if reading.value >= 0 else ""
    value = f"{sign}{_number(reading.value)}{_unit(channel)}"
    return f"{_title(channel)} {value} against others of its {group} over {span}"


def _category(reading: Reading, text: str) -> str:
    column, value = text.split("=", 1)
    return f"{column} is {value}" if reading.value else f"{column} is not {value}"


def _days_until(reading: Reading, column: str) -> str:
    days = _number(abs(reading.value))
    return f"{column} in {days} days" if reading.value >= 0 else f"{column} was {days} days ago"


def _count(reading: Reading, text: str) -> str:
    what = text.replace("=", " ")
    times = "once" if reading.value == 1 else f"{_number(reading.value)} times"
    return f"{what} {times} within {reading.window}{_peers(reading)}"


def _severity(reading: Reading, column: str) -> str:
    grade = _SEVERITIES.get(round(reading.value))
    return f"{column} {grade} within {reading.window}" if grade else f"no {column}"


def _failures(reading: Reading, of: str) -> str:
    what = "this GPU" if of == "serial" else "this slot"
    plural = "" if reading.value == 1 else "s"
    return f"{_number(reading.value)} earlier failure{plural} of {what}"


_WORDS: dict[str, Callable[..., str]] = {
    "mean": _mean,
    "spread": _spread,
    "trend": _trend,
    "rate": _rate,
    "since": _since,
    "window_since": _since,
    "peers": _versus,
    "days_until": _days_until,
    "count": _count,
    "severity": _severity,
    "failures": _failures,
}
