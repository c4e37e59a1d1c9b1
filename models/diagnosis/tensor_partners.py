"""What the tensor partners of a late rank tell: whether it is late of its own.

They make the same calls on the same data. What is not recorded, a recv from another stage or a
member without a dump, holds all of them up alike; a slow rank is late alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from forewarn.features.diagnosis.ranks import Ranks

__all__ = ["late_alone", "pipeline_waits"]

_AS_LATE = 0.5  # of a rank's lateness: a partner with less is punctual
_MORE = 1.25  # times the lateness of the slow rank: who is later than that is so of its own


def late_alone(late: Collection[int], seconds: Mapping[int, float], ranks: Ranks) -> frozenset[int]:
    """Return the late ranks of which a tensor partner is punctual.

    Parameters
    ----------
    late : collection of int
        Who is too late.
    seconds : mapping of int to float
        By how much each rank is later than its peers, seconds a step; a rank of which nothing is
        known is left out.
    ranks : Ranks

    Examples
    --------
    >>> from forewarn.features.diagnosis.ranks import Rank
    >>> ranks = Ranks({n: Rank(n, tp=n % 2, pp=n // 2, dp=0) for n in range(6)})
    >>> sorted(late_alone([1, 2, 3, 5], {0: 0.0, 1: 0.2, 2: 0.2, 3: 0.2, 5: 0.2}, ranks))
    [1]
    """
    return frozenset(
        rank
        for rank in late
        if any(
            seconds.get(partner, seconds[rank]) < _AS_LATE * seconds[rank]
            for partner in ranks.tensor_partners(rank)
        )
    )


def pipeline_waits(
    late: Collection[int], alone: Collection[int], seconds: Mapping[int, float], ranks: Ranks
) -> frozenset[int]:
    """Return the late ranks that a slow one of their pipeline explains: they wait in a recv.

    Parameters
    ----------
    late, alone : collections of int
        Who is too late, and who of them is so of its own.
    seconds : mapping of int to float
        As `late_alone` takes it.
    ranks : Ranks

    Examples
    --------
    >>> from forewarn.features.diagnosis.ranks import Rank
    >>> ranks = Ranks({n: Rank(n, tp=n % 2, pp=n // 2, dp=0) for n in range(6)})
    >>> seconds = {0: 0.0, 1: 0.2, 2: 0.2, 3: 0.2, 4: 0.9, 5: 0.9}
    >>> sorted(pipeline_waits([1, 2, 3, 4, 5], [1], seconds, ranks))
    [2, 3]
    """
    slow: dict[int | None, list[int]] = {}
    for rank in alone:
        slow.setdefault(ranks.table[rank].dp, []).append(rank)
    return frozenset(
        rank
        for rank in set(late).difference(alone)
        if any(
            ranks.table[other].pp != ranks.table[rank].pp
            and seconds[rank] <= _MORE * seconds[other]
            for other in slow.get(ranks.table[rank].dp, ())
        )
    )
