"""Xids of the simulated fleet: kernel log messages of boards, links and applications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.simulation.fleet.counters import CounterDay
from forewarn.evaluation.simulation.fleet.defects import Symptoms
from forewarn.evaluation.simulation.fleet.fault_process import SimulatedFailure
from forewarn.evaluation.simulation.fleet.job_schedule import JobRun
from forewarn.evaluation.simulation.fleet.random_streams import (
    RECORDS_PER_DAY,
    Purpose,
    random_stream,
)
from forewarn.features.array_types import BoolArray, Float32Array, Int64Array

__all__ = ["XIDS", "Xids"]

XIDS = (0, 45, 43, 13, 31, 63, 92, 119, 94, 74, 62, 54, 64, 48, 95, 79)
"""Codes that occur, least severe first: those of applications, then those of boards."""
_RANK = {code: rank for rank, code in enumerate(XIDS)}

# The meaning of the codes is from NVIDIA's catalogue; all frequencies are guesses.
_BUGGY_PER_HOUR = 0.05
_CULPRITS = ((31, 0.6), (13, 0.4))  # an application's own error, on the GPU that caused it
_BYSTANDERS = ((43, 0.4), (45, 0.4), (0, 0.2))  # on the job's other GPUs
_KILLED = ((45, 0.7), (0, 0.3))  # GPUs of a job that the failure of another GPU ends
_UNCORRECTED = ((48, 0.4), (94, 0.5), (95, 0.1))
_FLOOD = 50  # corrected errors in one record that cause an Xid 92
_HEALTHY_PER_DAY = ((74, 0.0005), (62, 0.0003), (119, 0.001), (63, 0.0005))
_LINK_PER_DAY, _POWER_PER_DAY = ((74, 0.8),), ((62, 0.4), (54, 0.1))  # at level 1
_AT_FAILURE = (
    ((48, 0.35), (95, 0.3), (64, 0.2), (0, 0.15)),  # memory
    ((79, 0.3), (62, 0.1), (0, 0.6)),  # thermal
    ((79, 0.5), (62, 0.2), (54, 0.1), (0, 0.2)),  # power
    ((79, 0.5), (74, 0.4), (0, 0.1)),  # link
    ((79, 0.45), (119, 0.15), (48, 0.1), (95, 0.1), (62, 0.05), (0, 0.15)),  # sudden
)

_Chances = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of one code, or of several codes, at positions and records of the day."""

    positions: Int64Array
    records: Int64Array
    codes: Int64Array


def _choose(rng: np.random.Generator, chances: _Chances, size: int) -> Int64Array:
    codes, shares = zip(*chances, strict=True)
    return rng.choice(np.array(codes), size, p=np.array(shares))


class Xids:
    """Collects the day's events; of several in one record the most severe is kept.

    Parameters
    ----------
    n_positions : int
    seed : int
    """

    def __init__(self, n_positions: int, seed: int) -> None:
        self._n_positions, self._seed = n_positions, seed

    def advance(
        self,
        day: int,
        counters: CounterDay,
        symptoms: dict[str, Symptoms],
        runs: tuple[JobRun, ...],
        failures: tuple[SimulatedFailure, ...],
        *,
        working: BoolArray,
        timeout_factor: Float32Array,
    ) -> npt.NDArray[np.int16]:
        """Return the Xid of each position and record, 0 for none.

        Parameters
        ----------
        day : int
        counters : CounterDay
        symptoms : dict of str to Symptoms
            Of "link" and "power" defects.
        runs : tuple of JobRun
        failures : tuple of SimulatedFailure
        working : ndarray of shape (n_positions, RECORDS_PER_DAY), bool
            A GPU that is down raises no Xid except that of its failure.
        timeout_factor : ndarray of shape (n_positions, RECORDS_PER_DAY)
            Factor on firmware timeouts of the driver version.
        """
        rng = random_stream(self._seed, Purpose.XIDS, day)
        rank = np.zeros((self._n_positions, RECORDS_PER_DAY), np.int8)
        for events in self._all(rng, day, counters, symptoms, runs, timeout_factor):
            ranks = np.array([_RANK[int(code)] for code in events.codes], np.int8)
            np.maximum.at(rank, (events.positions, events.records), ranks)
        rank[~working] = 0
        for failure in failures:
            code = _choose(rng, _AT_FAILURE[failure.mechanism], 1)[0]
            rank[failure.position, failure.at - day * RECORDS_PER_DAY] = _RANK[int(code)]
        return np.array(XIDS, np.int16)[rank]

    def _all(
        self,
        rng: np.random.Generator,
        day: int,
        counters: CounterDay,
        symptoms: dict[str, Symptoms],
        runs: tuple[JobRun, ...],
        timeout_factor: Float32Array,
    ) -> Iterator[_Events]:
        yield from self._healthy(rng, timeout_factor)
        yield from _counter_events(rng, counters)
        for name, chances in (("link", _LINK_PER_DAY), ("power", _POWER_PER_DAY)):
            yield from _defect_events(rng, symptoms[name], chances)
        begin = day * RECORDS_PER_DAY
        for run in runs:
            if run.demand.buggy:
                yield _buggy_application_events(rng, run, begin)
            if 0 < run.end - begin < RECORDS_PER_DAY and run.end > run.start:
                yield from _job_end_events(rng, run, run.end - begin)

    def _healthy(self, rng: np.random.Generator, timeout_factor: Float32Array) -> Iterator[_Events]:
        for code, per_day in _HEALTHY_PER_DAY:
            count = int(rng.poisson(3 * per_day * self._n_positions))
            positions = rng.integers(0, self._n_positions, count)
            records = rng.integers(0, RECORDS_PER_DAY, count)
            factor = timeout_factor[positions, records] if code == 119 else 1.0
            drawn = rng.random(count) < factor / 3  # drawn at three times the rate
            yield _Events(positions[drawn], records[drawn], np.full(int(drawn.sum()), code))


def _counter_events(rng: np.random.Generator, counters: CounterDay) -> Iterator[_Events]:
    """Yield Xids for row remaps, uncorrected errors and floods of corrected errors."""
    positions, records = np.nonzero(counters.increases["rows_remapped"])
    yield _Events(positions, records, np.full(len(positions), 63))
    positions, records = np.nonzero(counters.increases["ecc_uncorrected"])
    yield _Events(positions, records, _choose(rng, _UNCORRECTED, len(positions)))
    positions, records = np.nonzero(counters.increases["ecc_corrected"] > _FLOOD)
    yield _Events(positions, records, np.full(len(positions), 92))


def _defect_events(
    rng: np.random.Generator, defects: Symptoms, chances: _Chances
) -> Iterator[_Events]:
    for code, per_day in chances:
        hit = rng.random(defects.level.shape) < per_day * defects.level / RECORDS_PER_DAY
        rows, records = np.nonzero(hit)
        yield _Events(defects.positions[rows], records, np.full(len(rows), code))


def _buggy_application_events(rng: np.random.Generator, run: JobRun, begin: int) -> _Events:
    """Draw the errors of an application that raises errors throughout."""
    start, end = max(run.start - begin, 0), min(run.end - begin, RECORDS_PER_DAY)
    hours = (end - start) * 24 / RECORDS_PER_DAY * len(run.positions)
    count = int(rng.poisson(_BUGGY_PER_HOUR * hours)) if end > start else 0
    positions = rng.choice(run.positions, count)
    records = rng.integers(start, max(end, start + 1), count)
    return _Events(positions, records, _choose(rng, _CULPRITS, count))


def _job_end_events(rng: np.random.Generator, run: JobRun, record: int) -> Iterator[_Events]:
    """Yield the Xids of a killed or crashed job, in the record after its last one."""
    positions = run.positions
    records = np.full(len(positions), record)
    if run.interrupted:
        yield _Events(positions, records, _choose(rng, _KILLED, len(positions)))
    elif run.demand.crashes:
        codes = _choose(rng, _BYSTANDERS, len(positions))
        codes[rng.integers(len(positions))] = _choose(rng, _CULPRITS, 1)[0]
        yield _Events(positions, records, codes)
