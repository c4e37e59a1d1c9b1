"""Error counters and link widths of the simulated GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.fleet.defects import Symptoms
from forewarn.evaluation.simulation.fleet.fleet_hardware import Traits
from forewarn.evaluation.simulation.fleet.random_streams import (
    RECORDS_PER_DAY,
    Purpose,
    draw_lognormal,
    random_stream,
)
from forewarn.features.array_types import BoolArray, Float32Array, Int64Array

__all__ = ["COUNTERS", "CounterDay", "Counters"]

COUNTERS = ("ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays")
_NON_VOLATILE = "rows_remapped"
"""Row remaps are stored on the board (NVIDIA, GPU memory error management); others are volatile."""

# Guesses for healthy boards, per day. A V100 retires pages instead of remapping rows; the fleet's
# agents count both the same way.
_UNCORRECTED, _REMAPS = 2e-4, 2e-3
_IDLE_SHARE = 0.2  # share of the errors that does not depend on traffic
_BURSTINESS = 0.35  # shape of the gamma noise on rates: errors cluster

# Guesses for defects: log10 of the errors a day at level 0, and the increase per level. A memory
# defect shows as corrected errors or as row remaps, a link defect as replays or as a narrow link.
_ECC_LOG, _REPLAY_LOG = (0.0, 2.8), (0.5, 2.6)
_REMAPS_AT_1, _UNCORRECTED_AT_1 = 3.0, 0.6
_NARROW_LEVEL, _NARROW_LEAN = 0.4, 0.5

# Guesses for bursts without meaning: per day and GPU, hours, log10 of the errors a day.
_BURSTS_PER_DAY, _BURST_HOURS, _BURST_SPREAD, _BURST_LOG = 0.004, 4.0, 1.0, (1.0, 3.5)
# Some slots are always narrow, and some links train badly at a reboot and stay so until the next.
_ALWAYS_NARROW, _NARROW_AFTER_REBOOT = 0.004, 0.003
_FULL_WIDTH = 16


@dataclass(frozen=True, slots=True)
class CounterDay:
    """Counters of one day, each of shape (n_positions, RECORDS_PER_DAY).

    Attributes
    ----------
    totals, increases : dict of str to ndarray, int64
        By name of the counter.
    link_width : ndarray, int64
        Lanes.
    """

    totals: dict[str, Int64Array]
    increases: dict[str, Int64Array]
    link_width: Int64Array


@dataclass(frozen=True, slots=True)
class _Burst:
    counter: str
    position: int
    start: int
    end: int
    per_day: float


class Counters:
    """Counts errors. A reboot resets the volatile counters, a repair resets all of them.

    Parameters
    ----------
    traits : Traits
        Of the boards at the start, which already have counts.
    seed : int
    """

    def __init__(self, traits: Traits, seed: int) -> None:
        self._seed = seed
        rng = random_stream(seed, Purpose.COUNTERS)
        n = len(traits.frailty)
        days = rng.uniform(0, 60, n)
        rates = {
            "ecc_corrected": traits.ecc_per_day,
            "ecc_uncorrected": np.full(n, _UNCORRECTED),
            "rows_remapped": np.full(n, 5 * _REMAPS),  # over the years, not since the last reboot
            "pcie_replays": traits.replays_per_day,
        }
        self._totals = {name: rng.poisson(rates[name] * days) for name in COUNTERS}
        self._bursts: list[_Burst] = []
        self._always_narrow = rng.random(n) < _ALWAYS_NARROW
        self._badly_trained = np.zeros(n, bool)

    def advance(
        self,
        day: int,
        traits: Traits,
        symptoms: dict[str, Symptoms],
        traffic: Float32Array,
        *,
        counting: BoolArray,
        reboots: BoolArray,
        repairs: BoolArray,
        ecc_factor: Float32Array,
        replay_factor: Float32Array,
    ) -> CounterDay:
        """Count through one day; days have to come in order, from 0 on.

        Parameters
        ----------
        day : int
        traits : Traits
        symptoms : dict of str to Symptoms
            Of "memory" and "link" defects.
        traffic : ndarray of shape (n_positions, RECORDS_PER_DAY)
            Memory use, from 0 to about 1.
        counting, reboots, repairs : ndarray of shape (n_positions, RECORDS_PER_DAY), bool
            Where the GPU works, has just rebooted, has just been repaired.
        ecc_factor, replay_factor : ndarray of shape (n_positions, RECORDS_PER_DAY)
            How often the driver version reports such errors.
        """
        rng = random_stream(self._seed, Purpose.COUNTERS, day)
        memory, link = symptoms["memory"], symptoms["link"]
        rates = {
            "ecc_corrected": _rates(traits.ecc_per_day, memory, _ECC_LOG),
            "ecc_uncorrected": np.full(counting.shape, _UNCORRECTED, np.float32),
            "rows_remapped": np.full(counting.shape, _REMAPS, np.float32),
            "pcie_replays": _rates(traits.replays_per_day, link, _REPLAY_LOG),
        }
        rates["ecc_uncorrected"][memory.positions] += _UNCORRECTED_AT_1 * memory.level**2
        rates["rows_remapped"][memory.positions] += _REMAPS_AT_1 * memory.second
        self._add_bursts(rng, day, rates)
        rates["ecc_corrected"] *= ecc_factor
        rates["pcie_replays"] *= replay_factor
        use = (_IDLE_SHARE + 2 * traffic) * counting
        increases = {name: _count(rng, rates[name] * use) for name in COUNTERS}
        resets = {
            name: repairs if name == _NON_VOLATILE else repairs | reboots for name in COUNTERS
        }
        totals = {
            name: _accumulate(self._totals[name], increases[name], resets[name])
            for name in COUNTERS
        }
        self._totals = {name: totals[name][:, -1].copy() for name in COUNTERS}
        return CounterDay(totals, increases, self._widths(rng, link, reboots | repairs))

    def _add_bursts(
        self, rng: np.random.Generator, day: int, rates: dict[str, Float32Array]
    ) -> None:
        begin = day * RECORDS_PER_DAY
        n = len(rates["ecc_corrected"])
        for _ in range(rng.poisson(_BURSTS_PER_DAY * n)):
            start = begin + int(rng.integers(RECORDS_PER_DAY))
            length = 1 + int(
                draw_lognormal(rng, _BURST_HOURS, _BURST_SPREAD) * RECORDS_PER_DAY / 24
            )
            counter = "ecc_corrected" if rng.random() < 0.5 else "pcie_replays"
            per_day = 10 ** rng.uniform(*_BURST_LOG)
            position = int(rng.integers(n))
            self._bursts.append(_Burst(counter, position, start, start + length, per_day))
        for burst in self._bursts:
            span = slice(max(burst.start - begin, 0), burst.end - begin)
            rates[burst.counter][burst.position, span] += burst.per_day
        self._bursts = [b for b in self._bursts if b.end > begin + RECORDS_PER_DAY]

    def _widths(self, rng: np.random.Generator, link: Symptoms, restarts: BoolArray) -> Int64Array:
        """Return the lanes in use; the effect of a restart shows from the next day on."""
        narrow = np.repeat((self._always_narrow | self._badly_trained)[:, None], RECORDS_PER_DAY, 1)
        fails = (link.lean < _NARROW_LEAN)[:, None] & (link.second > _NARROW_LEVEL)
        narrow[link.positions] |= fails
        restarted = np.asarray(restarts.any(axis=1))
        trained_badly = rng.random(len(restarted)) < _NARROW_AFTER_REBOOT
        self._badly_trained = np.where(restarted, trained_badly, self._badly_trained)
        return np.where(narrow, _FULL_WIDTH // 2, _FULL_WIDTH)


def _rates(base: Float32Array, defects: Symptoms, log: tuple[float, float]) -> Float32Array:
    """Return the errors a day of boards, including those of defects that show this way."""
    rates = np.repeat(base[:, None], RECORDS_PER_DAY, axis=1)
    added = 10.0 ** (log[0] + log[1] * defects.first)
    rates[defects.positions] += np.where(defects.first > 0, added, 0)
    return rates


def _count(rng: np.random.Generator, per_day: Float32Array) -> Int64Array:
    """Draw the errors of each record, in clusters."""
    cluster = rng.gamma(_BURSTINESS, 1 / _BURSTINESS, per_day.shape)
    return rng.poisson(per_day / RECORDS_PER_DAY * cluster)


def _accumulate(before: Int64Array, increases: Int64Array, resets: BoolArray) -> Int64Array:
    """Sum the increases; a reset drops the count so far, including the initial count."""
    sums = np.cumsum(increases, axis=1)
    dropped = np.maximum.accumulate(np.where(resets, sums - increases, 0), axis=1)
    unbroken = ~np.logical_or.accumulate(resets, axis=1)
    return sums - dropped + np.where(unbroken, before[:, None], 0)
