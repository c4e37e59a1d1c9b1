"""Sensor readings of the simulated GPUs, as nvidia-smi would print them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.fleet.defects import Symptoms
from forewarn.evaluation.simulation.fleet.environment import DaySurroundings
from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout, Traits
from forewarn.evaluation.simulation.fleet.job_kinds import GpuLoad
from forewarn.evaluation.simulation.fleet.random_streams import Purpose, random_stream
from forewarn.features.array_types import BoolArray, Float32Array, FloatingArray

__all__ = ["Readings", "SensorSimulator"]

# Guesses for healthy boards.
_CELSIUS_LIMITS = (5, 100)  # range of the sensor
_LOAD_NOISE = 3.0  # percent of utilisation between GPUs of a job
_POWER_NOISE = 0.02
_CELSIUS_NOISE = 0.6
_THERMAL_MEMORY = 0.85  # share of a temperature step reached within one record
_RECIRCULATION = 4.0  # K added at the inlet when the whole rack runs at its power limit
_CLOCK_EXPONENT = 0.4  # clock ~ power^0.4 near the limit: power grows with voltage and frequency
_CLOCK_STEP = 15.0  # MHz
_MEMORY_RESERVED = (3.0, 620.0)  # MiB in use without a job, by driver and board
_SLOWDOWN_SHARE = 0.8  # share of the excess temperature that throttling removes
_SLOWDOWN_CLOCK = 0.03  # share of the clock lost per kelvin of excess

# Guesses for defects at level 1; each mechanism has two symptoms.
_HOTTER = 0.35  # thermal, first symptom: additional kelvin per watt
_FAN_LEAN, _FAN_HEAT = 0.6, 0.4  # above this lean a fan fails, and warms the neighbours too
_THROTTLED = 0.30  # thermal, second symptom: clock lost, in half of the records
_DIPS = 0.5  # power, first symptom: share of busy records in which power and clock drop
_DIP_POWER, _DIP_CLOCK = (0.45, 0.8), (0.5, 0.9)
_OSCILLATION = 0.15  # power, second symptom: share of the power limit


@dataclass(frozen=True, slots=True)
class Readings:
    """Sensor values of one day, each of shape (n_positions, RECORDS_PER_DAY).

    Attributes
    ----------
    temperature_gpu, power_draw, utilization_gpu, utilization_memory, memory_used, clock_sm
        In degrees Celsius, W, %, %, MiB, MHz.
    """

    temperature_gpu: Float32Array
    power_draw: Float32Array
    utilization_gpu: Float32Array
    utilization_memory: Float32Array
    memory_used: Float32Array
    clock_sm: Float32Array


@dataclass(frozen=True, slots=True)
class _Draw:
    """Power and clock of the day; defects change them in place."""

    watts: Float32Array
    clock: Float32Array
    busy: BoolArray


def _as_floats(values: FloatingArray) -> Float32Array:
    return values.astype(np.float32, copy=False)


class SensorSimulator:
    """Computes temperatures, power and clocks from load, environment and defects.

    Parameters
    ----------
    layout : FleetLayout
    seed : int
    """

    def __init__(self, layout: FleetLayout, seed: int) -> None:
        self._layout, self._seed = layout, seed
        self._celsius: Float32Array | None = None
        _, self._rack_start = np.unique(layout.rack, return_index=True)
        rng = random_stream(seed, Purpose.TELEMETRY)
        self._reserved = np.round(rng.uniform(*_MEMORY_RESERVED, (len(layout), 1)))

    def _of_model(self, attribute: str) -> Float32Array:
        return self._layout.model_values(attribute)[:, None]

    def read(
        self,
        day: int,
        load: GpuLoad,
        site: DaySurroundings,
        traits: Traits,
        symptoms: dict[str, Symptoms],
        *,
        power_factor: Float32Array,
        bandwidth_factor: Float32Array,
    ) -> Readings:
        """Return a day's readings; days have to come in order, from 0 on.

        Parameters
        ----------
        day : int
        load : GpuLoad
        site : DaySurroundings
        traits : Traits
        symptoms : dict of str to Symptoms
            Of "thermal" and "power" defects.
        power_factor, bandwidth_factor : ndarray of shape (n_positions, RECORDS_PER_DAY)
            Effect of the driver version on power and on memory utilisation.
        """
        rng = random_stream(self._seed, Purpose.TELEMETRY, day)
        noise = _LOAD_NOISE * rng.standard_normal(load.busy.shape, np.float32)
        utilization = _as_floats((load.utilization + noise).clip(0, 100) * load.busy)
        draw = self._healthy(rng, load, utilization, site.cap, traits, power_factor)
        self._brown_out(rng, symptoms["power"], draw)
        self._throttle(rng, symptoms["thermal"], draw)
        resistance = self._resistance(traits, symptoms["thermal"])
        celsius = self._settle(self._warm_up(site.inlet, resistance, draw))
        celsius += _CELSIUS_NOISE * rng.standard_normal(celsius.shape, np.float32)
        bandwidth = utilization * load.bandwidth * bandwidth_factor
        return Readings(
            temperature_gpu=np.round(celsius.clip(*_CELSIUS_LIMITS)),
            power_draw=np.round(draw.watts, 2),
            utilization_gpu=np.round(utilization),
            utilization_memory=np.round(bandwidth.clip(0, 100)),
            memory_used=self._memory(load),
            clock_sm=_as_floats(_CLOCK_STEP * np.round(draw.clock / _CLOCK_STEP)),
        )

    def _memory(self, load: GpuLoad) -> Float32Array:
        total = self._of_model("memory_mib")
        return _as_floats(np.round(np.minimum(load.memory * total + self._reserved, total)))

    def _healthy(
        self,
        rng: np.random.Generator,
        load: GpuLoad,
        utilization: Float32Array,
        cap: Float32Array,
        traits: Traits,
        factor: Float32Array,
    ) -> _Draw:
        """Return power and clock of a board without defects."""
        idle, limit = self._of_model("idle_watts"), self._of_model("limit_watts")
        noise = 1 + _POWER_NOISE * rng.standard_normal(utilization.shape, np.float32)
        demand = idle + (limit - idle) * load.intensity * utilization / 100
        demand = demand * traits.efficiency[:, None] * factor * noise
        ceiling = limit * cap * (1 - 0.01 * rng.random(demand.shape, np.float32))
        watts = np.minimum(demand, ceiling)
        boost = self._of_model("boost_mhz") * (watts / demand) ** _CLOCK_EXPONENT
        clock = np.where(load.busy, boost, self._of_model("idle_mhz"))
        return _Draw(_as_floats(watts), _as_floats(clock), load.busy)

    def _brown_out(self, rng: np.random.Generator, defects: Symptoms, draw: _Draw) -> None:
        """Let power drop or oscillate if the power stage is failing."""
        rows, shape = defects.positions, defects.level.shape
        busy = draw.busy[rows]
        dips = busy & (rng.random(shape) < _DIPS * defects.first)
        watts = draw.watts[rows] * np.where(dips, rng.uniform(*_DIP_POWER, shape), 1)
        draw.clock[rows] *= np.where(dips, rng.uniform(*_DIP_CLOCK, shape), 1)
        limit, idle = self._of_model("limit_watts")[rows], self._of_model("idle_watts")[rows]
        watts += _OSCILLATION * limit * defects.second * rng.standard_normal(shape) * busy
        draw.watts[rows] = watts.clip(0.8 * idle, 1.02 * limit)

    def _throttle(self, rng: np.random.Generator, defects: Symptoms, draw: _Draw) -> None:
        """Lower the clocks where a hot spot without a sensor throttles the board."""
        rows = defects.positions
        hit = draw.busy[rows] & (rng.random(defects.level.shape) < 0.5)
        share = 1 - np.where(hit, (_THROTTLED * defects.second).clip(0, 0.6), 0)
        draw.clock[rows] *= share
        idle = self._of_model("idle_watts")[rows]
        draw.watts[rows] = idle + (draw.watts[rows] - idle).clip(0) * share

    def _resistance(self, traits: Traits, defects: Symptoms) -> Float32Array:
        """Return kelvin per watt of each position and record."""
        machine = self._layout.machine
        more = np.zeros((len(machine), defects.level.shape[1]), np.float32)
        more[defects.positions] = _HOTTER * defects.first
        fans = defects.positions[defects.lean > _FAN_LEAN]
        around = np.zeros((int(machine[-1]) + 1, more.shape[1]), np.float32)
        np.maximum.at(around, machine[fans], _FAN_HEAT * more[fans])
        more = np.maximum(more, around[machine])
        return _as_floats(self._of_model("kelvin_per_watt") * traits.cooling[:, None] * (1 + more))

    def _warm_up(self, inlet: Float32Array, resistance: Float32Array, draw: _Draw) -> Float32Array:
        """Return steady-state temperatures; a board that is too hot lowers its power and clock."""
        share = draw.watts / self._of_model("limit_watts")
        size = np.diff([*self._rack_start, len(share)])[:, None]
        rack = np.add.reduceat(share, self._rack_start, axis=0) / size
        air = inlet + _RECIRCULATION * rack[self._layout.rack]
        celsius = air + self._of_model("rise_celsius") + resistance * draw.watts
        excess = (celsius - self._of_model("slowdown_celsius")).clip(0)
        draw.watts[...] -= _SLOWDOWN_SHARE * excess / resistance
        draw.clock[...] *= (1 - _SLOWDOWN_CLOCK * excess).clip(0.4)
        return _as_floats(celsius - _SLOWDOWN_SHARE * excess)

    def _settle(self, celsius: Float32Array) -> Float32Array:
        """Let temperatures lag behind, across days too."""
        before = celsius[:, :1] if self._celsius is None else self._celsius
        self._celsius = celsius[:, -1:].copy()
        lagged = np.concatenate([before, celsius[:, :-1]], axis=1)
        return _as_floats(_THERMAL_MEMORY * celsius + (1 - _THERMAL_MEMORY) * lagged)
