"""Collective probe: whether an operation is unfinished for unusually long."""

from __future__ import annotations

from typing import Literal

import numpy as np

from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["collective_probe"]

_UNDATED = ", but dumps do not say when they were written: give the time with --at"
_MAX_OPERATION_AGE = 30 * SECOND  # Baidu 4.1


def collective_probe(
    operations: CollectiveOperations, at: int, *, is_at_least: bool = False
) -> Probe:
    """Return whether an operation has been unfinished for over 30 s.

    Parameters
    ----------
    operations : CollectiveOperations
        As of `at`.
    at : int
        Nanoseconds since 1970 UTC.
    is_at_least : bool
        The dumps were written at `at` or later, so that an operation may be older than it seems.
    """
    if not len(operations.entries):
        return Probe("collective", "blind", None, "no recorded operations")
    unfinished = operations.unfinished()
    if not len(unfinished):
        state: Literal["active", "blind"] = "blind" if is_at_least else "active"
        why = f"all operations have finished{_UNDATED * is_at_least}"
        return Probe("collective", state, None, why)
    row = unfinished[np.argmin(unfinished["created"])]
    since = int(row["created"])
    age = (at - since) / SECOND
    name, group = operations.names[row["name"]], operations.groups[row["group"]]
    what = f"{name} of rank {row['rank']} in group {group} has been unfinished for {age:.0f} s"
    if at - since < _MAX_OPERATION_AGE and is_at_least:
        return Probe(
            "collective", "blind", None, f"{name} of rank {row['rank']} is unfinished{_UNDATED}"
        )
    if at - since < _MAX_OPERATION_AGE:
        return Probe(
            "collective", "active", None, f"{what}, less than {_MAX_OPERATION_AGE // SECOND} s"
        )
    return Probe("collective", "idle", since, what, confirmed_at=since + _MAX_OPERATION_AGE)
