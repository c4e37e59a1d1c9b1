"""Hidden defects of the simulated GPUs: when each begins, how severe it gets, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY, draw_lognormal
from forewarn.features.array_types import BoolArray, Float32Array, Int64Array

__all__ = ["MECHANISMS", "SUDDEN", "VISIBLE", "Defects", "Symptoms"]

VISIBLE = ("memory", "thermal", "power", "link")
"""Mechanisms with precursors."""
MECHANISMS = (*VISIBLE, "sudden")
SUDDEN = len(VISIBLE)
"""Number of the mechanism without precursors."""

# Days from the first precursor to the end. Guesses: no public figure was found. Memory wears over
# days, fans and thermal paste over a week, power stages and links within a day or two. The spread
# runs from hours to a month, so that a window of three hours misses part of it.
_MEDIAN_DAYS = (4.0, 6.0, 1.5, 2.0)
_LENGTH_SPREAD = 1.1
_MIN_RECORDS, _MAX_RECORDS = 12, 30 * RECORDS_PER_DAY

# How precursors grow and how strong they are. Guesses, wide on purpose: some boards fail before
# much is visible, and a defect that heals can look worse than a fatal one.
_FATAL_REACH = (0.35, 1.0)  # severity at the end of a fatal one, uniform
_BENIGN_REACH = (0.15, 0.9)  # highest severity of one that heals
_CURVE_SPREAD = 0.6  # of the exponent of time, natural logarithm
_STRENGTH_SPREAD = 0.5  # of the factor on all symptoms, natural logarithm
_LEAN_CONCENTRATION = 2.0  # of the beta distribution of the lean


@dataclass(frozen=True, slots=True)
class Symptoms:
    """The defects of one mechanism on one day.

    Attributes
    ----------
    positions : ndarray of shape (n,), int64
    level : ndarray of shape (n, RECORDS_PER_DAY)
        Severity times strength, 0 before the onset and after the end; about 0 to 2.
    lean : ndarray of shape (n,)
        From 0 to 1: which of the mechanism's two symptoms the defect shows.
    """

    positions: Int64Array
    level: Float32Array
    lean: Float32Array

    @property
    def first(self) -> Float32Array:
        """Level of the first symptom, of shape (n_positions, RECORDS_PER_DAY)."""
        return self.level * self.lean[:, None]

    @property
    def second(self) -> Float32Array:
        """Level of the second symptom, of shape (n_positions, RECORDS_PER_DAY)."""
        return self.level * (1 - self.lean[:, None])


class Defects:
    """At most one defect of each mechanism at each position.

    Times are record numbers since the first simulated record. A position has a defect from `onset`
    up to, and not including, `end`.

    Parameters
    ----------
    n_positions : int

    Attributes
    ----------
    onset, end : ndarray of shape (n_mechanisms, n_positions), int64
    fatal : ndarray of shape (n_mechanisms, n_positions), bool
        Whether the GPU fails at `end`.
    """

    def __init__(self, n_positions: int) -> None:
        shape = (len(MECHANISMS), n_positions)
        never = np.iinfo(np.int64).min // 2
        self.onset: Int64Array = np.full(shape, never)
        self.end: Int64Array = np.full(shape, never)
        self.fatal: BoolArray = np.zeros(shape, bool)
        self._reach: Float32Array = np.zeros(shape, np.float32)
        self._curve: Float32Array = np.ones(shape, np.float32)
        self._strength: Float32Array = np.ones(shape, np.float32)
        self._lean: Float32Array = np.zeros(shape, np.float32)

    def free(self, mechanism: int, at: int) -> BoolArray:
        """Return which positions have no defect of a mechanism at or after a time."""
        return np.asarray(self.end[mechanism] <= at)

    def begin(
        self,
        rng: np.random.Generator,
        mechanism: int,
        position: int,
        onset: int,
        *,
        fatal: bool,
        lean: float,
        length: int | None = None,
    ) -> None:
        """Start a defect.

        Parameters
        ----------
        rng : numpy.random.Generator
        mechanism, position, onset : int
        fatal : bool
        lean : float
            Mean of the leans in these weeks, between 0 and 1.
        length : int, optional
            Records until it ends; drawn by mechanism if left out.
        """
        where = mechanism, position
        self.onset[where] = onset
        self.end[where] = onset + (_draw_length(rng, mechanism) if length is None else length)
        self.fatal[where] = fatal
        self._reach[where] = rng.uniform(*(_FATAL_REACH if fatal else _BENIGN_REACH))
        self._curve[where] = draw_lognormal(rng, 1.0, _CURVE_SPREAD)
        self._strength[where] = draw_lognormal(rng, 1.0, _STRENGTH_SPREAD)
        spread = _LEAN_CONCENTRATION
        self._lean[where] = rng.beta(spread * lean, spread * (1 - lean))

    def clear(self, position: int, at: int) -> None:
        """End all defects of a position without a failure."""
        self.fatal[:, position] = False
        self.end[:, position] = np.minimum(self.end[:, position], at)

    def symptoms(self, mechanism: int, day: int) -> Symptoms:
        """Return what the defects of a mechanism show on a day."""
        begin = day * RECORDS_PER_DAY
        active = (self.end[mechanism] > begin) & (self.onset[mechanism] < begin + RECORDS_PER_DAY)
        positions = np.flatnonzero(active)
        where = mechanism, positions
        times = begin + np.arange(RECORDS_PER_DAY)[None, :]
        onset, end = self.onset[where][:, None], self.end[where][:, None]
        progress = ((times - onset) / (end - onset)).clip(0, 1).astype(np.float32)
        rise = progress ** self._curve[where][:, None]
        hump = np.sin(np.pi * progress).clip(0) ** self._curve[where][:, None]
        severity = np.where(self.fatal[where][:, None], rise, hump) * self._reach[where][:, None]
        severity[(times < onset) | (times >= end)] = 0
        level = severity * self._strength[where][:, None]
        return Symptoms(positions, level.astype(np.float32), self._lean[where])


def _draw_length(rng: np.random.Generator, mechanism: int) -> int:
    if mechanism == SUDDEN:
        return 1
    days = draw_lognormal(rng, _MEDIAN_DAYS[mechanism], _LENGTH_SPREAD)
    return int(np.clip(days * RECORDS_PER_DAY, _MIN_RECORDS, _MAX_RECORDS))
