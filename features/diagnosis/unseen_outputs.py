"""Output of ranks that a collector could not see: its table, and sentences about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from forewarn.features.diagnosis.ranks import MAX_RANKS, format_ranks
from forewarn.features.diagnosis.table_rows import table_rows
from forewarn.features.errors import InputError

__all__ = ["UNSEEN_COLUMNS", "UnseenError", "UnseenOutput", "describe_unseen", "parse_unseen"]

UNSEEN_COLUMNS = ("rank", "stream", "goes_to", "reason")
_DISCARDING = ("null", "closed")
_MAX_REASON_LENGTH = 300


class UnseenError(InputError):
    """A table of unseen output that cannot be used."""


@dataclass(frozen=True, slots=True)
class UnseenOutput:
    """Stream of a rank that was not copied.

    Attributes
    ----------
    rank : int
    stream : str
        `stdout` or `stderr`.
    goes_to : str
        `pipe`, `terminal`, `socket`, `device`, `file`, `null` or `closed`.
    reason : str
        Continues the sentence "stdout is ...".
    """

    rank: int
    stream: str
    goes_to: str
    reason: str

    @property
    def is_discarded(self) -> bool:
        """Whether it is discarded, so that another file may be the whole log."""
        return self.goes_to in _DISCARDING


def parse_unseen(text: str, name: str) -> list[UnseenOutput]:
    r"""Parse `rank,stream,goes_to,reason`.

    Parameters
    ----------
    text : str
    name : str
        File name for error messages.

    Raises
    ------
    UnseenError
        If a column is missing or a rank is invalid.

    Examples
    --------
    >>> parse_unseen("rank,stream,goes_to,reason\n3,stdout,null,/dev/null\n", "a.csv")[0].rank
    3
    """
    rows = table_rows(text, name, UNSEEN_COLUMNS, UnseenError)
    return [_parse_row(cells, where) for cells, where in rows]


def _parse_row(cells: dict[str, str], where: str) -> UnseenOutput:
    rank = cells["rank"]
    if not (rank.isascii() and rank.isdecimal() and len(rank) < 8 and int(rank) < MAX_RANKS):
        raise UnseenError(
            f"{where}: column `rank` is {rank[:40]!r}, expected an integer from 0 to "
            f"{MAX_RANKS - 1}."
        )
    reason = cells["reason"][:_MAX_REASON_LENGTH]
    return UnseenOutput(int(rank), cells["stream"], cells["goes_to"], reason)


def describe_unseen(outputs: Iterable[UnseenOutput]) -> Iterator[str]:
    """Yield a sentence per reason, with the ranks that it holds for.

    Examples
    --------
    >>> rows = [UnseenOutput(rank, "stdout", "terminal", "a terminal") for rank in (0, 1)]
    >>> list(describe_unseen(rows))
    ['ranks 0, 1: stdout is a terminal']
    """
    streams: dict[tuple[int, str], list[str]] = {}
    for output in outputs:
        streams.setdefault((output.rank, output.reason), []).append(output.stream)
    ranks: dict[tuple[str, str], list[int]] = {}
    for (rank, reason), names in streams.items():
        ranks.setdefault((" and ".join(sorted(set(names), reverse=True)), reason), []).append(rank)
    for (names_, reason), numbers in ranks.items():
        verb = "are" if " and " in names_ else "is"
        yield f"{format_ranks(sorted(numbers))}: {names_} {verb} {reason}"
