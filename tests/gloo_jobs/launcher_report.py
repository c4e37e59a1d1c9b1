"""Parser for torchrun's failure report: exits, and the failure that it observed first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Failure", "failures", "root_cause"]

_FAILURE = re.compile(
    r"^\[\d+\]:\n\s+time\s+: (?P<day>[\d-]+)_(?P<time>[\d:]+)\n\s+host\s+: .*\n"
    r"\s+rank\s+: (?P<rank>\d+) .*\n\s+exitcode\s+: (?P<code>-?\d+)",
    re.MULTILINE,
)
_ROOT = "Root Cause (first observed failure):"


@dataclass(frozen=True)
class Failure:
    """A rank in the report.

    Attributes
    ----------
    rank, exit_code : int
    time : str
        ISO 8601; torchrun writes whole seconds of local time, here UTC.
    is_root : bool
        Whether it is the first failure that this machine's agent observed.
    """

    rank: int
    exit_code: int
    time: str
    is_root: bool


def failures(text: str) -> Iterator[Failure]:
    """Yield the failures of a machine, the root cause last, as torchrun prints them."""
    begin = text.find(_ROOT)
    for match in _FAILURE.finditer(text):
        time = f"{match['day']}T{match['time']}Z"
        is_root = 0 <= begin < match.start()
        yield Failure(int(match["rank"]), int(match["code"]), time, is_root)


def root_cause(reported: list[Failure]) -> list[int]:
    """Return the earliest root causes of all machines; several if they are in the same second."""
    roots = [failure for failure in reported if failure.is_root]
    first = min((failure.time for failure in roots), default=None)
    return [failure.rank for failure in roots if failure.time == first]
