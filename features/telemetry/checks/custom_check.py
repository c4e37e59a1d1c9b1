"""Names of custom checks in events: the check of a site and the identity of its definition."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["CustomCheck", "custom_check_name", "parse_custom_check"]

_NAME = re.compile(r"custom (?P<name>[\w-]{1,64})@(?P<definition>[0-9a-f]{8,64})")


class CustomCheck(NamedTuple):
    """A custom check.

    Attributes
    ----------
    name : str
    definition : str
        Hash of its command, interval and timeout.
    """

    name: str
    definition: str


def custom_check_name(name: str, definition: str) -> str:
    """Return the name of a check in events.

    Examples
    --------
    >>> custom_check_name("scratch", "0a1b2c3d")
    'custom scratch@0a1b2c3d'
    """
    return f"custom {name}@{definition}"


def parse_custom_check(check: str | None) -> CustomCheck | None:
    """Return the check of an event; None if it is not a custom one.

    Examples
    --------
    >>> parse_custom_check("custom scratch@0a1b2c3d")
    CustomCheck(name='scratch', definition='0a1b2c3d')
    >>> parse_custom_check("dcgm health")
    """
    match = _NAME.fullmatch(check or "")
    return CustomCheck(match["name"], match["definition"]) if match else None
