"""Ranks that deviate from their peers and from their baseline: run-queue wait, calls, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    WEAK,
    CulpritCandidate,
    Evidence,
    JobFinding,
    Kind,
)

__all__ = ["PeerChannel", "deviation_finding"]

_RECENT_WINDOW = 3 * MINUTE
_MIN_BASELINE = 5 * MINUTE  # span of a baseline
_MIN_RATIO = 2.0  # against peers and baseline
_MIN_MADS = 6.0
_MAD_TO_SIGMA = 1.4826
_MIN_PEERS = 3
_MIN_AGREEING_CHANNELS = 2
_MAX_DEVIATING_SHARE = 0.125


@dataclass(frozen=True, slots=True)
class PeerChannel:
    """A quantity that is similar among peers.

    Attributes
    ----------
    samples : RankSamples
    name : str
        Its channel.
    part : str
    says : str
        Description with unit.
    least : float
        Smallest relevant difference, in its unit.
    """

    samples: RankSamples
    name: str
    part: str
    says: str
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class _Deviation:
    rank: int
    channel: PeerChannel
    now: float
    peers: float
    past: float | None
    ratio: float

    def evidence(self) -> Evidence:
        past = "" if self.past is None else f", its baseline {self.past:.4g}"
        says = (
            f"{self.channel.says} of rank {self.rank} is {self.now:.4g}, the median of its peers "
            f"{self.peers:.4g}{past}"
        )
        return Evidence(self.channel.part, says, self.rank)


def deviation_finding(channels: list[PeerChannel], ranks: Ranks, at: int) -> JobFinding | None:
    """Return the ranks that deviate by a factor of two from their peers and from their baseline.

    One channel is weak evidence. If two channels of different kinds agree on a rank, the rank is
    slow. A channel in which more than an eighth of the ranks deviate does not count: a checkpoint
    has that effect.

    Parameters
    ----------
    channels : list of PeerChannel
        Samples not after `at`.
    ranks : Ranks
    at : int
        Nanoseconds since 1970 UTC; the last 3 minutes are compared.
    """
    limit = max(1, int(_MAX_DEVIATING_SHARE * len(ranks.table)))
    by_channel = [_deviations(channel, ranks, at) for channel in channels]
    deviations = [
        each
        for rank_deviations in by_channel
        if len(rank_deviations) <= limit
        for each in rank_deviations
    ]
    if not deviations:
        return None
    by_rank: dict[int, list[_Deviation]] = {}
    for deviation in deviations:
        by_rank.setdefault(deviation.rank, []).append(deviation)
    agreed = {
        rank
        for rank, rank_deviations in by_rank.items()
        if len({_channel_kind(each.channel) for each in rank_deviations}) >= _MIN_AGREEING_CHANNELS
    }
    candidates = sorted(
        (
            _candidate(rank, rank_deviations, rank in agreed)
            for rank, rank_deviations in by_rank.items()
        ),
        key=lambda candidate: -candidate.weight,
    )
    evidence = tuple(deviation.evidence() for deviation in deviations[:16])
    kind: Kind = "slow" if agreed else "none"
    cause = f"rank {candidates[0].rank} {candidates[0].why}" if agreed else ""
    return JobFinding(kind, cause, tuple(candidates), evidence=evidence)


def _channel_kind(channel: PeerChannel) -> str:
    """Return the kind of a channel; byte rates of all links are one kind, as they drop together."""
    return "traffic" if channel.name == "rate" else channel.name


def _candidate(rank: int, rank_deviations: list[_Deviation], is_agreed: bool) -> CulpritCandidate:
    what = " and ".join(deviation.channel.says for deviation in rank_deviations)
    why = f"deviates from its peers in {what}"
    return CulpritCandidate(rank, why, STRONG if is_agreed else WEAK)


def _deviations(channel: PeerChannel, ranks: Ranks, at: int) -> list[_Deviation]:
    samples = channel.samples
    now = samples.between(at - _RECENT_WINDOW + 1, at).medians(channel.name)
    before = samples.between(0, at - _RECENT_WINDOW)
    past = before.medians(channel.name)
    if not len(before.time) or before.time.max() - before.time.min() < _MIN_BASELINE:
        past = {}
    every = (_deviation(rank, channel, now, past, ranks) for rank in now if rank in ranks.table)
    return [deviation for deviation in every if deviation is not None]


def _deviation(
    rank: int,
    channel: PeerChannel,
    now: Mapping[int, float],
    past: Mapping[int, float],
    ranks: Ranks,
) -> _Deviation | None:
    others = np.array([now[peer] for peer in ranks.peers(rank) if peer in now])
    if len(others) < _MIN_PEERS:
        return None
    usual = float(np.median(others))
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(others - usual)))
    if abs(now[rank] - usual) < max(_MIN_MADS * spread, channel.least):
        return None
    own = past.get(rank)
    ratios = [_log_ratio(now[rank], usual)] + ([] if own is None else [_log_ratio(now[rank], own)])
    if min(abs(ratio) for ratio in ratios) < np.log(_MIN_RATIO) or np.ptp(np.sign(ratios)):
        return None
    return _Deviation(rank, channel, now[rank], usual, own, ratios[0])


def _log_ratio(value: float, other: float) -> float:
    """Return the logarithm of the ratio of two values, bounded if one of them is zero."""
    small = 1e-3 * max(abs(value), abs(other), 1e-12)
    return float(np.log(max(value, small) / max(other, small)))
