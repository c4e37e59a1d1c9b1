"""The fleet's protocol: one list a day at true prevalence, alerts, failures caught."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Alerts", "DayRows", "raise_alerts"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DayRows:
    """Who could be on the lists: one row per GPU and day, by day and serial.

    Attributes
    ----------
    row : ndarray of shape (n,)
        Row in the table of scores.
    day : ndarray of shape (n,)
        When the list is made, nanoseconds since 1970 UTC.
    """

    row: Ints
    day: Ints

    @classmethod
    def of(
        cls, gpu: Ints, window_end: Ints, fails_at: npt.NDArray[np.float64], *, step: int, day: int
    ) -> DayRows:
        """Take the newest instance of each GPU that ends within one step before midnight.

        Parameters
        ----------
        gpu, window_end : ndarray of shape (m,)
        fails_at : ndarray of shape (m,)
            When the GPU fails next; inf if not within the horizon. Who has failed by the time
            of the list is not on it.
        step : int
            Nanoseconds between two instances of a GPU.
        day : int
            Nanoseconds of a day.
        """
        midnight = (window_end // day + 1) * day
        rows = np.flatnonzero((window_end >= midnight - step) & (fails_at > midnight))
        rows = rows[np.lexsort((window_end[rows], gpu[rows], midnight[rows]))]
        same = (np.diff(gpu[rows]) == 0) & (np.diff(midnight[rows]) == 0)
        rows = rows[np.append(~same, True)[: len(rows)]]
        return cls(rows, midnight[rows])


@dataclass(frozen=True, slots=True)
class Alerts:
    """First appearances on a list; a GPU that stays on it raises none until the alert expires.

    Attributes
    ----------
    gpu, raised_at : ndarray of shape (n,)
    fails_at : ndarray of shape (n,)
        When the GPU fails; inf if not within the horizon of the alert.
    """

    gpu: Ints
    raised_at: Ints
    fails_at: npt.NDArray[np.float64]

    def caught(self) -> dict[tuple[int, float], float]:
        """Return each failure (gpu, time) with an alert before it, and its longest warning."""
        warned: dict[tuple[int, float], float] = {}
        for gpu, raised, fails in zip(
            self.gpu.tolist(), self.raised_at.tolist(), self.fails_at.tolist(), strict=True
        ):
            if np.isfinite(fails):
                lead = fails - raised
                warned[gpu, fails] = max(lead, warned.get((gpu, fails), lead))
        return warned


def raise_alerts(
    gpu: Ints, day: Ints, fails_at: npt.NDArray[np.float64], *, horizon: int
) -> Alerts:
    """Return the alerts of listed GPUs, given by day.

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
