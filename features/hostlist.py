"""Slurm host lists: machine names in compressed form, such as `node-[08-10]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

__all__ = ["HostlistError", "compress", "expand"]

_MAX_NAMES = 100_000  # in one list; the largest clusters have about a tenth of it
_MAX_LENGTH = 1_000_000  # characters
_PARTS = re.compile(r"\[[^][]*\]|[^][,]+|,")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,12})", re.ASCII | re.DOTALL)


class HostlistError(ValueError):
    """An invalid host list; the message is one line."""


def expand(text: str) -> list[str]:
    """Expand a host list to its names, in the given order.

    Raises
    ------
    HostlistError
        If brackets are unbalanced, a range is descending, or there are more than 100,000 names.

    Examples
    --------
    >>> expand("login,node-[08-10,12],r[1-2]n[1-2]")
    ['login', 'node-08', 'node-09', 'node-10', 'node-12', 'r1n1', 'r1n2', 'r2n1', 'r2n2']
    """
    if len(text) > _MAX_LENGTH:
        raise HostlistError(
            f"a host list has {len(text)} characters, expected at most {_MAX_LENGTH}"
        )
    parts = _PARTS.findall(text)
    if "".join(parts) != text:
        raise HostlistError(f"{text[:100]!r} is not a host list: unbalanced brackets")
    names: list[str] = []
    for is_comma, item in groupby(parts, lambda part: part == ","):
        if not is_comma:
            names += _product(list(item), _MAX_NAMES - len(names))
    return names


def _product(item: list[str], most: int) -> list[str]:
    """Expand one item, such as `r[1-2]n[1-2]`."""
    names = [""]
    for part in item:
        ends = _numbers(part[1:-1], most) if part.startswith("[") else [part]
        if len(names) * len(ends) > most:
            raise HostlistError(f"a host list has more than {_MAX_NAMES} names")
        names = [name + end for name in names for end in ends]
    return names


def _numbers(text: str, most: int) -> list[str]:
    """Expand the numbers of one bracket; leading zeros are kept."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise HostlistError(f"[{text[:100]}] in a host list: {part[:20]!r} is not a range")
        first, last = match[1], match[2] or match[1]
        count = int(last) - int(first) + 1
        if count < 1:
            raise HostlistError(f"[{text[:100]}] in a host list: {part} is descending")
        if len(numbers) + count > most:
            raise HostlistError(f"a host list has more than {_MAX_NAMES} names")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers


def compress(names: Iterable[str]) -> str:
    """Compress names to a host list without duplicates, sorted by prefix and number.

    Names share a bracket if they differ only in the last number and have equally many digits.

    Examples
    --------
    >>> compress(["node-09", "node-08", "node-10", "node-12", "login", "node-8"])
    'login,node-8,node-[08-10,12]'
    """
    items = []
    split = sorted({_split(name) for name in names})
    for (prefix, width), group in groupby(split, lambda part: part[:2]):
        ranges = list(_ranges([number for _, _, number in group], width))
        several = len(ranges) > 1 or "-" in ranges[0]
        items.append(f"{prefix}[{','.join(ranges)}]" if several else prefix + ranges[0])
    return ",".join(items)


def _split(name: str) -> tuple[str, int, int]:
    """Return the prefix, the number of digits and the last number; 0 digits if there is none."""
    match = _NUMBERED.fullmatch(name)
    return (name, 0, 0) if match is None else (match[1], len(match[2]), int(match[2]))


def _ranges(numbers: list[int], width: int) -> Iterator[str]:
    """Yield ranges such as `08-10` or `12` of ascending numbers; an empty string without digits."""
    # Consecutive numbers have the same difference to their position.
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run_numbers = [number for _, number in run]
        ends = dict.fromkeys((run_numbers[0], run_numbers[-1]))
        yield "-".join(f"{number:0{width}d}" for number in ends) if width else ""
