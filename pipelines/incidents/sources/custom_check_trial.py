"""Trial of custom checks: a new definition only observes, so that a wrong one drains no fleet.

A definition acts from a day after its first result, once 90 % of the machines that ran it have
answered 0. Only results of the last two days count, those known at the time of the finding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from forewarn.features.telemetry.checks.custom_check import CustomCheck, parse_custom_check
from forewarn.features.time_units import DAY

__all__ = ["TRIAL_SPAN", "CustomCheckTrial"]

TRIAL_SPAN: Final = 2 * DAY
"""Nanoseconds before a finding in which results count."""
_FIRST_SPAN: Final = DAY
_MIN_OK_SHARE: Final = 0.9
_OK: Final = "ok"


class CustomCheckTrial:
    """The results of all custom checks, by definition.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of EVENTS with `check`, `severity`, `machine_id` and `known` (nanoseconds since 1970).
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        results: dict[CustomCheck, list[tuple[int, str, bool]]] = defaultdict(list)
        for row in rows:
            check = parse_custom_check(row["check"])
            if check is not None:
                passed = row["severity"] == _OK
                results[check].append((int(row["known"]), row["machine_id"], passed))
        self._results = {check: sorted(known) for check, known in results.items()}

    def reason(self, check: CustomCheck, at: int) -> str:
        """Return why a check only observes at a time; empty if it acts."""
        results = self._results.get(check, [])
        before = bisect_right(results, at - TRIAL_SPAN, key=lambda result: result[0])
        known = results[before : bisect_right(results, at, key=lambda result: result[0])]
        if not known or known[0][0] > at - _FIRST_SPAN:
            return "observes only: the first day of this definition"
        machines = {machine for _, machine, _ in known}
        passed = {machine for _, machine, ok in known if ok}
        if len(passed) < _MIN_OK_SHARE * len(machines):
            share = f"{len(passed)} of {len(machines)} machines have answered 0"
            return f"observes only: {share}, 90 % are needed"
        return ""
