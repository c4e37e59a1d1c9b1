"""Expressions widened so that they match whatever digits a line has."""

from __future__ import annotations

import re

__all__ = ["any_digits", "zero_digits"]

_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() else byte for byte in range(128)) + bytes(
    range(128, 256)
)


def zero_digits(line: bytes) -> bytes:
    """Return a line with each digit replaced by a zero."""
    return line.translate(_TO_ZERO)


def any_digits(expression: str) -> str:
    r"""Return an expression that matches a line of zeros wherever `expression` matches some digits.

    Examples
    --------
    >>> any_digits(r"Xid \d+: 7[49]\b.{1,20}")
    'Xid \\d+: [0-9][490-9]\\b.{1,20}'
    """
    tokens = _TOKEN.findall(expression)
    if any(_UNCLEAR.fullmatch(token) for token in tokens):
        return "."
    return "".join(map(_with_any_digit, tokens))


_TOKEN = re.compile(
    r"\\."  # an escape
    r"|\{\d+(?:,\d*)?\}"  # a number of repetitions
    r"|\(\?P?<\w+>"  # the name of a group
    r"|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"  # a class
    r"|.",
    re.DOTALL,
)
_UNCLEAR = re.compile(r"\\[0-7xQpP]|\[.*\\[0-7xpP].*\]", re.DOTALL)  # digits by other names


def _with_any_digit(token: str) -> str:
    """Return a token that also matches zero if the token matches a digit."""
    if token.isdecimal():
        return "[0-9]"
    if not token.startswith("[") or not any(map(str.isdecimal, token)):
        return token
    if token.startswith("[^"):
        pieces = [re.sub(r"\d-\d", "", piece) for piece in token.split("0-9")]
        if any(re.search(r"\d-|-\d", piece) for piece in pieces):
            return "."
        rest = "0-9".join(re.sub(r"\d", "", piece) for piece in pieces)
        return "." if rest == "[^]" else rest
    return token[:-1] + "0-9]"
