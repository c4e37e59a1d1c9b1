"""Job schedule of the simulated fleet: which job runs on which GPUs, and when."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout
from forewarn.evaluation.simulation.fleet.job_kinds import (
    JOB_KINDS,
    Demand,
    GpuLoad,
    compute_load,
    draw_demand,
)
from forewarn.evaluation.simulation.fleet.random_streams import (
    RECORDS_PER_DAY,
    Purpose,
    ar1_step,
    random_stream,
)
from forewarn.features.array_types import BoolArray, Float32Array, Int64Array

__all__ = ["Interruption", "JobRun", "JobSchedule", "WorkDay"]

_WARM_UP_DAYS = 7
"""Days before the first one that are simulated so that long jobs already run."""

# All are guesses: the share of the fleet for single-GPU jobs, how long a machine waits for its next
# job (longer at night and at the weekend), and how the mix of jobs drifts.
_SHARED = 0.2
_WAIT_RECORDS, _NIGHT_FACTOR, _WEEKEND_FACTOR = 3.0, 3.0, 2.0
_NIGHT_RECORDS = 42
_REFERENCE_MONDAY = np.datetime64("1970-01-05", "D")
_MIX_SPREAD, _MIX_MEMORY_DAYS = 0.4, 14.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """All jobs of a machine end at record `at`; none starts before `until`."""

    machine: int
    at: int
    until: int


@dataclass(slots=True)
class _Pool:
    """Schedulable units of one GPU model: whole machines, or single GPUs."""

    whole: bool
    units: list[Int64Array]
    machines: list[int]
    free_at: list[int] = field(default_factory=list)


@dataclass(slots=True)
class JobRun:
    """A job on its positions, in records [start, end)."""

    demand: Demand
    pool: _Pool
    units: list[int]
    start: int
    end: int
    interrupted: bool = False

    @property
    def positions(self) -> Int64Array:
        """Return the positions that the job runs on."""
        return np.concatenate([self.pool.units[unit] for unit in self.units])


@dataclass(frozen=True, slots=True)
class WorkDay:
    """Jobs that run on one day.

    Attributes
    ----------
    load : GpuLoad
    runs : tuple of JobRun
        The jobs that run on that day.
    """

    load: GpuLoad
    runs: tuple[JobRun, ...]


def _make_pools(layout: FleetLayout, rng: np.random.Generator) -> list[_Pool]:
    """Split the machines into pools; a job stays within one GPU model."""
    machines = range(len(layout.machine_names))
    shared = rng.random(len(machines)) < _SHARED
    pools: dict[tuple[int, bool], _Pool] = {}
    for machine in machines:
        positions, whole = layout.machine_positions(machine), not shared[machine]
        key = int(layout.model[positions[0]]), whole
        pool = pools.setdefault(key, _Pool(whole, [], []))
        units = [positions] if whole else [positions[i : i + 1] for i in range(len(positions))]
        pool.units += units
        pool.machines += [machine] * len(units)
        pool.free_at += [-_WARM_UP_DAYS * RECORDS_PER_DAY] * len(units)
    return list(pools.values())


class JobSchedule:
    """Gang scheduling: a job takes the first machines that become free, all at the same time.

    Parameters
    ----------
    layout : FleetLayout
    seed : int
    start : numpy.datetime64
        First simulated day, for the weekends.
    """

    def __init__(self, layout: FleetLayout, seed: int, start: np.datetime64) -> None:
        self._n_positions, self._seed = len(layout), seed
        self._weekday = (
            int((start.astype("datetime64[D]") - _REFERENCE_MONDAY).astype(np.int64)) % 7
        )
        self._pools = _make_pools(layout, random_stream(seed, Purpose.JOBS))
        self._mix: Float32Array = np.zeros(len(JOB_KINDS), np.float32)
        self._runs: list[JobRun] = []
        self._blocked: dict[int, list[Interruption]] = {}
        everywhere = np.ones((self._n_positions, RECORDS_PER_DAY), bool)
        for day in range(-_WARM_UP_DAYS, 0):
            self.advance(day, [], everywhere)

    def advance(self, day: int, interruptions: Sequence[Interruption], up: BoolArray) -> WorkDay:
        """Simulate one day; days have to come in order.

        Parameters
        ----------
        day : int
        interruptions : sequence of Interruption
            Those that begin on that day.
        up : ndarray of shape (n_positions, RECORDS_PER_DAY), bool
        """
        rng = random_stream(self._seed, Purpose.JOBS, day)
        walks = random_stream(self._seed, Purpose.WALKS, day)
        self._mix = ar1_step(walks, self._mix, spread=_MIX_SPREAD, memory_days=_MIX_MEMORY_DAYS)
        begin, end = day * RECORDS_PER_DAY, (day + 1) * RECORDS_PER_DAY
        self._block(interruptions, begin)
        for pool in self._pools:
            self._fill(pool, rng, end)
        today = tuple(run for run in self._runs if run.start < end)
        job = np.zeros((self._n_positions, RECORDS_PER_DAY), np.int32)
        for number, run in enumerate(today):
            job[run.positions, max(run.start - begin, 0) : max(run.end - begin, 0)] = number + 1
        load = compute_load([run.demand for run in today], job, day, up)
        self._runs = [run for run in self._runs if run.end > end]
        return WorkDay(load, today)

    def _block(self, interruptions: Sequence[Interruption], begin: int) -> None:
        """Record where no job may run, and end the jobs that run there."""
        known = [i for blocks in self._blocked.values() for i in blocks if i.until > begin]
        self._blocked = {}
        for interruption in [*known, *interruptions]:
            self._blocked.setdefault(interruption.machine, []).append(interruption)
        for run in self._runs:
            self._cut(run)

    def _cut(self, run: JobRun) -> None:
        """End a job when the first of its machines is blocked."""
        machines = {run.pool.machines[unit] for unit in run.units}
        stops = [
            max(block.at, run.start)
            for machine in machines
            for block in self._blocked.get(machine, ())
            if run.start < block.until and block.at < run.end
        ]
        if stops:
            run.end, run.interrupted = min(stops), True
            for unit in run.units:
                run.pool.free_at[unit] = self._free_from(run.pool.machines[unit], run.end)

    def _free_from(self, machine: int, at: int) -> int:
        """Return the first record at or after `at` when a machine may run jobs."""
        blocks = self._blocked.get(machine, ())
        return max((block.until for block in blocks if block.at <= at < block.until), default=at)

    def _fill(self, pool: _Pool, rng: np.random.Generator, end: int) -> None:
        """Start jobs until no unit becomes free before `end`."""
        queue = [(free, unit) for unit, free in enumerate(pool.free_at) if free < end]
        heapq.heapify(queue)
        weights = np.exp(self._mix.astype(np.float64))
        while queue:
            demand = draw_demand(rng, weights, pool.whole)
            size = min(demand.machines, len(queue))
            gang = [heapq.heappop(queue) for _ in range(size)]
            start, units = gang[-1][0], [unit for _, unit in gang]
            start += self._wait(rng, start)
            run = JobRun(demand, pool, units, start, start + demand.records)
            for unit in units:
                pool.free_at[unit] = run.end
            self._cut(run)
            self._runs.append(run)
            for unit in units:
                if pool.free_at[unit] < end:
                    heapq.heappush(queue, (pool.free_at[unit], unit))

    def _wait(self, rng: np.random.Generator, at: int) -> int:
        night = at % RECORDS_PER_DAY < _NIGHT_RECORDS
        weekend = (self._weekday + at // RECORDS_PER_DAY) % 7 >= 5
        factor = (_NIGHT_FACTOR if night else 1) * (_WEEKEND_FACTOR if weekend else 1)
        return 1 + int(rng.exponential(_WAIT_RECORDS * factor))
