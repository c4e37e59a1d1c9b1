"""Names and texts that come from outside: what they may hold."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import parse_moment

__all__ = ["MachineName", "Moment", "Name", "Reason"]

_MAX_HOSTNAME_LENGTH: Final = 253  # of the name of a host in DNS
_MARKUP_CHARACTERS: Final = "<>"  # markup of pages and of messengers

MachineName = Annotated[
    str,
    StringConstraints(
        strict=True, max_length=_MAX_HOSTNAME_LENGTH, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
    ),
    Field(description="Name of a host: letters, digits, `.`, `_` and `-`.", examples=["node-17"]),
]
"""A host; it can be part of a path or of an argument without harm."""

Name = Annotated[
    str,
    StringConstraints(
        strict=True,
        max_length=_MAX_HOSTNAME_LENGTH,
        pattern=r"^[!-;=?-~]([ -;=?-~]*[!-;=?-~])?$",
    ),
]
"""Printable ASCII without `<` and `>`, and without blanks at its ends."""


def _plain(text: str) -> str:
    if not text.isprintable() or any(sign in text for sign in _MARKUP_CHARACTERS):
        raise ValueError("expected one line of plain text without `<` and `>`")
    return text


Reason = Annotated[
    str,
    StringConstraints(strict=True, max_length=500),
    AfterValidator(_plain),
    Field(description="One line of plain text, for whoever reads it later.", examples=["ticket 1"]),
]


@lru_cache(maxsize=10_000)  # the findings of one list have few different times
def _parsed(text: str) -> Nanoseconds:
    return Nanoseconds(parse_moment(text))


def _moment(value: object) -> Nanoseconds:
    try:
        return _parsed(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        raise ValueError("expected a time of ISO 8601 such as 2026-03-01T12:00:00Z") from None


Moment = Annotated[
    Nanoseconds,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
    Field(description="ISO 8601; without a zone it means UTC.", examples=["2026-03-01T12:00:00Z"]),
]
"""A time, as nanoseconds since 1970 UTC."""
