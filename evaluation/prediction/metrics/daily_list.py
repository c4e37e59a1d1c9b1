"""Daily lists at true prevalence: candidates, alerts and caught failures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array

__all__ = ["Alerts", "DayRows", "assign_to_lists", "raise_alerts"]


@dataclass(frozen=True, slots=True)
class DayRows:
    """The GPUs that can be on each daily list: one row per GPU and day, by day and serial.

    Attributes
    ----------
    row : ndarray of shape (n,)
        Row in the table of scores.
    day : ndarray of shape (n,)
        Time of the list, nanoseconds since 1970 UTC.
    """

    row: Int64Array
    day: Int64Array

    @classmethod
    def from_instances(
        cls,
        gpu: Int64Array,
        window_end: Int64Array,
        fails_at: Float64Array,
        *,
        step: int,
        day: int,
        unseen_from: int | None = None,
    ) -> DayRows:
        """Select, for each midnight, the newest instance of each GPU within the step before it.

        If a step is longer than a day, an instance is on several lists, until the next one ends.

        Parameters
        ----------
        gpu, window_end : ndarray of shape (m,)
        fails_at : ndarray of shape (m,)
            Time of the GPU's next failure; inf if not within the horizon. A GPU that has failed by
            the time of the list is left out.
        step : int
            Nanoseconds between two instances of a GPU.
        day : int
            Nanoseconds of a day.
        unseen_from : int, optional
            First end of an instance whose horizon exceeds the records. Later lists are left out:
            they would lack some GPUs, or hold only failed ones.
        """
        rows, midnight = assign_to_lists(window_end, step=step, day=day)
        listed = fails_at[rows] > midnight
        if unseen_from is not None:
            listed &= midnight <= unseen_from
        rows, midnight = rows[listed], midnight[listed]
        order = np.lexsort((window_end[rows], gpu[rows], midnight))
        rows, midnight = rows[order], midnight[order]
        same = (np.diff(gpu[rows]) == 0) & (np.diff(midnight) == 0)
        newest = np.append(~same, True)[: len(rows)]
        return cls(rows[newest], midnight[newest])


def assign_to_lists(
    window_end: Int64Array, *, step: int, day: int
) -> tuple[Int64Array, Int64Array]:
    """Return instance number and midnight of each list that an instance is recent enough for.

    Examples
    --------
    >>> [part.tolist() for part in assign_to_lists(np.array([5, 23, 30]), step=30, day=24)]
    [[0, 1, 2, 1], [24, 24, 48, 48]]
    """
    first = (window_end // day + 1) * day
    later = [first + i * day for i in range(-(-step // day))]
    parts = [np.flatnonzero(window_end >= midnight - step) for midnight in later]
    rows = np.concatenate(parts)
    return rows, np.concatenate([m[r] for m, r in zip(later, parts, strict=True)])


@dataclass(frozen=True, slots=True)
class Alerts:
    """First appearances on a list. A listed GPU raises no further alert until the alert expires.

    Attributes
    ----------
    gpu, raised_at : ndarray of shape (n,)
    fails_at : ndarray of shape (n,)
        Time of the failure; inf if not within the horizon of the alert.
    """

    gpu: Int64Array
    raised_at: Int64Array
    fails_at: Float64Array

    def caught(self) -> dict[tuple[int, float], float]:
        """Return the longest lead time of each failure (gpu, time) with an alert before it."""
        warned: dict[tuple[int, float], float] = {}
        for gpu, raised, fails in zip(
            self.gpu.tolist(), self.raised_at.tolist(), self.fails_at.tolist(), strict=True
        ):
            if np.isfinite(fails):
                lead = fails - raised
                warned[gpu, fails] = max(lead, warned.get((gpu, fails), lead))
        return warned


def raise_alerts(
    gpu: Int64Array, day: Int64Array, fails_at: Float64Array, *, horizon: int
) -> Alerts:
    """Return the alerts of listed GPUs, ordered by day.

    Parameters
    ----------
    gpu, day : ndarray of shape (n,)
        The listed GPUs, in order of time.
    fails_at : ndarray of shape (n,)
    horizon : int
        Nanoseconds after which an alert expires.
    """
    until: dict[int, int] = {}
    raised = []
    for i, (number, moment) in enumerate(zip(gpu.tolist(), day.tolist(), strict=True)):
        if moment >= until.get(number, moment):
            until[number] = moment + horizon
            raised.append(i)
    rows = np.array(raised, dtype=np.int64)
    return Alerts(gpu[rows], day[rows], fails_at[rows])
