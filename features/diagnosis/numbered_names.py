"""Ranks in the names of files, by agreement of all names: the number that differs between files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from forewarn.features.diagnosis.ranks import MAX_RANKS

__all__ = ["ranks_of_names"]

_NUMBER = re.compile(r"\d+")
_RANK_WORD = re.compile(r"(?i)rank[._-]?$")
_MAX_DIGITS = 5  # longer numbers are dates, times and process numbers, unless `rank` precedes


def ranks_of_names(
    names: Sequence[str], known: Collection[int] | None = None
) -> dict[str, int | None]:
    """Return the rank in each name, or None if a name has none or shares it with a similar name.

    Names that differ only in numbers belong together. Of their numbers the one after the word
    `rank` counts; otherwise the one that differs between all of them, and if there are several,
    the one with the smallest values. In a single name the last number counts. The number of a
    folder counts after `rank` only, because it may be a machine's.

    Parameters
    ----------
    names : sequence of str
        Paths below the folder.
    known : collection of int, optional
        Ranks of the job, if they are known. A number that is none of them does not count.

    Examples
    --------
    >>> ranks_of_names(["trace_rank_0_20260304", "trace_rank_1_20260304"])
    {'trace_rank_0_20260304': 0, 'trace_rank_1_20260304': 1}
    >>> ranks_of_names(["2_1430.pkl", "3_1431.pkl", "README"])
    {'2_1430.pkl': 2, '3_1431.pkl': 3, 'README': None}
    >>> ranks_of_names(["node-1/dump_0", "node-2/dump_0"])
    {'node-1/dump_0': None, 'node-2/dump_0': None}
    """
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(_NUMBER.sub("#", name), []).append(name)
    ranks = dict.fromkeys(names, None) | {
        name: rank for family in families.values() for name, rank in _family_ranks(family, known)
    }
    return {name: ranks[name] for name in names}


def _family_ranks(
    family: Sequence[str], known: Collection[int] | None
) -> Iterator[tuple[str, int]]:
    """Yield names with their rank; a number that several names share tells none."""
    columns = list(zip(*(_NUMBER.finditer(name) for name in family), strict=True))
    usable = [column for column in columns if all(_may_be_rank(number) for number in column)]
    listed = [column for column in usable if known is None or _numbers(column) <= set(known)]
    column = _rank_column(listed or usable)
    counts = Counter(int(number[0]) for number in column)
    for name, number in zip(family, column, strict=False):
        if counts[int(number[0])] == 1:
            yield name, int(number[0])


def _may_be_rank(number: re.Match[str]) -> bool:
    if len(number[0]) > 9 or int(number[0]) >= MAX_RANKS:
        return False
    is_in_folder = "/" in number.string[number.end() :]
    return _follows_rank(number) or (len(number[0]) <= _MAX_DIGITS and not is_in_folder)


def _follows_rank(number: re.Match[str]) -> bool:
    return _RANK_WORD.search(number.string, 0, number.start()) is not None


def _numbers(column: Sequence[re.Match[str]]) -> set[int]:
    return {int(number[0]) for number in column}


def _rank_column(columns: Sequence[Sequence[re.Match[str]]]) -> Sequence[re.Match[str]]:
    """Return the numbers that are ranks; empty if there are none."""
    worded = [column for column in columns if _follows_rank(column[0])]
    if worded or not columns:
        return worded[-1] if worded else ()
    differing = [column for column in columns if 1 < len(_numbers(column)) == len(column)]
    if differing:
        return min(differing, key=lambda column: max(_numbers(column)))
    return columns[-1]
