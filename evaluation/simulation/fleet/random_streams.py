"""Random streams of the simulated fleet: one for each purpose and day.

Each day is independent of the number of days that follow, and each part of the fleet is
independent of the number of random numbers that other parts draw.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from forewarn.features.array_types import Float32Array

__all__ = [
    "RECORDS_PER_DAY",
    "Purpose",
    "ar1_step",
    "draw_lognormal",
    "random_stream",
]

RECORDS_PER_DAY = 144
"""Records per GPU and day: one every ten minutes (arXiv 2201.11853, data)."""

_FIRST_DAY = 1_000
"""Offset of day zero in the seed sequence, which accepts no negative numbers."""


class Purpose(IntEnum):
    """The purposes of random streams."""

    LAYOUT = 0
    DEVICES = 1
    FRAILTY = 2
    MIX = 3
    FAULTS = 4
    SITE = 5
    DRIVERS = 6
    DRIVER_TRAITS = 7
    JOBS = 8
    TELEMETRY = 9
    COUNTERS = 10
    XIDS = 11
    COLLECTION = 12
    WALKS = 13


def random_stream(seed: int, purpose: Purpose, day: int = -_FIRST_DAY) -> np.random.Generator:
    """Return the random generator of one purpose and day.

    Parameters
    ----------
    seed : int
        Seed of the fleet, not negative.
    purpose : Purpose
    day : int
        Days since the first simulated one; negative before it. Without it: not tied to a day.

    Examples
    --------
    >>> job, same, site = (
    ...     random_stream(1, purpose, 3).random()
    ...     for purpose in (Purpose.JOBS, Purpose.JOBS, Purpose.SITE)
    ... )
    >>> bool(job == same), bool(job == site)
    (True, False)
    """
    return np.random.default_rng((seed, int(purpose), day + _FIRST_DAY))


def draw_lognormal(rng: np.random.Generator, median: float, spread: float) -> float:
    """Draw a log-normal number; `spread` is the standard deviation of the natural logarithm."""
    return median * float(np.exp(spread * rng.standard_normal()))


def ar1_step(
    rng: np.random.Generator, before: Float32Array, *, spread: float, memory_days: float
) -> Float32Array:
    """Advance first-order autoregressive series around zero by one day.

    Parameters
    ----------
    rng : numpy.random.Generator
    before : ndarray of shape (n,)
        Yesterday's values.
    spread : float
        Standard deviation of the stationary distribution.
    memory_days : float
        Days after which the autocorrelation has fallen to 1/e.
    """
    keep = np.exp(-1.0 / memory_days)
    step = rng.standard_normal(len(before)) * spread * np.sqrt(1.0 - keep * keep)
    return np.asarray(keep * before + step, np.float32)
