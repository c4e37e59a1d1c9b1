"""Who is missing where others wait: ranks that a program sends elsewhere, or one that is stuck."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["RankAbsence", "may_be_expected"]

_LEADER_RANK = 0  # saves, measures and logs for all
_MIN_DELAY_RATIO = 3  # times as long as the others took to come, one after another


@dataclass(frozen=True, slots=True)
class RankAbsence:
    """Ranks that have not come, as their own records prove, and that wait for nobody.

    Attributes
    ----------
    ranks : frozenset of int
        One or more.
    first, last : int
        When the first and the last of all others came, nanoseconds since 1970 UTC.
    """

    ranks: frozenset[int]
    first: int
    last: int

    def is_alone(self, table: Ranks, at: int, limit: int) -> bool:
        """Say whether somebody is late alone, and no program has sent it elsewhere.

        Who works on its share of a checkpoint comes a little later than the last but one. Ranks
        that make steps come together.

        Parameters
        ----------
        table : Ranks
        at : int
            Nanoseconds since 1970 UTC.
        limit : int
            Nanoseconds since the others came.

        Examples
        --------
        >>> from forewarn.features.diagnosis.ranks import Rank
        >>> table = Ranks({n: Rank(n, f"m{n // 2}") for n in range(6)})
        >>> Absence(frozenset({3}), 100, 101).is_alone(table, 131, 30)
        True
        >>> Absence(frozenset({3}), 100, 120).is_alone(table, 179, 30)
        False
        """
        alone = at - self.last
        is_late = alone >= max(limit, _MIN_DELAY_RATIO * (self.last - self.first))
        return is_late and not may_be_expected(self.ranks, table)


def may_be_expected(absent: Collection[int], ranks: Ranks) -> bool:
    """Say whether a program may have sent ranks elsewhere, to save or to evaluate.

    Parameters
    ----------
    absent : collection of int
        Whom the others wait for, one or more.
    ranks : Ranks
        Tell who runs on the same machine.

    Examples
    --------
    >>> from forewarn.features.diagnosis.ranks import Rank
    >>> ranks = Ranks({n: Rank(n, f"m{n // 2}") for n in range(6)})
    >>> [may_be_sent(absent, ranks) for absent in ([0], [3], [2, 3], [2, 4])]
    [True, False, False, True]
    """
    machines = {ranks.machine(rank) or rank for rank in absent}
    return _LEADER_RANK in absent or len(machines) > 1
