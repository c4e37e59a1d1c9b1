"""External drains and reported problems, and whether a drain's reason states a failure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.machine import Machine, ServiceState

__all__ = [
    "MAX_PATTERN_LENGTH",
    "SCHEDULER_SOURCE",
    "find_external_drains",
    "find_reported_problems",
    "match_failure_pattern",
]

SCHEDULER_SOURCE: Final = "scheduler"
"""Source of findings that the loop derives from the state of the scheduler."""

MAX_PATTERN_LENGTH = 200
_MAX_REASON_LENGTH = 1000


def match_failure_pattern(reason: str, patterns: Sequence[str]) -> str | None:
    """Return the first pattern that classifies a drain reason as a failure; None if none matches.

    Patterns are case-insensitive file name patterns (`*`, `?`, `[abc]`); a site's regular
    expressions are never executed. They must match all of the reason's first 1,000 characters.

    Raises
    ------
    ValueError
        If a pattern is longer than 200 characters.

    Examples
    --------
    >>> match_failure_pattern("GPU 3 fell off the bus", ["*nvlink*", "*gpu*"])
    '*gpu*'
    """
    text = reason[:_MAX_REASON_LENGTH].casefold()
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise ValueError(
                f"a pattern of a drain reason has {len(pattern)} characters, "
                f"expected at most {MAX_PATTERN_LENGTH}"
            )
        if fnmatchcase(text, pattern.casefold()):
            return pattern
    return None


def find_external_drains(machines: Iterable[Machine], *, now: Nanoseconds) -> list[Finding]:
    """Return a finding for each GPU machine that was drained externally.

    A drain that lasts is one finding a day.
    """
    return [
        _finding(machine, now)
        for machine in machines
        if machine.out
        and machine.gpus
        and machine.action is None
        and machine.state is not ServiceState.UNKNOWN
    ]


def find_reported_problems(machines: Iterable[Machine], *, now: Nanoseconds) -> list[Finding]:
    """Return a finding for each problem that others report about a GPU machine.

    A problem that lasts is one finding a day. How it was recognized is unknown, so it confirms
    nothing.
    """
    return [
        Finding(
            source=SCHEDULER_SOURCE,
            id=f"{machine.name} {now // DAY} {name}",
            kind=FindingKind.REPORT,
            cause=f"condition {name}",
            machine=machine.name,
            at=now,
            valid_until=Nanoseconds((now // DAY + 1) * DAY),
            severity=Severity.WARNING,
            evidence={"message": text[:_MAX_REASON_LENGTH]},
        )
        for machine in machines
        if machine.gpus
        for name, text in sorted(machine.problems.items())
    ]


def _finding(machine: Machine, now: Nanoseconds) -> Finding:
    since = now if machine.reason_at is None else machine.reason_at
    mark = machine.reason[:100] if machine.reason_at is None else str(machine.reason_at)
    return Finding(
        source=SCHEDULER_SOURCE,
        id=f"{machine.name} {now // DAY} {mark}",
        kind=FindingKind.EXTERNAL_DRAIN,
        cause="foreign drain",
        machine=machine.name,
        at=since,
        valid_until=Nanoseconds((now // DAY + 1) * DAY),
        evidence={
            "reason": machine.reason[:_MAX_REASON_LENGTH],
            "by": machine.reason_by,
            "state": machine.state.value,
        },
    )
