"""Gaps in the collected records of the simulated fleet: missing records and missing values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.simulation.fleet.drivers import Reboot
from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout
from forewarn.evaluation.simulation.fleet.random_streams import (
    RECORDS_PER_DAY,
    Purpose,
    draw_lognormal,
    random_stream,
)
from forewarn.features.array_types import BoolArray, Int64Array

__all__ = ["CollectionDay", "CollectionGaps"]

# All are guesses. None depends on whether a GPU is about to fail.
_LONE_MISSING = 0.003  # share of records lost one by one
_NULL = 0.0015  # share of single sensor values that are not read
_NO_SENSORS = 0.0007  # share of records without any sensor value from nvidia-smi
_OUTAGES = (  # per unit and day, median hours
    ("machine", 0.02, 1.5),
    ("rack", 0.003, 1.0),
    ("centre", 0.02, 0.4),
)
_OUTAGE_SPREAD = 1.2


@dataclass(frozen=True, slots=True)
class _Outage:
    positions: npt.NDArray[np.intp]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CollectionDay:
    """Records and values that are collected on one day.

    Attributes
    ----------
    arrives : ndarray of shape (n_positions, RECORDS_PER_DAY), bool
        True where a record is collected.
    """

    arrives: BoolArray
    _no_sensors: BoolArray
    _rng: np.random.Generator

    def is_null(self) -> BoolArray:
        """Draw where a sensor value is missing, of shape (n_positions, RECORDS_PER_DAY)."""
        lone = self._rng.random(self.arrives.shape, np.float32) < _NULL
        return np.asarray(lone | self._no_sensors)


class CollectionGaps:
    """Drops single records, and all records of a machine, rack or data centre for a while.

    Parameters
    ----------
    layout : FleetLayout
    seed : int
    """

    def __init__(self, layout: FleetLayout, seed: int) -> None:
        self._layout, self._seed = layout, seed
        self._outages: list[_Outage] = []

    def advance(self, day: int, reboots: Iterable[Reboot]) -> CollectionDay:
        """Collect one day; days come in order, from 0 on."""
        rng = random_stream(self._seed, Purpose.COLLECTION, day)
        shape = (len(self._layout), RECORDS_PER_DAY)
        arrives = rng.random(shape, np.float32) >= _LONE_MISSING
        no_sensors = rng.random(shape, np.float32) < _NO_SENSORS
        for unit, per_day, hours in _OUTAGES:
            self._begin_outages(rng, day, getattr(self._layout, unit), per_day, hours)
        for reboot in reboots:
            positions = self._layout.machine_positions(reboot.machine)
            self._outages.append(_Outage(positions, reboot.at, reboot.at + reboot.missed))
        begin = day * RECORDS_PER_DAY
        for outage in self._outages:
            arrives[outage.positions, max(outage.start - begin, 0) : max(outage.end - begin, 0)] = (
                False
            )
        self._outages = [o for o in self._outages if o.end > begin + RECORDS_PER_DAY]
        return CollectionDay(arrives, no_sensors, rng)

    def _begin_outages(
        self,
        rng: np.random.Generator,
        day: int,
        unit_of: Int64Array,
        per_day: float,
        hours: float,
    ) -> None:
        for unit in np.flatnonzero(rng.random(int(unit_of.max()) + 1) < per_day):
            start = day * RECORDS_PER_DAY + int(rng.integers(RECORDS_PER_DAY))
            length = 1 + int(draw_lognormal(rng, hours, _OUTAGE_SPREAD) * RECORDS_PER_DAY / 24)
            self._outages.append(_Outage(np.flatnonzero(unit_of == unit), start, start + length))
