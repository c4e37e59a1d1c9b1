"""Validated types of names, texts and times in requests."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import parse_moment

__all__ = ["MachineName", "Moment", "Name", "Reason"]

_MAX_HOSTNAME_LENGTH: Final = 253  # DNS
_MARKUP_CHARACTERS: Final = "<>"  # markup in pages and messengers

MachineName = Annotated[
    str,
    StringConstraints(
        strict=True, max_length=_MAX_HOSTNAME_LENGTH, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
    ),
    Field(description="Name of a host: letters, digits, `.`, `_` and `-`.", examples=["node-17"]),
]
"""Hostname that is safe in a path or a command argument."""

Name = Annotated[
    str,
    StringConstraints(
        strict=True,
        max_length=_MAX_HOSTNAME_LENGTH,
        pattern=r"^[!-;=?-~]([ -;=?-~]*[!-;=?-~])?$",
    ),
]
"""Printable ASCII without `<`, `>` and surrounding blanks."""


def _plain(text: str) -> str:
    if not text.isprintable() or any(character in text for character in _MARKUP_CHARACTERS):
        raise ValueError("expected one line of plain text without `<` and `>`")
    return text


Reason = Annotated[
    str,
    StringConstraints(strict=True, max_length=500),
    AfterValidator(_plain),
    Field(description="Reason in one line of plain text.", examples=["ticket 1"]),
]


@lru_cache(maxsize=10_000)  # the findings of one list share few times
def _parsed(text: str) -> Nanoseconds:
    return Nanoseconds(parse_moment(text))


def _moment(value: object) -> Nanoseconds:
    try:
        return _parsed(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        raise ValueError("expected an ISO 8601 time such as 2026-03-01T12:00:00Z") from None


Moment = Annotated[
    Nanoseconds,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
    Field(description="ISO 8601; UTC if no zone is given.", examples=["2026-03-01T12:00:00Z"]),
]
"""A time, as nanoseconds since 1970 UTC."""
