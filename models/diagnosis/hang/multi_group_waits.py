"""Ranks with unfinished operations in several groups: Baidu's first indicator (4.2.2 a)."""

from __future__ import annotations

import numpy as np

from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.models.diagnosis.verdict.job_verdict import (
    WEAK,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["multi_group_finding"]

_MAX_RANK_SHARE = 0.125  # at least one rank


def multi_group_finding(operations: CollectiveOperations) -> JobFinding | None:
    """Return the few ranks with unfinished operations in two or more groups, as weak evidence.

    Ranks that wait for others are excluded by other findings. This finding therefore decides only
    between the ranks of an operation that all have entered and none has left.

    Parameters
    ----------
    operations : CollectiveOperations
        As of the verdict.

    Returns
    -------
    JobFinding or None
        None if there is no such rank, or more than an eighth of the ranks are: a symptom of many
        ranks does not single one out.
    """
    unfinished = operations.unfinished()
    unfinished = unfinished[~unfinished["is_p2p"]]
    pairs = np.unique(unfinished["rank"].astype(np.int64) << 32 | unfinished["group"])
    ranks, counts = np.unique(pairs >> 32, return_counts=True)
    n_groups = {int(r): int(n) for r, n in zip(ranks, counts, strict=True) if n > 1}
    if not n_groups or len(n_groups) > max(1, int(_MAX_RANK_SHARE * len(operations.ranks))):
        return None
    why = {rank: f"has unfinished operations in {count} groups" for rank, count in n_groups.items()}
    return JobFinding(
        "hang",
        "",
        tuple(CulpritCandidate(rank, text, WEAK / len(n_groups)) for rank, text in why.items()),
        evidence=tuple(Evidence("flight", f"rank {r} {text}", r) for r, text in why.items()),
    )
