"""Renders the HTML pages, and formats numbers, times and text for them."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

import jinja2
import pandas as pd

__all__ = [
    "amount",
    "chance_text",
    "count",
    "day",
    "finite_number",
    "moment",
    "parse_utc",
    "per_hundred",
    "plural",
    "prose",
    "render_page",
    "visible",
]

NO_VALUE = "—"
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?Z\b")
_MONTHS = "January February March April May June July August September October November December"


def finite_number(value: object) -> float | None:
    """Return a finite number as a float, and None for anything else.

    Parameters
    ----------
    value : object
        A value from a JSON file or a table: a number, None, NaN, or anything else.

    Examples
    --------
    >>> finite_number(3), finite_number(None), finite_number(float("nan")), finite_number("3")
    (3.0, None, None, None)
    """
    if isinstance(value, bool | str) or value is None:
        return None
    try:
        result = float(value)  # type: ignore[arg-type]  # numpy scalars, Decimal: asked, not guessed
    except (TypeError, ValueError):
        return None
    return result if math.isfinite(result) else None


def amount(value: object, digits: int = 3) -> str:
    """Format a number with a fixed number of decimals; a dash if there is none.

    Examples
    --------
    >>> amount(0.84), amount(None), amount(1234.5, 0), amount(-0.001, 1)
    ('0.840', '—', '1,234', '0.0')
    """
    figure = finite_number(value)
    return NO_VALUE if figure is None else f"{figure:z,.{digits}f}"


def count(value: object) -> str:
    """Format an integer with thousands separators; a dash if there is none.

    Examples
    --------
    >>> count(1234567.0), count(None)
    ('1,234,567', '—')
    """
    return amount(value, 0)


def plural(n: float, noun: str) -> str:
    """Format a count with its noun in the singular or plural.

    Examples
    --------
    >>> plural(1, "GPU"), plural(1200, "machine")
    ('1 GPU', '1,200 machines')
    """
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"


def per_hundred(share: object) -> str:
    """Format a share as a number out of a hundred, with sensible precision.

    Examples
    --------
    >>> per_hundred(0.314), per_hundred(0.0031), per_hundred(0.00002), per_hundred(None)
    ('31', '0.3', '0.002', '—')
    """
    percent = finite_number(share)
    if percent is None:
        return NO_VALUE
    percent *= 100.0
    if percent == 0.0 or percent >= 9.95:
        return f"{percent:.0f}"
    return f"{percent:.1f}" if percent >= 0.095 else f"{percent:.1g}"


def chance_text(probability: object) -> str:
    """Format a probability as a percentage, never as 0 % or 100 %.

    Examples
    --------
    >>> chance_text(0.618), chance_text(0.041), chance_text(0.0002), chance_text(1.0)
    ('62 %', '4.1 %', 'under 0.1 %', 'over 99 %')
    """
    chance = finite_number(probability)
    if chance is None:
        return NO_VALUE
    if chance < 0.001:
        return "under 0.1 %"
    if chance >= 0.99:
        return "over 99 %"
    return f"{chance:.0%}".replace("%", " %") if chance >= 0.0995 else f"{chance * 100:.1f} %"


def moment(value: object, *, year: bool = True) -> str:
    """Format a time for people, in UTC; return other text unchanged.

    Parameters
    ----------
    value : object
        A timestamp, a string with a time, or nothing. A naive one is in UTC.
    year : bool
        Whether to include the year.

    Examples
    --------
    >>> moment("2025-03-02T02:50:00Z"), moment("2025-03-02 02:50", year=False)
    ('2 March 2025, 02:50 UTC', '2 March, 02:50 UTC')
    """
    time = parse_utc(value)
    if time is None:
        return visible(value) or NO_VALUE
    return f"{day(time, year=year)}, {time:%H:%M} UTC"


def day(time: pd.Timestamp, *, year: bool = True) -> str:
    """Format a date with the English month name, independent of the locale."""
    text = f"{time.day} {_MONTHS.split()[time.month - 1]}"
    return f"{text} {time.year}" if year else text


def parse_utc(value: object) -> pd.Timestamp | None:
    """Return a time in UTC, or None if there is none."""
    if value is None or isinstance(value, int | float):
        return None
    try:
        time = pd.Timestamp(value)  # type: ignore[arg-type]  # anything may have come
    except (TypeError, ValueError):
        return None
    if not isinstance(time, pd.Timestamp):  # NaT
        return None
    return time.tz_localize("UTC") if time.tzinfo is None else time.tz_convert("UTC")


def visible(value: object, limit: int = 120) -> str:
    r"""Make text from data visually safe; the template escapes it as well.

    Invisible characters (control characters, direction marks, unpaired surrogates) could make one
    serial look like another. Each becomes U+FFFD.

    Parameters
    ----------
    value : object
        Text from data. None and NaN give an empty string.
    limit : int
        Maximum length in characters; longer text ends in an ellipsis.

    Examples
    --------
    >>> visible("SN\u202e123"), visible(None), visible("x" * 9, limit=4)
    ('SN�123', '', 'xxx…')
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float) and math.isnan(value):
        return ""
    text = str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def prose(value: object, limit: int = 120) -> str:
    """Return text of forewarn itself as `visible` does, with its times as they are shown elsewhere.

    Examples
    --------
    >>> prose("reset GPU 3 (asked at 2025-03-01T00:26:00.000000000Z)")
    'reset GPU 3 (asked at 1 March 2025, 00:26 UTC)'
    """
    return visible(_TIME.sub(lambda match: moment(match[0]), visible(value, limit=4000)), limit)


def render_page(template: str, context: Mapping[str, Any]) -> str:
    """Render one of the package's templates; text is escaped and unknown names are errors.

    Parameters
    ----------
    template : str
        Path of the template within the package.
    context : mapping
        Values of the template's names.
    """
    return _environment().get_template(template).render(context)


@functools.cache
def _environment() -> jinja2.Environment:
    """Load templates from the package, so that wheels and checkouts work alike."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("forewarn.pipelines", package_path=""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for name in (amount, count, per_hundred, moment, visible, plural, prose):
        environment.filters[name.__name__] = name
    environment.filters["chance"] = chance_text
    return environment
