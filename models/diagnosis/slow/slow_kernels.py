"""A GPU that computes matrix products far slower than those of its peers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["slow_kernel_finding"]

_MAX_RATIO = 0.7  # of the peers; healthy GPUs differ by a few per cent
_MIN_PEERS = 3
_MAX_PEER_SPREAD = 0.1  # largest distance of any peer from their median
_MAX_SLOW_SHARE = 0.125


def slow_kernel_finding(flops: Mapping[int, float], ranks: Ranks) -> JobFinding | None:
    """Return the ranks whose fastest matrix products are slower than 70 % of their peers'.

    Ranks are compared only if their coordinates are known: those of other stages or roles may have
    other shapes.

    Parameters
    ----------
    flops : mapping of int to float
        Tflop/s by rank.
    ranks : Ranks
    """
    rows = ranks.table.values()
    if not any(n is not None for row in rows for n in (row.tp, row.pp, row.dp)):
        return None
    usual = {rank: _peer_median(rank, flops, ranks) for rank in flops if rank in ranks.table}
    slow = {
        rank: median
        for rank, median in usual.items()
        if median is not None and flops[rank] <= _MAX_RATIO * median
    }
    if not slow or len(slow) > max(1, _MAX_SLOW_SHARE * len(flops)):
        return None
    says = {
        rank: f"its matrix products reach {flops[rank]:.0f} Tflop/s, its peers' {median:.0f}"
        for rank, median in slow.items()
    }
    order = sorted(slow, key=lambda rank: flops[rank] / slow[rank])
    return JobFinding(
        "slow",
        f"rank {order[0]}: {says[order[0]]}",
        tuple(CulpritCandidate(rank, says[rank], STRONG / len(slow)) for rank in order),
        evidence=tuple(Evidence("xpu_timer", f"rank {r}: {says[r]}", r) for r in order),
    )


def _peer_median(rank: int, flops: Mapping[int, float], ranks: Ranks) -> float | None:
    """Return the median of the peers; None if they are few, or differ among themselves."""
    peers = np.array([flops[peer] for peer in ranks.peers(rank) if peer in flops])
    if len(peers) < _MIN_PEERS:
        return None
    median = float(np.median(peers))
    is_alike = np.quantile(np.abs(peers - median), 1 - _MAX_SLOW_SHARE) <= _MAX_PEER_SPREAD * median
    return median if is_alike else None
