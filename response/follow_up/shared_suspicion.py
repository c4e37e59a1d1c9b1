"""Machines that jobs of different owners suspected: a person should inspect them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.job_block import BlockState, JobBlock
from forewarn.response.state.step import Step

__all__ = ["INSPECT_CAUSE", "suspected_by_several"]

INSPECT_CAUSE: Final = "inspect"
_WITHIN: Final = 14 * DAY
_LEAST_OWNERS: Final = 2
_ASKED_BY: Final = ("forewarn", "recovery")  # blocks by a person have other reasons


def suspected_by_several(blocks: Iterable[JobBlock], *, now: Nanoseconds) -> list[Finding]:
    """Return a finding for each machine that jobs of two owners suspected within 14 days.

    It has to be blocked more often than any other machine by the same owners: an application that
    blocks one machine after the other accuses none of them. A person is told, nothing else.

    Parameters
    ----------
    blocks : iterable of JobBlock
        All, in their newest state.
    now : int
        Nanoseconds since 1970 UTC.
    """
    recent = [
        block
        for block in blocks
        if block.owner in _ASKED_BY
        and block.job_owner
        and block.state is not BlockState.REFUSED
        and now - _WITHIN < block.at <= now
    ]
    return [
        _finding(machine, [block for block in recent if block.machine == machine])
        for machine in sorted({block.machine for block in recent})
        if _stands_out(machine, recent)
    ]


def _stands_out(machine: str, blocks: list[JobBlock]) -> bool:
    owners = {block.job_owner for block in blocks if block.machine == machine}
    jobs = {(block.job, block.machine) for block in blocks if block.job_owner in owners}
    counts = Counter(name for _, name in jobs)
    own = counts.pop(machine)
    return len(owners) >= _LEAST_OWNERS and own > max(counts.values(), default=0)


def _finding(machine: str, blocks: list[JobBlock]) -> Finding:
    first, last = (pick(blocks, key=lambda block: block.at) for pick in (min, max))
    return Finding(
        *("blocks", f"{machine}/{first.id}", FindingKind.REPORT, INSPECT_CAUSE, machine),
        at=last.at,
        valid_until=Nanoseconds(last.at + _WITHIN),
        severity=Severity.WARNING,
        evidence={
            "at_most": Step.TELL.value,
            "jobs": sorted({block.job for block in blocks}),
            "owners": sorted({block.job_owner for block in blocks}),
        },
    )
