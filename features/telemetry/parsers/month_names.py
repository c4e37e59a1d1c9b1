"""Months as log tools abbreviate them in the languages that machines are set up in."""

from __future__ import annotations

import re

__all__ = ["month_number"]

# The short names of January to December in the C library's locales, lower case and without a
# closing point. No name here stands for two months: Croatian, whose `lis` is not that of Polish
# and Czech, is left out.
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
    """Return the number of a month from its short name, None if no known language has it.

    Examples
    --------
    >>> month_number("Nov"), month_number("11月"), month_number("déc."), month_number("Foo")
    (11, 11, 12, None)
    """
    if match := _NUMBERED.fullmatch(name):
        return int(match[1])
    return _NUMBERS.get(name.lower().removesuffix("."))
