"""Hardware of the simulated fleet: positions of GPUs, and the boards installed there."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from forewarn.evaluation.simulation.fleet.random_streams import Purpose, random_stream
from forewarn.features.array_types import Float32Array, Int64Array

__all__ = ["GPU_MODELS", "Devices", "FleetLayout", "GpuModel", "Traits", "make_layout"]


@dataclass(frozen=True, slots=True)
class GpuModel:
    """Limits of one type of GPU, from its data sheet and its cooling.

    Attributes
    ----------
    name : str
    share : float
        Share of the racks that hold it.
    idle_watts, limit_watts : float
    idle_mhz, boost_mhz : float
        SM clock without work and at full speed.
    memory_mib : float
        Total memory as nvidia-smi reports it.
    slowdown_celsius : float
        Temperature above which the board lowers its clocks.
    rise_celsius, kelvin_per_watt : float
        Temperature above the inlet air: a constant part and a part proportional to power.
    memory_frailty : float
        Rate of memory failures relative to the A100.
    """

    name: str
    share: float
    idle_watts: float
    limit_watts: float
    idle_mhz: float
    boost_mhz: float
    memory_mib: float
    slowdown_celsius: float
    rise_celsius: float
    kelvin_per_watt: float
    memory_frailty: float


# Watts, clocks and memory: NVIDIA's data sheets of the SXM boards. The H100's cooling is read off
# a real capture (69 W at 41 C idle, 633 W at 63 C under load: 0.039 K/W). Shares, and the cooling
# of the other two, are guesses that put a loaded board at 55 to 70 C. Memory: an H100 has 3.2
# times the memory errors of an A100 (arXiv 2503.11901); the same rate for a V100 is a guess.
GPU_MODELS = (
    GpuModel("V100-SXM2-32GB", 0.30, 42, 300, 135, 1530, 32_510, 83, 3, 0.120, 1.0),
    GpuModel("A100-SXM4-80GB", 0.45, 55, 400, 210, 1410, 81_920, 85, 4, 0.085, 1.0),
    GpuModel("H100-80GB-HBM3", 0.25, 69, 700, 345, 1980, 81_559, 87, 14, 0.039, 3.2),
)

_SLOTS = 8
"""GPUs per machine (arXiv 2201.11853, data)."""
_MACHINES_PER_RACK = 4
"""Guess: what fits into 40 kW."""
_CENTRES = (("east", 0.5), ("north", 0.3), ("west", 0.2))
"""Guess."""


@dataclass(frozen=True, slots=True)
class FleetLayout:
    """Positions of the fleet by machine; a position keeps its number when its board is replaced.

    Attributes
    ----------
    machine, slot, rack, centre, model : ndarray of shape (n_positions,), int64
        Numbers; a rack has one GPU model and is in one data centre.
    machine_names, rack_names, centre_names : tuple of str
    """

    machine: Int64Array
    slot: Int64Array
    rack: Int64Array
    centre: Int64Array
    model: Int64Array
    machine_names: tuple[str, ...]
    rack_names: tuple[str, ...]
    centre_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.machine)

    def model_values(self, attribute: str) -> Float32Array:
        """Return an attribute of each position's model, of shape (n_positions,)."""
        values = np.array([getattr(model, attribute) for model in GPU_MODELS], np.float32)
        return values[self.model]

    def machine_positions(self, machine: int) -> Int64Array:
        """Return the positions in one machine."""
        first = machine * _SLOTS
        return np.arange(first, min(first + _SLOTS, len(self)))


def _stratified(rng: np.random.Generator, shares: list[float], count: int) -> Int64Array:
    """Assign `count` items to classes so that even small counts come close to the shares."""
    at = (rng.permutation(count) + 0.5) / count
    return np.searchsorted(np.cumsum(shares)[:-1], at)


def make_layout(n_gpus: int, seed: int) -> FleetLayout:
    """Lay out a fleet: eight GPUs a machine, four machines a rack, one GPU type per rack.

    Parameters
    ----------
    n_gpus : int
        Number of positions, at least 1; the last machine may be partly filled.
    seed : int

    Examples
    --------
    >>> layout = make_layout(20, seed=0)
    >>> layout.machine.tolist()[:9], layout.slot.tolist()[:9]
    ([0, 0, 0, 0, 0, 0, 0, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 0])
    """
    rng = random_stream(seed, Purpose.LAYOUT)
    position = np.arange(n_gpus)
    machine = position // _SLOTS
    rack = machine // _MACHINES_PER_RACK
    racks, machines = int(rack[-1]) + 1, int(machine[-1]) + 1
    model = _stratified(rng, [model.share for model in GPU_MODELS], racks)
    centre = np.sort(_stratified(rng, [share for _, share in _CENTRES], racks))
    return FleetLayout(
        machine=machine,
        slot=position % _SLOTS,
        rack=rack,
        centre=centre[rack],
        model=model[rack],
        machine_names=tuple(f"node-{number:05d}" for number in range(machines)),
        rack_names=tuple(f"{_CENTRES[centre[r]][0]}-r{r:04d}" for r in range(racks)),
        centre_names=tuple(name for name, _ in _CENTRES),
    )


# All spreads between boards are guesses. Many sites have a share of boards with frequent errors.
_EFFICIENCY_SPREAD = 0.03  # of power at equal work
_COOLING_SPREAD = 0.07  # of K/W: paste and seating
_ECC_PER_DAY = (-2.5, 0.8)  # log10 of corrected errors a day, mean and spread
_REPLAYS_PER_DAY = (-1.0, 0.9)
_CHATTY = 0.05  # share of healthy boards with frequent errors
_CHATTY_ECC_PER_DAY = (1.0, 0.6)
_CHATTY_REPLAYS_PER_DAY = (1.7, 0.5)
_BOARD_FRAILTY_SHAPE = 3.0  # of the gamma distribution of failure rates between boards
_NO_EXPIRATION = 0.02  # share of boards without a warranty date in the CMDB
_WARRANTY_DAYS = 3 * 365  # from delivery, up to two months earlier
_YOUNGEST_DAYS, _OLDEST_DAYS = 30, 900  # age of the first boards


@dataclass(frozen=True, slots=True)
class Traits:
    """Differences between boards of one model, one value per position.

    Attributes
    ----------
    efficiency : ndarray of shape (n_positions,)
        Power at equal work, 1 on average.
    cooling : ndarray of shape (n_positions,)
        Kelvin per watt relative to the model's.
    ecc_per_day, replays_per_day : ndarray of shape (n_positions,)
        Corrected ECC errors and PCIe replays of the healthy board.
    frailty : ndarray of shape (n_positions,)
        Failure rate, 1 on average.
    """

    efficiency: Float32Array
    cooling: Float32Array
    ecc_per_day: Float32Array
    replays_per_day: Float32Array
    frailty: Float32Array

    def copy(self) -> Traits:
        """Return a copy that later replacements do not change."""
        return Traits(*(getattr(self, field.name).copy() for field in fields(self)))


def _mixed_levels(
    rng: np.random.Generator,
    count: int,
    quiet: tuple[float, float],
    chatty: tuple[float, float],
) -> Float32Array:
    """Draw rates per day: most boards have few errors, some have many."""
    normal, is_chatty = rng.standard_normal(count), rng.random(count) < _CHATTY
    centre = np.where(is_chatty, chatty[0], quiet[0])
    spread = np.where(is_chatty, chatty[1], quiet[1])
    return (10.0 ** (centre + spread * normal)).astype(np.float32)


def _draw_traits(rng: np.random.Generator, count: int) -> Traits:
    shape = _BOARD_FRAILTY_SHAPE
    return Traits(
        efficiency=(1 + _EFFICIENCY_SPREAD * rng.standard_normal(count)).astype(np.float32),
        cooling=np.exp(_COOLING_SPREAD * rng.standard_normal(count)).astype(np.float32),
        ecc_per_day=_mixed_levels(rng, count, _ECC_PER_DAY, _CHATTY_ECC_PER_DAY),
        replays_per_day=_mixed_levels(rng, count, _REPLAYS_PER_DAY, _CHATTY_REPLAYS_PER_DAY),
        frailty=rng.gamma(shape, 1 / shape, count).astype(np.float32),
    )


class Devices:
    """All boards that were ever in the fleet, and the traits of those installed now.

    Parameters
    ----------
    layout : FleetLayout
    seed : int
    start : numpy.datetime64
        First simulated day.

    Attributes
    ----------
    current : ndarray of shape (n_positions,), int64
        Number of the board at each position.
    traits : Traits
        Of the board at each position.
    serials, expirations : list of str, list of str or None
        By board number; the end of warranty is an ISO date, or None if the CMDB has none.
    """

    def __init__(self, layout: FleetLayout, seed: int, start: np.datetime64) -> None:
        self._layout = layout
        self._start = start.astype("datetime64[D]")
        self._rng = random_stream(seed, Purpose.DEVICES)
        self._scatter = int(self._rng.integers(10**12))
        self._position: list[int] = []
        self._installed: list[str] = []
        self.serials: list[str] = []
        self.expirations: list[str | None] = []
        self.traits = _draw_traits(self._rng, len(layout))
        ages = self._rng.integers(_YOUNGEST_DAYS, _OLDEST_DAYS, len(layout))
        self.current: Int64Array = np.array(
            [self._register(position, -int(age)) for position, age in enumerate(ages)], np.int64
        )

    def _register(self, position: int, day: int) -> int:
        """Add a board to the CMDB and return its number."""
        number = len(self.serials)
        installed = self._start + np.timedelta64(day, "D")
        warranty = _WARRANTY_DAYS - int(self._rng.integers(0, 60))
        known = self._rng.random() >= _NO_EXPIRATION
        self._position.append(position)
        self._installed.append(str(installed))
        self.expirations.append(str(installed + np.timedelta64(warranty, "D")) if known else None)
        # The factor has no common divisor with the range, so no two serials are equal.
        digits = 10**12 + (self._scatter + number * 3_267_000_013_817) % (9 * 10**12)
        self.serials.append(f"SN{digits}")  # letters keep CSV readers from making it a number
        return number

    def replace(self, position: int, day: int) -> int:
        """Install a new board at a position and return its number."""
        drawn = _draw_traits(self._rng, 1)
        for field in fields(Traits):
            getattr(self.traits, field.name)[position] = getattr(drawn, field.name)[0]
        self.current[position] = self._register(position, day)
        return int(self.current[position])

    def cmdb(self) -> pd.DataFrame:
        """Return the table of all boards so far, including removed ones, by serial."""
        layout = self._layout
        position = np.array(self._position)
        table = pd.DataFrame(
            {
                "gpu_serial": self.serials,
                "machine_id": np.array(layout.machine_names)[layout.machine[position]],
                "slot": layout.slot[position],
                "gpu_type": np.array([model.name for model in GPU_MODELS])[layout.model[position]],
                "rack": np.array(layout.rack_names)[layout.rack[position]],
                "data_center": np.array(layout.centre_names)[layout.centre[position]],
                "expiration_date": self.expirations,
                "installed": self._installed,
            }
        )
        return table.sort_values("gpu_serial", ignore_index=True)
