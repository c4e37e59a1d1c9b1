"""Parser for folded stacks: sample counts per stack, from `py-spy record -f raw` or perf."""

from __future__ import annotations

from collections import Counter

from forewarn.features.errors import InputError

__all__ = ["BrokenProfileError", "parse_folded"]


class BrokenProfileError(InputError):
    """A profile that cannot be used."""


def parse_folded(text: str) -> dict[tuple[str, ...], float]:
    r"""Parse lines of the form `outer;inner count`.

    Parameters
    ----------
    text : str

    Returns
    -------
    dict
        Sample counts by stack, outermost frame first.

    Raises
    ------
    BrokenProfileError
        If a line does not end in a count.

    Examples
    --------
    >>> parse_folded("main;step 3\nmain;step 1\nmain;load 2\n")
    {('main', 'step'): 4.0, ('main', 'load'): 2.0}
    """
    counts: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        stack, _, count = line.rstrip().rpartition(" ")
        if not stack or not (count.isascii() and count.isdecimal() and len(count) < 19):
            raise BrokenProfileError(f"line {number} ends in {count[:20]!r}, expected a count")
        counts[tuple(frame for frame in stack.split(";") if frame)] += int(count)
    return {stack: float(count) for stack, count in counts.items()}
