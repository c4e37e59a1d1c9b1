"""Point-in-time view of the fleet: what a training at a moment may use."""

from __future__ import annotations

from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import Records
from forewarn.features.time_units import Nanoseconds

__all__ = ["as_of"]


def as_of(records: Records, failures: Failures, moment: int, reach: Nanoseconds) -> Timeline:
    """Return the timeline as of `moment`, without later records and later knowledge.

    Parameters
    ----------
    records : Records
    failures : Failures
    moment : int
        Nanoseconds since 1970 UTC.
    reach : Nanoseconds
        Length of the records before `moment`.
    """
    recent = records.between(moment - reach, moment)
    return build_timeline(recent, failures.known_before(moment))
