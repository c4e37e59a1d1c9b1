"""Texts for the reasons of a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from forewarn.features.duration import format_duration
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.time_units import DAY, SECOND, Nanoseconds
from forewarn.pipelines.at_risk.channel_names import (
    NO_SPAN,
    NOUNS,
    UNITS,
    counted_noun,
    title,
    xid_names,
)

__all__ = ["Mention", "channel_of", "phrase_reason", "span_words"]

_RECORD = re.compile(r"(.+)\[-\d+\]")  # feature name of a channel k records before the last


@dataclass(frozen=True, slots=True)
class Mention:
    """An observation of one GPU together with the values of its peers.

    Attributes
    ----------
    kind, column, detail : str
        See `Observations`.
    value : float
    span : Nanoseconds
    others : sequence of float
        Known values of the peers.
    whose : str
        Description of the peers, such as "the other GPUs of node-00054"; empty without peers.
    now : float
        Level after a change, or hours since the last event of a code.
    fleet : int
        Number of GPUs of the day.
    """

    kind: str
    column: str
    value: float
    span: Nanoseconds = NO_SPAN
    others: Sequence[float] = ()
    whose: str = ""
    now: float = float("nan")
    detail: str = ""
    fleet: int = 0


def channel_of(feature: str, columns: Collection[str]) -> str:
    """Return the column, or the pair `y|x` of columns, that a model feature belongs to.

    A name without a known column is returned unchanged.

    Examples
    --------
    >>> columns = ("power_draw", "xid", "temperature_gpu")
    >>> [channel_of(n, columns) for n in ("mean:power_draw:7d", "xid[-3]", "count:xid=63")]
    ['power_draw', 'xid', 'xid']
    """
    record = _RECORD.fullmatch(feature)
    name = record[1] if record else feature
    if name in columns or name.startswith("failures:"):
        return name
    for part in reversed(name.split(":")):  # the peer group precedes the compared column
        stripped = part.removeprefix("grave ")
        if stripped in columns or _is_pair(stripped, columns):
            return stripped
        if (column := stripped.split("=")[0]) in columns:
            return column
    return name


def _is_pair(text: str, columns: Collection[str]) -> bool:
    parts = text.split("|")
    return len(parts) == 2 and all(part in columns for part in parts)


def span_words(span: Nanoseconds) -> str:
    """Format a span that ends now.

    Examples
    --------
    >>> span_words(Nanoseconds(7 * DAY)), span_words(Nanoseconds(DAY // 2))
    ('this week', 'in the last 12 h')
    """
    if span == 7 * DAY:
        return "this week"
    if span == DAY:
        return "in the last day"
    return f"in the last {format_duration(span / SECOND)}"


def phrase_reason(mention: Mention) -> str:
    """Return a reason as text.

    Examples
    --------
    >>> print(phrase_reason(Mention("count", "rows_remapped", 7, Nanoseconds(7 * DAY), [0, 0],
    ...     "the other GPUs of node-00054")))
    7 rows remapped this week; the other GPUs of node-00054: none
    """
    text, others = _PHRASES[mention.kind](mention)
    return f"{text}; {mention.whose}: {others}" if mention.whose and others else text


def _amount(value: float) -> str:
    """Format a number with few significant digits."""
    size = abs(value)
    if size >= 20 or abs(value - round(value)) < 0.005:
        return f"{round(value):,}"
    return f"{value:.3g}" if size >= 10 else f"{value:.2g}"


def _range(values: Sequence[float], unit: str = "") -> str:
    """Format the minimum and maximum of some values; of many values, without the outermost 5 %."""
    if not len(values):
        return ""
    ordered = sorted(values)
    cut = len(ordered) // 20
    texts = [_amount(ordered[cut]), _amount(ordered[-1 - cut])]
    whole = texts[0] if texts[0] == texts[1] else " to ".join(texts)
    return f"{'mostly ' if cut else ''}{whole}{unit}"


def _unit(column: str) -> str:
    return UNITS.get(column.split("|")[0], "")


def _count(mention: Mention) -> tuple[str, str]:
    others = "none" if not any(mention.others) and len(mention.others) else _range(mention.others)
    when = span_words(mention.span)
    noun = counted_noun(mention.column, mention.value)
    if noun:
        return f"{_amount(mention.value)} {noun} {when}", others
    return f"{title(mention.column)} rose by {_amount(mention.value)} {when}", others


def _duration(mention: Mention) -> tuple[str, str]:
    lasted = format_duration(mention.value / SECOND)
    others = (
        "never" if not any(mention.others) else f"up to {_format_nanoseconds(max(mention.others))}"
    )
    return f"{title(mention.column)} for {lasted} {span_words(mention.span)}", others


def _format_nanoseconds(nanoseconds: float) -> str:
    return format_duration(nanoseconds / SECOND)


def _level(mention: Mention) -> tuple[str, str]:
    when, unit = span_words(mention.span), _unit(mention.column)
    others = _range(mention.others, unit)
    if "|" not in mention.column:
        return f"{title(mention.column)} {_amount(mention.value)}{unit} {when}", others
    name, other = (title(part) for part in mention.column.split("|"))
    side = "above" if mention.value >= 0 else "below"
    size = f"{_amount(abs(mention.value))}{unit}"
    return f"{name} {size} {side} what its {other} explains, {when}", others


def _change(mention: Mention) -> tuple[str, str]:
    unit = _unit(mention.column)
    verb = "rose" if mention.value >= 0 else "fell"
    text = f"{title(mention.column)} {verb} by {_amount(abs(mention.value))}"
    text += f" to {_amount(mention.now)}{unit} {span_words(mention.span)}"
    return text, _range(mention.others, unit) and f"changed by {_range(mention.others, unit)}"


def _swing(mention: Mention) -> tuple[str, str]:
    unit = _unit(mention.column)
    text = f"{title(mention.column)} varies by {_amount(mention.value)}{unit} around its mean"
    return f"{text} {span_words(mention.span)}", _range(mention.others, unit)


def _silent(mention: Mention) -> tuple[str, str]:
    return f"no reading of {NOUNS.get(mention.column, title(mention.column))} " + span_words(
        mention.span
    ), ""


def _times(value: float) -> str:
    return {1: "once", 2: "twice"}.get(int(value), f"{_amount(value)} times")


# By the severity that the column has (`features/xid_severity.py`).
_GPU_ERRORS = {"1": "GPU warning", "2": "GPU error", "3": "critical GPU error"}


def _code(mention: Mention) -> tuple[str, str]:
    times, name = _times(mention.value), f"{title(mention.column)} {mention.detail}"
    if mention.column == GPU_ERROR:
        name = _GPU_ERRORS.get(mention.detail, name)
    elif mention.column == "xid" and mention.detail in xid_names():
        name += f" ({xid_names()[mention.detail]})"
    else:
        name += ":"  # separates two adjacent numbers
    last = f", {'' if mention.value == 1 else 'last '}{_ago(mention.now)}"
    others = "never" if not any(mention.others) and len(mention.others) else ""
    return f"{name} {times} {span_words(mention.span)}{last}", others or _range(mention.others)


def _ago(hours: float) -> str:
    if hours < 1:
        return "within the last hour"
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} days ago"


def _failures(mention: Mention) -> tuple[str, str]:
    times = _times(mention.value)
    if mention.column == "failures:serial":
        return f"this GPU has failed {times} before", ""
    return f"a GPU in this slot has failed {times} recently", ""


def _category(mention: Mention) -> tuple[str, str]:
    name, number = title(mention.column), _amount(mention.value)
    return f"{name} {mention.detail}, shared by {number} of {mention.fleet:,} GPUs", ""


def _date(mention: Mention) -> tuple[str, str]:
    days = f"{abs(mention.value):,.0f} days"
    name = NOUNS.get(mention.column, title(mention.column))
    return (f"{name} in {days}" if mention.value >= 0 else f"{name} {days} ago"), ""


_PHRASES: dict[str, Callable[[Mention], tuple[str, str]]] = {
    "count": _count,
    "duration": _duration,
    "level": _level,
    "change": _change,
    "swing": _swing,
    "silent": _silent,
    "code": _code,
    "failures": _failures,
    "category": _category,
    "date": _date,
}
