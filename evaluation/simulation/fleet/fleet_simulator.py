"""The fleet simulator: records as a collector would write them, and separately the ground truth.

Several mechanisms fail GPUs with slow precursors; about half of all failures have none. Many
changes look like precursors but are not: jobs, drivers, seasons, bursts, boards with frequent
errors. The rates, with their sources or marked as guesses, are documented at the constants of the
modules of this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from forewarn.evaluation.simulation.fleet.collection_gaps import CollectionDay, CollectionGaps
from forewarn.evaluation.simulation.fleet.counters import CounterDay, Counters
from forewarn.evaluation.simulation.fleet.defects import MECHANISMS
from forewarn.evaluation.simulation.fleet.drivers import DriverDay, Drivers
from forewarn.evaluation.simulation.fleet.environment import Surroundings
from forewarn.evaluation.simulation.fleet.fault_process import (
    FaultDay,
    FaultProcess,
    SimulatedFailure,
)
from forewarn.evaluation.simulation.fleet.fleet_hardware import Devices, Traits, make_layout
from forewarn.evaluation.simulation.fleet.job_schedule import Interruption, JobSchedule, WorkDay
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.evaluation.simulation.fleet.sensors import Readings, SensorSimulator
from forewarn.evaluation.simulation.fleet.simulated_records import INTERVAL, record_table
from forewarn.evaluation.simulation.fleet.xids import Xids
from forewarn.features.array_types import BoolArray, Float32Array, Int64Array

__all__ = ["FIRST_DAY", "FleetDay", "FleetRun", "simulate_fleet"]


FIRST_DAY = np.datetime64("2025-01-01", "ns")
"""Default first simulated day."""


@dataclass(frozen=True, slots=True)
class FleetDay:
    """The records of one day.

    Attributes
    ----------
    date : str
        UTC date, YYYY-MM-DD.
    records : pandas.DataFrame
        Columns `record_table.RECORD_COLUMNS`, sorted by time and then by serial. Strings are
        categories, counters are nullable integers.
    """

    date: str
    records: pd.DataFrame


@dataclass(frozen=True, slots=True)
class _Today:
    """The parts of a day's records."""

    day: int
    traits: Traits
    drivers: DriverDay
    faults: FaultDay
    work: WorkDay


def _marks(n_positions: int, day: int, marks: list[tuple[Int64Array, int]]) -> BoolArray:
    """Return a mask of the (positions, record) pairs, shape (n_positions, RECORDS_PER_DAY)."""
    marked = np.zeros((n_positions, RECORDS_PER_DAY), bool)
    for positions, at in marks:
        marked[positions, at - day * RECORDS_PER_DAY] = True
    return marked


class _FleetState:
    """The state of all parts of the fleet, advanced day by day."""

    def __init__(self, n_gpus: int, seed: int, start: np.datetime64) -> None:
        self._start, self._day = start, 0
        self._layout = make_layout(n_gpus, seed)
        self.devices = Devices(self._layout, seed, start)
        self.failures: list[SimulatedFailure] = []
        self._faults = FaultProcess(self._layout, self.devices, seed)
        self._drivers = Drivers(self._layout, seed)
        self._site = Surroundings(self._layout, seed, start)
        self._schedule = JobSchedule(self._layout, seed, start)
        self._telemetry = SensorSimulator(self._layout, seed)
        self._counters = Counters(self.devices.traits, seed)
        self._xids = Xids(n_gpus, seed)
        self._collection = CollectionGaps(self._layout, seed)

    def time(self, record: int) -> np.datetime64:
        """Return the time of a record number."""
        return np.datetime64(self._start + record * INTERVAL)

    def next_day(self) -> FleetDay:
        """Simulate the next day."""
        day, self._day = self._day, self._day + 1
        # A board installed today must not change the earlier readings of the board it replaces.
        traits, device = self.devices.traits.copy(), self.devices.current.copy()
        drivers, faults = self._drivers.advance(day), self._faults.advance(day)
        self.failures += faults.failures
        work = self._schedule.advance(day, self._interruptions(drivers, faults), faults.up)
        today = _Today(day, traits, drivers, faults, work)
        readings = self._read(today)
        counters = self._count(today, readings.utilization_memory / np.float32(100))
        begin = self.time(day * RECORDS_PER_DAY)
        records = record_table(
            begin,
            self._layout,
            self.devices,
            device=_devices_of_day(device, faults, day),
            status=faults.status,
            collected=self._collect(today),
            readings=readings,
            counters=counters,
            xid=self._log(today, counters),
            drivers=drivers,
        )
        return FleetDay(str(begin.astype("datetime64[D]")), records)

    def _interruptions(self, drivers: DriverDay, faults: FaultDay) -> list[Interruption]:
        """Return what interrupts jobs today: reboots and failures."""
        machine = self._layout.machine
        return [Interruption(r.machine, r.at, r.at + r.missed) for r in drivers.reboots] + [
            Interruption(int(machine[f.position]), f.at, f.cordon_until) for f in faults.failures
        ]

    def _read(self, today: _Today) -> Readings:
        return self._telemetry.read(
            today.day,
            today.work.load,
            self._site.advance(today.day),
            today.traits,
            today.faults.symptoms,
            power_factor=today.drivers.factor("power"),
            bandwidth_factor=today.drivers.factor("bandwidth"),
        )

    def _count(self, today: _Today, traffic: Float32Array) -> CounterDay:
        day, n_positions = today.day, len(self._layout)
        reboots = [(self._layout.machine_positions(r.machine), r.at) for r in today.drivers.reboots]
        repairs = [(np.array([r.position]), r.at) for r in today.faults.repairs]
        return self._counters.advance(
            day,
            today.traits,
            today.faults.symptoms,
            traffic,
            counting=today.faults.up,
            reboots=_marks(n_positions, day, reboots),
            repairs=_marks(n_positions, day, repairs),
            ecc_factor=today.drivers.factor("ecc"),
            replay_factor=today.drivers.factor("replays"),
        )

    def _log(self, today: _Today, counters: CounterDay) -> npt.NDArray[np.int16]:
        return self._xids.advance(
            today.day,
            counters,
            today.faults.symptoms,
            today.work.runs,
            today.faults.failures,
            working=today.faults.up,
            timeout_factor=today.drivers.factor("timeouts"),
        )

    def _collect(self, today: _Today) -> CollectionDay:
        """Return what is collected; the first failed record of a GPU always is."""
        collected = self._collection.advance(today.day, today.drivers.reboots)
        for failure in today.faults.failures:
            collected.arrives[failure.position, failure.at - today.day * RECORDS_PER_DAY] = True
        return collected

    def truth(self) -> pd.DataFrame:
        """Return all failures so far, by time."""
        times = [self.time(failure.at) for failure in self.failures]
        table = pd.DataFrame(
            {
                "gpu_serial": pd.Series(
                    [self.devices.serials[failure.device] for failure in self.failures], dtype="str"
                ),
                "failed_at": pd.DatetimeIndex(np.array(times, "datetime64[ns]"), tz="UTC"),
                "mechanism": pd.Series(
                    [MECHANISMS[failure.mechanism] for failure in self.failures], dtype="str"
                ),
            }
        )
        return table.sort_values(["failed_at", "gpu_serial"], ignore_index=True)


def _devices_of_day(morning: Int64Array, faults: FaultDay, day: int) -> Int64Array:
    """Return the board at each position and record."""
    device = np.repeat(morning[:, None], RECORDS_PER_DAY, axis=1)
    for repair in faults.repairs:
        device[repair.position, repair.at - day * RECORDS_PER_DAY :] = repair.device
    return device


class FleetRun:
    """The days of a simulated fleet; each iteration simulates them from the first one.

    Parameters
    ----------
    n_gpus, n_days, seed : int
    start : numpy.datetime64
        Midnight UTC.
    """

    def __init__(self, n_gpus: int, n_days: int, seed: int, start: np.datetime64) -> None:
        self._n_gpus, self._n_days, self._seed, self._start = n_gpus, n_days, seed, start
        self._fleet: _FleetState | None = None

    def __len__(self) -> int:
        return self._n_days

    def __iter__(self) -> Iterator[FleetDay]:
        fleet = self._fleet = _FleetState(self._n_gpus, self._seed, self._start)
        for _ in range(self._n_days):
            yield fleet.next_day()

    def _so_far(self) -> _FleetState:
        if self._fleet is None:
            self._fleet = _FleetState(self._n_gpus, self._seed, self._start)
        return self._fleet

    def cmdb(self) -> pd.DataFrame:
        """Return the boards of the days yielded so far, including removed ones.

        Columns gpu_serial, machine_id, slot, gpu_type, rack, data_center, expiration_date and
        installed (ISO dates); sorted by serial.
        """
        return self._so_far().devices.cmdb()

    def truth(self) -> pd.DataFrame:
        """Return the failures of the days yielded so far; for evaluation only.

        Columns gpu_serial, failed_at (the first record after the failure) and mechanism ("sudden"
        has no precursor); sorted by time.
        """
        return self._so_far().truth()


def simulate_fleet(
    *,
    n_gpus: int,
    n_days: int,
    seed: int,
    start: np.datetime64 = FIRST_DAY,
) -> FleetRun:
    """Simulate a fleet of GPUs, eight per machine.

    The first days do not depend on `n_days`. The same arguments give the same records.

    Parameters
    ----------
    n_gpus : int
        Number of GPU positions, at least 1.
    n_days : int
        At least 1.
    seed : int
        Not negative.
    start : numpy.datetime64
        Midnight UTC.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> run = simulate_fleet(n_gpus=8, n_days=2, seed=1)
    >>> [day.date for day in run]
    ['2025-01-01', '2025-01-02']
    >>> run.truth().columns.tolist()
    ['gpu_serial', 'failed_at', 'mechanism']
    """
    for name, value, lowest in (("n_gpus", n_gpus, 1), ("n_days", n_days, 1), ("seed", seed, 0)):
        if value < lowest:
            raise ValueError(f"`{name}` must be at least {lowest}, got {value}.")
    if start != start.astype("datetime64[D]"):
        raise ValueError(f"`start` must be midnight UTC, got {start}.")
    return FleetRun(n_gpus, n_days, seed, start.astype("datetime64[ns]"))
