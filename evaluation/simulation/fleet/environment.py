"""Environment of the simulated GPUs: room temperature, seasons, and power limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout
from forewarn.evaluation.simulation.fleet.random_streams import (
    RECORDS_PER_DAY,
    Purpose,
    ar1_step,
    draw_lognormal,
    random_stream,
)
from forewarn.features.array_types import Float32Array

__all__ = ["DaySurroundings", "Surroundings"]

# All are guesses for an air-cooled room in a temperate climate; degrees Celsius.
_ROOM_CELSIUS, _ROOM_SPREAD = 26.0, 1.0  # at the boards, behind disks and processors
_SEASON_CELSIUS, _WARMEST_DAY = 3.0, 200
_WEATHER_CELSIUS, _WEATHER_MEMORY_DAYS = 1.5, 4.0
_DAILY_CELSIUS, _WARMEST_RECORD = 0.8, 90
_RACK_SPREAD = 1.5
_MACHINE_SPREAD = 1.0
# Cooling units fail and power is short from time to time, for one rack at a time.
_COOLING_PER_RACK_DAY, _COOLING_HOURS, _COOLING_CELSIUS = 0.01, 3.0, (3.0, 10.0)
_CAPPING_PER_RACK_DAY, _CAPPING_HOURS, _CAPPING_SHARE = 0.01, 6.0, (0.65, 0.9)
_HOURS_SPREAD = 0.7


@dataclass(frozen=True, slots=True)
class DaySurroundings:
    """Environment of each position on one day.

    Attributes
    ----------
    inlet : ndarray of shape (n_positions, RECORDS_PER_DAY)
        Temperature of the inlet air, in degrees Celsius.
    cap : ndarray of shape (n_positions, RECORDS_PER_DAY)
        Share of the board's power limit that is available.
    """

    inlet: Float32Array
    cap: Float32Array


@dataclass(frozen=True, slots=True)
class _RackEvent:
    rack: int
    start: int
    end: int
    size: float


def _draw_events(
    rng: np.random.Generator,
    day: int,
    n_racks: int,
    per_day: float,
    hours: float,
    size: tuple[float, float],
) -> list[_RackEvent]:
    events = []
    for rack in np.flatnonzero(rng.random(n_racks) < per_day):
        start = day * RECORDS_PER_DAY + int(rng.integers(RECORDS_PER_DAY))
        length = int(draw_lognormal(rng, hours, _HOURS_SPREAD) * RECORDS_PER_DAY / 24) + 1
        events.append(_RackEvent(int(rack), start, start + length, rng.uniform(*size)))
    return events


class Surroundings:
    """Room temperature by data centre, rack and machine, and events of whole racks.

    Parameters
    ----------
    layout : FleetLayout
    seed : int
    start : numpy.datetime64
        First simulated day, for the season.
    """

    def __init__(self, layout: FleetLayout, seed: int, start: np.datetime64) -> None:
        self._layout, self._seed = layout, seed
        days = start.astype("datetime64[D]") - start.astype("datetime64[Y]")
        self._first_day_of_year = int(days.astype(np.int64))
        rng = random_stream(seed, Purpose.SITE)
        centres = _ROOM_CELSIUS + _ROOM_SPREAD * rng.standard_normal(len(layout.centre_names))
        racks = _RACK_SPREAD * rng.standard_normal(len(layout.rack_names))
        machines = _MACHINE_SPREAD * rng.standard_normal(len(layout.machine_names))
        self._base = centres[layout.centre] + racks[layout.rack] + machines[layout.machine]
        self._weather: Float32Array = np.zeros(len(layout.centre_names), np.float32)
        self._cooling: list[_RackEvent] = []
        self._capping: list[_RackEvent] = []

    def advance(self, day: int) -> DaySurroundings:
        """Simulate one day; days have to come in order, from 0 on."""
        rng = random_stream(self._seed, Purpose.SITE, day)
        before = self._weather
        self._weather = ar1_step(
            rng, before, spread=_WEATHER_CELSIUS, memory_days=_WEATHER_MEMORY_DAYS
        )
        racks = len(self._layout.rack_names)
        self._cooling += _draw_events(
            rng, day, racks, _COOLING_PER_RACK_DAY, _COOLING_HOURS, _COOLING_CELSIUS
        )
        self._capping += _draw_events(
            rng, day, racks, _CAPPING_PER_RACK_DAY, _CAPPING_HOURS, _CAPPING_SHARE
        )
        inlet = self._air(day, before)
        cap = np.ones((racks, RECORDS_PER_DAY), np.float32)
        warmer = np.zeros((racks, RECORDS_PER_DAY), np.float32)
        self._capping = _apply(self._capping, day, cap, replace=True)
        self._cooling = _apply(self._cooling, day, warmer, replace=False)
        return DaySurroundings(inlet + warmer[self._layout.rack], cap[self._layout.rack])

    def _air(self, day: int, before: Float32Array) -> Float32Array:
        """Return the air temperature without events, of shape (n_positions, RECORDS_PER_DAY)."""
        record = np.arange(RECORDS_PER_DAY)
        date = self._first_day_of_year + day + record / RECORDS_PER_DAY
        season = _SEASON_CELSIUS * np.cos(2 * np.pi * (date - _WARMEST_DAY) / 365.25)
        hour = _DAILY_CELSIUS * np.cos(2 * np.pi * (record - _WARMEST_RECORD) / RECORDS_PER_DAY)
        change = (self._weather - before)[:, None] * record / RECORDS_PER_DAY
        weather = before[:, None] + change + season + hour
        air = self._base[:, None] + weather[self._layout.centre]
        return np.asarray(air, np.float32)


def _apply(
    events: list[_RackEvent], day: int, values: Float32Array, *, replace: bool
) -> list[_RackEvent]:
    """Write the day's part of events into `values`; return the events that continue."""
    begin = day * RECORDS_PER_DAY
    for event in events:
        span = slice(max(event.start - begin, 0), max(event.end - begin, 0))
        if replace:
            values[event.rack, span] = event.size
        else:
            values[event.rack, span] += event.size
    return [event for event in events if event.end > begin + RECORDS_PER_DAY]
