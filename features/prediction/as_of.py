"""The fleet as it stood at a moment: what a training at that moment may know."""

from __future__ import annotations

from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import Records
from forewarn.features.time_units import Nanoseconds

__all__ = ["as_of"]


def as_of(records: Records, failures: Failures, moment: int, reach: Nanoseconds) -> Timeline:
    """Return the timeline as it stood at `moment`: no record and no knowledge from then on.

    Parameters
    ----------
    records : Records
    failures : Failures
    moment : int
        Nanoseconds since 1970 UTC.
    reach : Nanoseconds
        How far the records go back before `moment`.
    """
    recent = records.between(moment - reach, moment)
    return build_timeline(recent, failures.known_before(moment))
