"""Slow rank: the rank that is later than its peers on its own, and the time lost per step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from forewarn.features.diagnosis.ranks import Ranks, format_ranks
from forewarn.models.diagnosis.slow.lateness import Lateness
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["slow_finding"]

_MIN_STEP_SHARE = 0.05  # of a step
_MIN_MADS = 4.0
_MAD_TO_SIGMA = 1.4826  # scales the median absolute deviation to a standard deviation
_MIN_LATE_SHARE = 0.6
_MIN_LATE_SHARE_SINCE = 0.8  # of the steps since the lateness began
_MIN_RANKS = 3
_PUNCTUAL_RATIO = 0.5  # of a rank's lateness; a partner with less is punctual
_MAX_EXPLAINED_RATIO = 1.25  # times the lateness of the slow rank; a later rank is late on its own


@dataclass(frozen=True, slots=True)
class _Excess:
    rank: int
    seconds: float  # per step
    peers: float  # median of the peers, seconds per step
    step: float
    since: int


def slow_finding(
    lateness: Mapping[int, Lateness],
    ranks: Ranks,
    *,
    clock_uncertainty: Mapping[int, float] | None = None,
    possible_waits: Mapping[int, frozenset[int]] | None = None,
    lacks_p2p: bool = False,
    part: str = "flight",
    period: str = "step",
    min_share: float = _MIN_STEP_SHARE,
) -> JobFinding | None:
    """Return the ranks that are consistently later than their peers by a share of a step.

    Parameters
    ----------
    lateness : mapping of int to Lateness
        By rank.
    ranks : Ranks
    clock_uncertainty : mapping of int to float, optional
        Uncertainty of each rank's clock in seconds; lateness below twice that does not count.
    possible_waits : mapping of int to frozenset of int, optional
        Ranks without a dump that a rank may have waited for; they share its weight.
    lacks_p2p : bool
        No send or receive is recorded, so that other pipeline stages seem as late as the slow one.
    part, period : str
        What was read, and what `lateness` calls a step.
    min_share : float
        Smallest relevant lateness, as a share of a step.

    Returns
    -------
    JobFinding or None
        None if no rank is late, or ranks cannot be compared.
    """
    if len(lateness) < _MIN_RANKS:
        return None
    medians = {rank: float(np.median(late.own)) for rank, late in lateness.items()}
    excesses = [
        excess
        for rank in sorted(lateness)
        if (excess := _excess(lateness[rank], medians, ranks, min_share)) is not None
        and excess.seconds > 2 * (clock_uncertainty or {}).get(rank, 0.0)
    ]
    late = [excess.rank for excess in excesses]
    seconds = {
        rank: own - _peer_median_and_spread(rank, medians, ranks)[0]
        for rank, own in medians.items()
    }
    alone = late_without_partners(late, seconds, ranks)
    waits = late_through_pipeline(late, alone, seconds, ranks) if lacks_p2p else ()
    excesses = [excess for excess in excesses if excess.rank not in waits]
    if not excesses:
        return None
    excesses.sort(key=lambda excess: -excess.seconds)
    top = excesses[0]
    gain = top.seconds - (excesses[1].seconds if len(excesses) > 1 else 0.0)
    cause = (
        f"rank {top.rank} enters its collectives {top.seconds:.3f} s per {period} later than its "
        f"peers; without this delay a {period} of {top.step:.3f} s would gain {gain:.3f} s"
    )
    return JobFinding(
        "slow",
        cause,
        _candidates(excesses, _possible_waits(possible_waits or {}, alone, ranks), period),
        evidence=tuple(_evidence(excess, part, period) for excess in excesses),
    )


def _excess(
    late: Lateness, medians: Mapping[int, float], ranks: Ranks, min_share: float
) -> _Excess | None:
    """Return by how much a rank is later than its peers, or None if it is not."""
    usual, spread = _peer_median_and_spread(late.rank, medians, ranks)
    seconds = medians[late.rank] - usual
    is_late = late.own > usual + seconds / 2
    if (
        seconds < max(min_share * late.step, _MIN_MADS * spread)
        or np.mean(is_late) < _MIN_LATE_SHARE
    ):
        return None
    return _Excess(late.rank, seconds, usual, late.step, _since(late, is_late))


def _peer_median_and_spread(
    rank: int, medians: Mapping[int, float], ranks: Ranks
) -> tuple[float, float]:
    """Return median and spread of a rank's peers, or of all other ranks if peers are too few."""
    others = np.array([medians[peer] for peer in ranks.peers(rank) if peer in medians])
    if len(others) < _MIN_RANKS - 1:
        others = np.array([value for other, value in medians.items() if other != rank])
    usual = float(np.median(others))
    return usual, _MAD_TO_SIGMA * float(np.median(np.abs(others - usual)))


def _since(late: Lateness, is_late: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """Return the start of the step from which the rank is late in most further steps."""
    onwards = np.cumsum(is_late[::-1])[::-1] / np.arange(len(is_late), 0, -1)
    first = np.flatnonzero(onwards >= min(_MIN_LATE_SHARE_SINCE, onwards[0]))
    return int(late.begin[first[0]])


def _possible_waits(
    possible_waits: Mapping[int, frozenset[int]], alone: Collection[int], ranks: Ranks
) -> Mapping[int, frozenset[int]]:
    """Exclude tensor partners without a dump if another partner is punctual."""
    return {
        rank: others.difference(ranks.tensor_partners(rank)) if rank in alone else others
        for rank, others in possible_waits.items()
    }


def _candidates(
    excesses: list[_Excess], possible_waits: Mapping[int, frozenset[int]], period: str
) -> tuple[CulpritCandidate, ...]:
    """Return the late ranks and those they may have waited for, which share the weight."""
    late = {excess.rank for excess in excesses}
    candidates: dict[int, CulpritCandidate] = {}
    for excess in excesses:
        others = sorted(possible_waits.get(excess.rank, frozenset()) - late)
        weight = STRONG * excess.seconds / excesses[0].seconds / (1 + len(others))
        why = f"{excess.seconds:.3f} s per {period} later than its peers, on its own"
        if others:
            why = f"{why} or because it waited for {format_ranks(others)} without a dump"
        candidates[excess.rank] = CulpritCandidate(excess.rank, why, weight, excess.since)
        for rank in others:
            why = f"left no dump, and the late rank {excess.rank} may have waited for it"
            candidates.setdefault(rank, CulpritCandidate(rank, why, weight, excess.since))
    return tuple(candidates.values())


def _evidence(excess: _Excess, part: str, period: str) -> Evidence:
    says = (
        f"rank {excess.rank} takes {excess.peers + excess.seconds:.3f} s per {period} between its "
        f"collectives, the median of its peers is {excess.peers:.3f} s"
    )
    details = {"excess_seconds": excess.seconds, "step_seconds": excess.step}
    return Evidence(part, says, excess.rank, excess.since, details)


# Tensor partners of a late rank make the same calls on the same data. An unrecorded wait (a receive
# from another stage, a member without a dump) delays all of them alike; a slow rank is late alone.


def late_without_partners(
    late: Collection[int], seconds: Mapping[int, float], ranks: Ranks
) -> frozenset[int]:
    """Return the late ranks that have a punctual tensor partner.

    Parameters
    ----------
    late : collection of int
        Ranks that are late.
    seconds : mapping of int to float
        Seconds per step by which each rank is later than its peers, as far as known.
    ranks : Ranks

    Examples
    --------
    >>> from forewarn.features.diagnosis.ranks import Rank
    >>> ranks = Ranks({n: Rank(n, tp=n % 2, pp=n // 2, dp=0) for n in range(6)})
    >>> seconds = {0: 0.0, 1: 0.2, 2: 0.2, 3: 0.2, 5: 0.2}
    >>> sorted(late_without_partners([1, 2, 3, 5], seconds, ranks))
    [1]
    """
    return frozenset(
        rank
        for rank in late
        if any(
            seconds.get(partner, seconds[rank]) < _PUNCTUAL_RATIO * seconds[rank]
            for partner in ranks.tensor_partners(rank)
        )
    )


def late_through_pipeline(
    late: Collection[int], alone: Collection[int], seconds: Mapping[int, float], ranks: Ranks
) -> frozenset[int]:
    """Return the late ranks explained by a slow rank of their pipeline: they wait in a receive.

    Parameters
    ----------
    late, alone : collections of int
        Ranks that are late, and those of them that are late on their own.
    seconds : mapping of int to float
        As for `late_without_partners`.
    ranks : Ranks

    Examples
    --------
    >>> from forewarn.features.diagnosis.ranks import Rank
    >>> ranks = Ranks({n: Rank(n, tp=n % 2, pp=n // 2, dp=0) for n in range(6)})
    >>> seconds = {0: 0.0, 1: 0.2, 2: 0.2, 3: 0.2, 4: 0.9, 5: 0.9}
    >>> sorted(late_through_pipeline([1, 2, 3, 4, 5], [1], seconds, ranks))
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
            and seconds[rank] <= _MAX_EXPLAINED_RATIO * seconds[other]
            for other in slow.get(ranks.table[rank].dp, ())
        )
    )
