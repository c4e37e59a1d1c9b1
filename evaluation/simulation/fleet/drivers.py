"""Driver versions of the simulated fleet, which roll through the racks, and reboots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout
from forewarn.evaluation.simulation.fleet.random_streams import (
    RECORDS_PER_DAY,
    Purpose,
    random_stream,
)
from forewarn.features.array_types import Float32Array, Int64Array

__all__ = ["DriverDay", "Drivers", "Reboot"]

# All are guesses. A new driver about every three weeks takes some days to reach all racks. In
# addition, a machine reboots about every two months.
_CAMPAIGN_EVERY_DAYS = (14, 29)
_CAMPAIGN_DAYS = (2, 8)
_REBOOTS_PER_MACHINE_DAY = 1 / 60
_REBOOT_RECORDS = (1, 4)  # records that a machine misses
# How much one version differs from the next, in natural logarithms: power at equal work, the
# meaning of memory utilisation, and how often corrected errors, replays and firmware timeouts are
# reported.
_SPREADS = {"power": 0.015, "bandwidth": 0.06, "ecc": 0.6, "replays": 0.4, "timeouts": 0.8}


@dataclass(frozen=True, slots=True)
class Reboot:
    """A machine misses `missed` records from record `at` on; its counters are reset."""

    machine: int
    at: int
    missed: int


@dataclass(frozen=True, slots=True)
class DriverDay:
    """Drivers on one day.

    Attributes
    ----------
    version : ndarray of shape (n_positions, RECORDS_PER_DAY), int64
        Number of the version.
    reboots : tuple of Reboot
    names : tuple of str
        Names of the versions so far.
    """

    version: Int64Array
    reboots: tuple[Reboot, ...]
    names: tuple[str, ...]
    _traits: dict[str, Float32Array]

    def factor(self, trait: str) -> Float32Array:
        """Return the factor of the versions on a trait, of shape (n_positions, RECORDS_PER_DAY).

        Parameters
        ----------
        trait : {"power", "bandwidth", "ecc", "replays", "timeouts"}
        """
        return self._traits[trait][self.version]


class Drivers:
    """One driver version per rack, with occasional campaigns that roll out the next one.

    Parameters
    ----------
    layout : FleetLayout
    seed : int
    """

    def __init__(self, layout: FleetLayout, seed: int) -> None:
        self._layout, self._seed = layout, seed
        self._names: list[str] = []
        self._traits: dict[str, list[float]] = {trait: [] for trait in _SPREADS}
        rng = random_stream(seed, Purpose.DRIVERS)
        racks = len(layout.rack_names)
        self._version: Int64Array = (rng.random(racks) < rng.random()).astype(np.int64)
        self._due: Int64Array = np.full(racks, np.iinfo(np.int64).max)
        self._next_campaign = int(rng.integers(*_CAMPAIGN_EVERY_DAYS)) // 2
        self._release()
        self._release()

    def _release(self) -> None:
        """Release a version."""
        number = len(self._names)
        rng = random_stream(self._seed, Purpose.DRIVER_TRAITS, number)
        self._names.append(f"{535 + 5 * number}.{int(rng.integers(20, 200))}.{number % 9 + 1:02d}")
        for trait, spread in _SPREADS.items():
            self._traits[trait].append(float(np.exp(spread * rng.standard_normal())))

    def _begin_campaign(self, rng: np.random.Generator, day: int) -> None:
        self._release()
        racks = len(self._version)
        length = int(rng.integers(*_CAMPAIGN_DAYS)) * RECORDS_PER_DAY
        self._due = day * RECORDS_PER_DAY + rng.integers(0, length, racks)
        self._next_campaign = day + int(rng.integers(*_CAMPAIGN_EVERY_DAYS))

    def advance(self, day: int) -> DriverDay:
        """Simulate one day; days have to come in order, from 0 on."""
        rng = random_stream(self._seed, Purpose.DRIVERS, day)
        if day == self._next_campaign:
            self._begin_campaign(rng, day)
        begin = day * RECORDS_PER_DAY
        machines = np.arange(len(self._layout.machine_names))
        rack_of = np.zeros(len(machines), np.int64)
        rack_of[self._layout.machine] = self._layout.rack
        upgraded = (self._due >= begin) & (self._due < begin + RECORDS_PER_DAY)
        version = np.repeat(self._version[:, None], RECORDS_PER_DAY, axis=1)
        late = np.arange(begin, begin + RECORDS_PER_DAY) >= self._due[:, None]
        version[upgraded[:, None] & late] = len(self._names) - 1
        self._version = version[:, -1].copy()
        by_chance = rng.random(len(machines)) < _REBOOTS_PER_MACHINE_DAY
        at = begin + rng.integers(0, RECORDS_PER_DAY, len(machines))
        at = np.where(upgraded[rack_of], self._due[rack_of], at)
        missed = rng.integers(*_REBOOT_RECORDS, len(machines))
        reboots = tuple(
            Reboot(int(m), int(at[m]), int(missed[m]))
            for m in np.flatnonzero(upgraded[rack_of] | by_chance)
        )
        traits = {name: np.array(values, np.float32) for name, values in self._traits.items()}
        return DriverDay(version[self._layout.rack], reboots, tuple(self._names), traits)
