"""Evidence of a stalled operation: which ranks wait for which."""

from __future__ import annotations

from forewarn.features.diagnosis.ranks import format_ranks
from forewarn.models.diagnosis.hang.stalled_operations import Stall
from forewarn.models.diagnosis.verdict.job_verdict import Evidence

__all__ = ["stall_evidence"]


def stall_evidence(stall: Stall) -> Evidence:
    """Describe which ranks wait for which in one operation."""
    details = {
        "group": stall.group,
        "seq": stall.seq,
        "operation": stall.operation,
        "waiting": list(stall.waiting),
        "absent": list(stall.absent or stall.behind),
        "silent": list(stall.silent),
        "variants": {text: list(ranks) for text, ranks in stall.variants.items()},
    }
    return Evidence("flight", _sentence(stall), time=stall.since, details=details)


def _sentence(stall: Stall) -> str:
    where = f"operation {stall.seq} of group {stall.group}"
    if stall.is_mismatch:
        parts = (f"{format_ranks(ranks)}: {text}" for text, ranks in stall.variants.items())
        return f"{where} differs: {'; '.join(parts)}"
    if stall.left_behind is not None:
        left = "which all other members have left"
        return f"rank {stall.left_behind} is still in {stall.operation}, {where}, {left}"
    waiters = format_ranks(stall.waiting) if stall.waiting else "no rank"
    verb = "waits" if len(stall.waiting) < 2 else "wait"
    return f"{waiters} {verb} for {_blockers(stall)} in {stall.operation}, {where}"


def _blockers(stall: Stall) -> str:
    if not stall.blockers:
        return "no rank (all have entered)"
    note = ""
    if not stall.absent:
        note = " (not there yet)" if stall.behind else " (no dump)"
    return f"{format_ranks(stall.blockers)}{note}"
