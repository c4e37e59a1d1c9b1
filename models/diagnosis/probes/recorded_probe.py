"""Collective probe from records of finished collectives, which are written while the job runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forewarn.features.diagnosis.communicators.inspector_records import RankCollectives
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["recorded_probe"]

_MAX_AGE = 30 * SECOND  # of the last collective, in addition to the time between two dumps
_MIN_DUMPS = 3


def recorded_probe(records: Sequence[RankCollectives], at: int) -> Probe | None:
    """Return whether collectives still end; None if records do not show when they do.

    Parameters
    ----------
    records : sequence of RankCollectives
    at : int
        Nanoseconds since 1970 UTC.
    """
    times = np.unique(np.concatenate([r.rows[:, 2] for r in records])) if records else np.zeros(0)
    times = times[times * 1000 <= at]
    if len(times) < _MIN_DUMPS:
        return None
    last, pause = int(times[-1]) * 1000, int(np.diff(times).max()) * 1000
    latest = max(records, key=lambda record: int(record.rows[-1, 2]))
    what = f"{latest.operation} {latest.rows[-1, 0]} of communicator {latest.communicator}"
    age = (at - last) / SECOND
    if at - last <= _MAX_AGE + pause:
        return Probe("collective", "active", None, f"{what} was recorded {age:.0f} s ago")
    why = f"no collective has been recorded for {age:.0f} s, the last one was {what}"
    return Probe("collective", "idle", last, why, confirmed_at=last + _MAX_AGE + pause)
