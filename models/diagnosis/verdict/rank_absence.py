"""Absence of ranks that others wait for: intended by the program, or a fault."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["RankAbsence", "may_be_expected"]

_LEADER_RANK = 0  # saves, measures and logs for all ranks
_MIN_DELAY_RATIO = 3  # times the span in which the others entered


@dataclass(frozen=True, slots=True)
class RankAbsence:
    """Ranks that have not entered an operation, as their own dumps prove, and wait for no rank.

    Attributes
    ----------
    ranks : frozenset of int
        At least one.
    first, last : int
        First and last entry of all other ranks, in nanoseconds since 1970 UTC.
    """

    ranks: frozenset[int]
    first: int
    last: int

    def is_alone(self, table: Ranks, at: int, limit: int) -> bool:
        """Return whether the ranks are late alone and the program did not send them elsewhere.

        A rank that writes its share of a checkpoint enters shortly after the last but one. Ranks
        that make steps enter together.

        Parameters
        ----------
        table : Ranks
        at : int
            Nanoseconds since 1970 UTC.
        limit : int
            Minimum time since the others entered, in nanoseconds.

        Examples
        --------
        >>> from forewarn.features.diagnosis.ranks import Rank
        >>> table = Ranks({n: Rank(n, f"m{n // 2}") for n in range(6)})
        >>> RankAbsence(frozenset({3}), 100, 101).is_alone(table, 131, 30)
        True
        >>> RankAbsence(frozenset({3}), 100, 120).is_alone(table, 179, 30)
        False
        """
        alone = at - self.last
        is_late = alone >= max(limit, _MIN_DELAY_RATIO * (self.last - self.first))
        return is_late and not may_be_expected(self.ranks, table)


def may_be_expected(absent: Collection[int], ranks: Ranks) -> bool:
    """Return whether a program may have sent the absent ranks elsewhere, to save or evaluate.

    This holds for rank 0 and for ranks of several machines.

    Parameters
    ----------
    absent : collection of int
        Ranks that the others wait for, at least one.
    ranks : Ranks
        Provides the machine of each rank.

    Examples
    --------
    >>> from forewarn.features.diagnosis.ranks import Rank
    >>> ranks = Ranks({n: Rank(n, f"m{n // 2}") for n in range(6)})
    >>> [may_be_expected(absent, ranks) for absent in ([0], [3], [2, 3], [2, 4])]
    [True, False, False, True]
    """
    machines = {ranks.machine(rank) or rank for rank in absent}
    return _LEADER_RANK in absent or len(machines) > 1
