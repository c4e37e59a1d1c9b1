"""Failures and repairs of the simulated fleet.

"Trace" is the fault trace of 400 training servers over 349 days (stepfun-ai/InfiniteHBD-Trace,
584 faults); "guess" means that no public figure was found.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.fleet.defects import (
    MECHANISMS,
    SUDDEN,
    VISIBLE,
    Defects,
    Symptoms,
)
from forewarn.evaluation.simulation.fleet.failure_rates import FailureRates
from forewarn.evaluation.simulation.fleet.fleet_hardware import Devices, FleetLayout
from forewarn.evaluation.simulation.fleet.random_streams import (
    RECORDS_PER_DAY,
    Purpose,
    draw_lognormal,
    random_stream,
)
from forewarn.features.array_types import BoolArray, Int8Array

__all__ = [
    "BLIND_FAILED",
    "SEEN_FAILED",
    "SILENT_FAILED",
    "UP",
    "FaultDay",
    "FaultProcess",
    "Repair",
    "SimulatedFailure",
]

_WARM_UP_DAYS = 45
"""Days before the first one that are simulated so that defects already exist."""

# Healthy devices with partial precursors: as many defects heal as are fatal.
_BENIGN_PER_FATAL = 1.0

# Trace: 31 % of the repairs are followed by a fault of the node within a week, half of them
# within 1.35 days, in 55 % of the same class. About 6 % would be by chance. The spread is a guess.
_CAUSE_LEFT, _SAME_CAUSE = 0.25, 0.55
_RELAPSE_MEDIAN_DAYS, _RELAPSE_SPREAD = 1.35, 1.5
# Trace: median 0.85 days and 90th percentile 12.9 make a log-normal of this spread, whose
# 95th percentile is 28 days (trace: 31). Shortest: guess.
_DOWN_MEDIAN_DAYS, _DOWN_SPREAD = 0.85, 2.12
_MIN_DOWN_RECORDS, _MAX_DOWN_RECORDS = 3, 90 * RECORDS_PER_DAY
_REPLACED = 0.3  # share of repairs that bring a new board; guess

# Share of failures after which no record ever arrives, by mechanism. Trace: lost, not found and
# nvidia-smi timeout are 15 of 158 GPU faults; the split over mechanisms is a guess.
_VANISHED = (0.03, 0.03, 0.10, 0.15, 0.20)
# Guesses for the records of a failed GPU: some agents soon fall silent, some read no sensors.
_SOON_SILENT, _SOON_SILENT_RECORDS, _BLIND = 0.45, 12, 0.5
# Guess: half of the failures take their machine out of service, for at most two days.
_CORDONED, _MAX_CORDON_RECORDS = 0.5, 2 * RECORDS_PER_DAY

UP, SEEN_FAILED, BLIND_FAILED, SILENT_FAILED = 0, 1, 2, 3
"""State of a position in its records; "blind" means failed records without sensor readings."""


@dataclass(frozen=True, slots=True)
class SimulatedFailure:
    """A GPU failure; times are record numbers since the first simulated record.

    Attributes
    ----------
    position, device : int
    at : int
        First record after the failure.
    mechanism : int
        Index into `defects.MECHANISMS`.
    shown_until, down_until : int
        End of the failed records, and start of work after the repair. Equal to `at`: vanished.
    cordon_until : int
        No job runs on the machine before this record.
    blind : bool
        The failed records have no sensor readings.
    """

    position: int
    device: int
    at: int
    mechanism: int
    shown_until: int
    down_until: int
    cordon_until: int
    blind: bool

    @property
    def vanished(self) -> bool:
        """True if the records stop without a failed record."""
        return self.shown_until == self.at


@dataclass(frozen=True, slots=True)
class Repair:
    """A position works again from record `at` on, with board `device`."""

    position: int
    device: int
    at: int


@dataclass(frozen=True, slots=True)
class FaultDay:
    """Failures and repairs of one day.

    Attributes
    ----------
    failures, repairs : tuple
        In order of time.
    status : ndarray of shape (n_positions, RECORDS_PER_DAY), int8
        `UP`, or how the failed GPU appears in the records.
    symptoms : dict of str to Symptoms
        By mechanism with precursors; includes what a GPU showed before it failed that day.
    """

    failures: tuple[SimulatedFailure, ...]
    repairs: tuple[Repair, ...]
    status: Int8Array
    symptoms: dict[str, Symptoms]

    @property
    def up(self) -> BoolArray:
        """True where a GPU works, of shape (n_positions, RECORDS_PER_DAY)."""
        return np.asarray(self.status == UP)


def _status(down: list[SimulatedFailure], day: int, n_positions: int) -> Int8Array:
    status = np.full((n_positions, RECORDS_PER_DAY), UP, np.int8)
    begin = day * RECORDS_PER_DAY
    for failure in down:
        start, visible, end = (
            min(max(time - begin, 0), RECORDS_PER_DAY)
            for time in (failure.at, failure.shown_until, failure.down_until)
        )
        status[failure.position, start:visible] = BLIND_FAILED if failure.blind else SEEN_FAILED
        status[failure.position, visible:end] = SILENT_FAILED
    return status


class FaultProcess:
    """Defects begin, some of them end in a failure, and failures are repaired.

    Parameters
    ----------
    layout : FleetLayout
    devices : Devices
        Receives new boards at repairs.
    seed : int
    """

    def __init__(self, layout: FleetLayout, devices: Devices, seed: int) -> None:
        self._devices = devices
        self._seed = seed
        self._rates = FailureRates(layout, seed)
        self._defects = Defects(len(layout))
        self._down: dict[int, SimulatedFailure] = {}
        self._warm_up()

    def _warm_up(self) -> None:
        """Bring the fleet to its steady state, then start with all GPUs working."""
        for day in range(-_WARM_UP_DAYS, 0):
            rng = random_stream(self._seed, Purpose.FAULTS, day)
            self._begin_defects(rng, day)
            list(self._events(rng, day))
        for position in list(self._down):
            self._repair(rng, position, 0)

    def _begin_defects(self, rng: np.random.Generator, day: int) -> None:
        self._rates.advance(day)
        begin = day * RECORDS_PER_DAY
        for mechanism in range(len(MECHANISMS)):
            rate = self._rates.per_day(mechanism, self._devices.traits.frailty)
            benign = 0.0 if mechanism == SUDDEN else _BENIGN_PER_FATAL
            chance = -np.expm1(-rate * (1 - _CAUSE_LEFT)) * (1 + benign)
            begins = (rng.random(len(chance)) < chance) & self._defects.free(mechanism, begin)
            begins[list(self._down)] = False
            for position in np.flatnonzero(begins):
                onset = begin + int(rng.integers(RECORDS_PER_DAY))
                fatal = bool(rng.random() < 1 / (1 + benign))
                lean = float(self._rates.leans[mechanism])
                self._defects.begin(rng, mechanism, int(position), onset, fatal=fatal, lean=lean)

    def advance(self, day: int) -> FaultDay:
        """Simulate one day; days have to come in order, from 0 on."""
        rng = random_stream(self._seed, Purpose.FAULTS, day)
        self._begin_defects(rng, day)
        symptoms = {
            name: self._defects.symptoms(number, day) for number, name in enumerate(VISIBLE)
        }
        down = list(self._down.values())
        events = list(self._events(rng, day))
        failures = tuple(event for event in events if isinstance(event, SimulatedFailure))
        repairs = tuple(event for event in events if isinstance(event, Repair))
        status = _status([*down, *failures], day, len(self._devices.current))
        return FaultDay(failures, repairs, status, symptoms)

    def _due(self, position: int | None, end: int) -> list[tuple[int, int, int]]:
        """Return (time, position, mechanism) of the failures due before `end`."""
        positions = slice(None) if position is None else slice(position, position + 1)
        ends = self._defects.end
        due = np.argwhere(self._defects.fatal[:, positions] & (ends[:, positions] < end))
        first = 0 if position is None else position
        return [(int(ends[m, p + first]), int(p) + first, int(m)) for m, p in due]

    def _events(self, rng: np.random.Generator, day: int) -> Iterator[SimulatedFailure | Repair]:
        """Yield the day's failures and repairs by time; each may cause another one."""
        end = (day + 1) * RECORDS_PER_DAY
        queue = self._due(None, end)
        queue += [(failure.down_until, position, -1) for position, failure in self._down.items()]
        heapq.heapify(queue)
        while queue and queue[0][0] < end:
            at, position, mechanism = heapq.heappop(queue)
            if mechanism < 0:
                yield self._repair(rng, position, at)
                more = self._due(position, end)
            elif position in self._down or not self._defects.fatal[mechanism, position]:
                continue  # another mechanism failed the GPU first
            else:
                yield self._fail(rng, position, at, mechanism)
                more = [(self._down[position].down_until, position, -1)]
            for item in more:
                heapq.heappush(queue, item)

    def _fail(
        self, rng: np.random.Generator, position: int, at: int, mechanism: int
    ) -> SimulatedFailure:
        self._defects.clear(position, at)
        days = draw_lognormal(rng, _DOWN_MEDIAN_DAYS, _DOWN_SPREAD)
        down = int(np.clip(days * RECORDS_PER_DAY, _MIN_DOWN_RECORDS, _MAX_DOWN_RECORDS))
        visible = down
        if rng.random() < _VANISHED[mechanism]:
            visible = 0
        elif rng.random() < _SOON_SILENT:
            visible = min(down, 1 + int(rng.integers(_SOON_SILENT_RECORDS)))
        cordon = min(down, _MAX_CORDON_RECORDS) if rng.random() < _CORDONED else 1
        self._down[position] = SimulatedFailure(
            position=position,
            device=int(self._devices.current[position]),
            at=at,
            mechanism=mechanism,
            shown_until=at + visible,
            down_until=at + down,
            cordon_until=at + cordon,
            blind=bool(rng.random() < _BLIND),
        )
        return self._down[position]

    def _repair(self, rng: np.random.Generator, position: int, at: int) -> Repair:
        failure = self._down.pop(position)
        replaced = at > 0 and (failure.vanished or rng.random() < _REPLACED)
        if replaced:
            self._devices.replace(position, at // RECORDS_PER_DAY)
        if rng.random() < _CAUSE_LEFT:
            self._relapse(rng, failure, at, replaced=replaced)
        return Repair(position, int(self._devices.current[position]), at)

    def _relapse(
        self, rng: np.random.Generator, failure: SimulatedFailure, at: int, *, replaced: bool
    ) -> None:
        """Leave the cause in place, so that the GPU fails again soon."""
        shares = self._rates.shares
        if replaced:
            shares[0] = 0  # the worn memory was replaced with its board
        mechanism = failure.mechanism
        if rng.random() >= _SAME_CAUSE or shares[mechanism] == 0:
            mechanism = int(rng.choice(len(MECHANISMS), p=shares / shares.sum()))
        days = draw_lognormal(rng, _RELAPSE_MEDIAN_DAYS, _RELAPSE_SPREAD)
        self._defects.begin(
            rng,
            mechanism,
            failure.position,
            at,
            fatal=True,
            lean=float(self._rates.leans[mechanism]),
            length=max(int(days * RECORDS_PER_DAY), 2),
        )
