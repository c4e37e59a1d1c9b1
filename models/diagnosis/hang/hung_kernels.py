"""Kernels that hang on most ranks: the others have not come to the collective."""

from __future__ import annotations

from collections.abc import Collection

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.hang.lagging_ranks import Lag, lag_finding
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    Evidence,
    JobFinding,
)

__all__ = ["hung_kernel_finding"]

_MIN_HUNG_SHARE = 0.5  # of the job's ranks
_MAX_CLEAR_SHARE = 0.25  # of the ranks with metrics


def hung_kernel_finding(
    hung: Collection[int],
    clear: Collection[int],
    ranks: Ranks,
    *,
    is_alone: bool,
    is_new: bool = False,
) -> JobFinding | None:
    """Return the ranks in no kernel while most others are in one for minutes, or None.

    If all ranks are in one, the job hangs and no rank differs.

    Parameters
    ----------
    hung, clear : collections of int
        Ranks with and without a kernel that hangs, as seen at the same time.
    ranks : Ranks
    is_alone : bool
        No other part can tell whether the job moves.
    is_new : bool
        Ranks were found to hang at this moment, so that others may be found in the next one.
    """
    if len(hung) < max(2, _MIN_HUNG_SHARE * len(ranks.table)):
        return None
    where = f"{len(hung)} ranks are in a kernel for minutes"
    if not clear:
        is_whole = is_alone and len(hung) == len(ranks.table)
        evidence = (Evidence("xpu_timer", where),)
        return JobFinding("hang", "", evidence=evidence, needs_no_duration=is_whole)
    if len(clear) > max(1, _MAX_CLEAR_SHARE * (len(hung) + len(clear))):
        return None
    is_whole = ranks.table.keys() <= {*hung, *clear}  # else a rank without metrics may be the cause
    lag = Lag(where, tuple(sorted(clear)), frozenset(hung), "idle")
    return lag_finding(
        "xpu_timer",
        [lag],
        ranks,
        is_certain=not is_new,
        is_alone=is_alone,
        weight=STRONG if is_whole and not is_new else MODERATE,
    )
