"""Parser for `exits.csv`: the exit codes of the ranks of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forewarn.features.diagnosis.ranks import MAX_RANKS
from forewarn.features.diagnosis.table_rows import table_rows
from forewarn.features.errors import InputError

__all__ = ["ExitsError", "RankExitCode", "parse_exits"]


class ExitsError(InputError):
    """An `exits.csv` that cannot be used."""


@dataclass(frozen=True, slots=True)
class RankExitCode:
    """Exit of one process.

    Attributes
    ----------
    code : int
        Exit code. A negative code is the signal that ended the process; the shell's form (128 +
        signal) is converted to it.
    time : int or None
        Nanoseconds since 1970 UTC.
    """

    code: int
    time: int | None


def parse_exits(
    text: str, name: str, moment: Callable[[str], int]
) -> Mapping[int, tuple[RankExitCode, ...]]:
    """Parse the exits of each rank, in time order; a rank has one exit per attempt.

    Parameters
    ----------
    text : str
    name : str
        File name for error messages.
    moment : callable
        Converts a time to nanoseconds since 1970 UTC; raises `ValueError` if it cannot.

    Raises
    ------
    ExitsError
        If a column is missing or a value is invalid.
    """
    exits: dict[int, list[RankExitCode]] = {}
    for row, where in table_rows(text, name, ("rank", "exit_code"), ExitsError):
        rank = _parse_integer(row["rank"], 0, MAX_RANKS - 1, f"{where}: `rank`")
        code = _parse_integer(row["exit_code"], -255, 255, f"{where}: `exit_code`")
        time = _parse_time(row.get("timestamp") or "", moment, where)
        exits.setdefault(rank, []).append(RankExitCode(128 - code if code > 128 else code, time))
    return {rank: tuple(sorted(ends, key=_sort_key)) for rank, ends in sorted(exits.items())}


def _sort_key(end: RankExitCode) -> tuple[bool, int]:
    return end.time is not None, end.time or 0


def _parse_integer(cell: str, least: int, most: int, where: str) -> int:
    text = cell.strip()
    if text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 9:
        number = int(text)
        if least <= number <= most:
            return number
    raise ExitsError(f"{where} is {cell[:40]!r}, expected an integer from {least} to {most}.")


def _parse_time(cell: str, moment: Callable[[str], int], where: str) -> int | None:
    if not cell.strip():
        return None
    try:
        return moment(cell.strip())
    except (ValueError, OverflowError):
        raise ExitsError(
            f"{where}: `timestamp` is {cell[:40]!r}, expected a time such as 2025-03-01T06:00:00Z."
        ) from None
