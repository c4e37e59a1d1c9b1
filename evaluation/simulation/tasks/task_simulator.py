"""Simulated training tasks sampled once a second, healthy or with a faulty machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forewarn.evaluation.simulation.tasks.metric_profiles import METRIC_PROFILES, MetricProfile
from forewarn.evaluation.simulation.tasks.task_faults import Fault, draw_fault
from forewarn.features.array_types import BoolArray, Float32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.time_units import SECONDS_PER_HOUR

__all__ = [
    "SimulatedTask",
    "apply_inertia",
    "draw_machine_count",
    "faulty_task",
    "healthy_task",
    "long_task",
]

Generator = np.random.Generator

_MIN_MACHINES, _MAX_MACHINES = 4, 1500
_START = (120.0, 420.0)  # seconds into a pull at which a fault starts
_REPAIRED = 0.6  # latest end of a fault, as a share of the time to the next one
_JITTERS_PER_HOUR = 0.25  # per machine: short deviations of healthy machines
_JITTER_SECONDS, _JITTER_SPREAD, _MAX_JITTER_SECONDS = 20.0, 0.8, 150.0
_OUTLIER_SHARE = 0.03  # share of machines with permanent offsets on some metrics
_REPLACED = 0.05  # share of tasks in which a machine is replaced
_FROZEN_SENSOR_SHARE = 0.02  # share of tasks with a frozen sensor
_SLOW = 0.9
_MISSING, _BURSTS = 0.002, 0.0003  # shares of samples: lost ones, and starts of longer gaps


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """The samples that the machines of a task sent.

    Attributes
    ----------
    machines : tuple of str
    group : tuple of str
        Pipeline stage of each machine.
    samples : dict of str to ndarray of shape (n_machines, n_seconds), float32
        NaN where a sample is missing.
    faults : tuple of Fault
    """

    machines: tuple[str, ...]
    group: tuple[str, ...]
    samples: dict[str, Float32Array]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class _Rhythm:
    """The common course of the task, by second.

    Attributes
    ----------
    busy : ndarray of shape (n_stages, n_seconds)
        From 0 between two steps to 1 while computing.
    saving : ndarray of shape (n_seconds,)
        1 during a checkpoint.
    alone : ndarray of shape (n_seconds,)
        1 while rank 0 is still saving.
    """

    busy: Float32Array
    saving: Float32Array
    alone: Float32Array


@compiled
def apply_inertia(noise: Float32Array, inertia: float) -> None:
    """Turn independent noise into autocorrelated noise of the same deviation, in place."""
    fresh = np.sqrt(1.0 - inertia * inertia)
    for machine in range(noise.shape[0]):
        for second in range(1, noise.shape[1]):
            before = noise[machine, second - 1]
            noise[machine, second] = inertia * before + fresh * noise[machine, second]


def draw_machine_count(generator: Generator, largest: int = _MAX_MACHINES) -> int:
    """Draw the number of machines: as many tasks of 4 to 40 machines as of 40 to 400."""
    low, high = np.log(_MIN_MACHINES), np.log(largest + 1)
    return int(np.exp(generator.uniform(low, high)))


def healthy_task(generator: Generator, n_machines: int, seconds: int) -> SimulatedTask:
    """Simulate a task without faults: jitters, checkpoints, outlier machines, lost samples.

    Parameters
    ----------
    generator : numpy Generator
    n_machines, seconds : int
    """
    return _simulate(generator, n_machines, seconds, ())


def faulty_task(
    generator: Generator, n_machines: int, seconds: int, n_faulty: int = 1
) -> SimulatedTask:
    """Simulate a task in which one or several machines fail.

    Parameters
    ----------
    generator : numpy Generator
    n_machines, seconds : int
    n_faulty : int
        They fail at the same time with the same fault, like machines behind one switch.
    """
    start = float(generator.uniform(*_START)) * seconds / 900.0
    machines = generator.choice(n_machines, size=n_faulty, replace=False)
    first = draw_fault(generator, int(machines[0]), start)
    faults = [first, *(replace(first, machine=int(machine)) for machine in machines[1:])]
    return _simulate(generator, n_machines, seconds, faults)


def long_task(generator: Generator, n_machines: int, seconds: int, n_faults: int) -> SimulatedTask:
    """Simulate a task in which machines fail one after another and are repaired.

    Parameters
    ----------
    generator : numpy Generator
    n_machines, seconds : int
    n_faults : int
        At most one fault per machine.
    """
    each = seconds / n_faults
    machines = generator.choice(n_machines, size=n_faults, replace=False)
    faults = []
    for number, machine in enumerate(machines):
        start = float(number * each + generator.uniform(0.1, 0.3) * each)
        fault = draw_fault(generator, int(machine), start)
        faults.append(replace(fault, end=min(fault.end, start + _REPAIRED * each)))
    return _simulate(generator, n_machines, seconds, faults)


def _simulate(generator: Generator, n: int, seconds: int, faults: Sequence[Fault]) -> SimulatedTask:
    stages = _stages(generator, n)
    rhythm = _rhythm(generator, int(stages.max()) + 1, seconds)
    slowed = _slowed(generator, seconds, faults)
    outliers = generator.random(n) < _OUTLIER_SHARE
    jitters = _jitters(generator, n, seconds)
    values = {}
    for profile in METRIC_PROFILES:
        level = _levels(generator, profile, rhythm, stages, slowed)
        level *= _machine_factors(generator, profile, n, outliers)[:, None]
        _rank_zero(profile, level, rhythm)
        for fault in (*faults, *jitters):
            _apply_fault(generator, profile, level, fault)
        noise = generator.standard_normal((n, seconds), dtype=np.float32)
        apply_inertia(noise, profile.inertia)
        level *= 1.0 + np.float32(profile.noise) * noise
        values[profile.name] = np.clip(level, 0.0, profile.top).round(3).astype(np.float32)
    _drop_samples(generator, values)
    machines = tuple(f"node-{i:04d}" for i in range(n))
    return SimulatedTask(machines, tuple(f"stage-{s}" for s in stages), values, tuple(faults))


def _stages(generator: Generator, n: int) -> Int64Array:
    """Assign neighbouring machines to pipeline stages of equal size."""
    possible = [k for k in (1, 2, 4, 8) if n >= 4 * k]
    n_stages = possible[generator.integers(len(possible))]
    return np.arange(n) * n_stages // n


def _rhythm(generator: Generator, n_stages: int, seconds: int) -> _Rhythm:
    """Draw steps of some seconds, and checkpoints; stages follow each other."""
    period = float(np.exp(generator.uniform(np.log(3.0), np.log(40.0))))
    duty = generator.uniform(0.6, 0.9)
    clock = np.cumsum(1.0 + 0.02 * generator.standard_normal(seconds)) / period
    lag = np.arange(n_stages)[:, None] * generator.uniform(0.0, 0.1)
    phase = (clock[None, :] - lag + generator.random()) % 1.0
    edge = 1.0 / period  # a sample is the mean of a second
    busy = np.clip((duty - phase) / edge + 0.5, 0.0, 1.0) * np.clip(phase / edge + 0.5, 0.0, 1.0)
    saving, alone = np.zeros(seconds), np.zeros(seconds)
    every = generator.uniform(600.0, 2400.0)
    begin = generator.uniform(0.0, every)
    long, extra = generator.uniform(20.0, 120.0), generator.uniform(5.0, 60.0)
    while begin < seconds:
        first = int(begin)
        saving[first : first + int(long + extra)] = 1.0
        alone[first + int(long) : first + int(long + extra)] = 1.0
        begin += every
    as_floats = (part.astype(np.float32) for part in (busy, saving, alone))
    return _Rhythm(*as_floats)


def _slowed(generator: Generator, seconds: int, faults: Sequence[Fault]) -> Float32Array:
    """Return the remaining speed of the whole task, as a share, by second."""
    pace = np.ones(seconds, dtype=np.float32)
    for fault in faults:
        if fault.spread_after < np.inf:
            begin = int(fault.start + fault.spread_after)
            pace[begin : int(fault.end)] = generator.uniform(0.2, 0.8)
    return pace


def _levels(
    generator: Generator,
    profile: MetricProfile,
    rhythm: _Rhythm,
    stages: Int64Array,
    slowed: Float32Array,
) -> Float32Array:
    """Return the values of a machine without differences from the others of its stage."""
    n_stages = len(rhythm.busy)
    busy = generator.uniform(*profile.busy) * generator.normal(1.0, 0.1, (n_stages, 1))
    idle = np.minimum(generator.uniform(*profile.idle), busy)
    if profile.inertia > _SLOW:
        idle = busy  # the metric does not follow single steps
    course = idle + (busy - idle) * rhythm.busy * slowed
    saving = generator.uniform(*profile.saving)
    course = course * (1.0 - rhythm.saving) + saving * rhythm.saving
    levels: Float32Array = course.astype(np.float32)[stages]
    return levels


def _machine_factors(
    generator: Generator, profile: MetricProfile, n: int, outliers: BoolArray
) -> Float32Array:
    """Return the permanent offset of every machine; a few are as large as a fault's effect."""
    factors = np.exp(profile.lasting * generator.standard_normal(n))
    strongly = outliers & (generator.random(n) < 0.4)
    factors[strongly] *= np.exp(generator.choice([-1, 1], n) * generator.uniform(0.1, 0.5, n))[
        strongly
    ]
    return factors.astype(np.float32)


def _rank_zero(profile: MetricProfile, level: Float32Array, rhythm: _Rhythm) -> None:
    """Rank 0 logs and schedules all the time, and saves after the others have finished."""
    if profile.family == "cpu":
        level[0] = level[0] * 1.2 + 4.0 + 25.0 * rhythm.alone
    if profile.family == "disk":
        level[0] = level[0] * (1.0 + rhythm.alone)
    if profile.family in ("memory", "net"):
        level[0] *= 1.08


def _jitters(generator: Generator, n: int, seconds: int) -> list[Fault]:
    """Return deviations that look like faults and end soon."""
    count = generator.poisson(_JITTERS_PER_HOUR * n * seconds / SECONDS_PER_HOUR)
    jitters = []
    for _ in range(count):
        long = _JITTER_SECONDS * np.exp(_JITTER_SPREAD * generator.standard_normal())
        begin = float(generator.uniform(0.0, seconds))
        fault = draw_fault(generator, int(generator.integers(n)), begin)
        end = begin + min(float(long), _MAX_JITTER_SECONDS)
        jitters.append(replace(fault, kind="jitter", end=end, spread_after=np.inf))
    return jitters


def _apply_fault(
    generator: Generator, profile: MetricProfile, level: Float32Array, fault: Fault
) -> None:
    """Change the values of a machine while a fault lasts."""
    strength = fault.strength.get(profile.family)
    if strength is None:
        return
    row = level[fault.machine, int(fault.start) : int(fault.end)]
    if profile.family == "pfc":
        row += strength**2 * 8000.0 * np.exp(0.3 * generator.standard_normal())
    elif profile.family == "cpu" and generator.random() < 0.2:
        row += strength * 0.6 * (100.0 - row)  # busy waiting
    else:
        row *= 1.0 - 0.9 * strength


def _drop_samples(generator: Generator, values: dict[str, Float32Array]) -> None:
    """Drop samples, replace a machine, and freeze a sensor."""
    first = next(iter(values.values()))
    n, seconds = first.shape
    lost = generator.random((n, seconds), dtype=np.float32) < _MISSING
    for machine, second in zip(
        *np.nonzero(generator.random((n, seconds), dtype=np.float32) < _BURSTS), strict=True
    ):
        lost[machine, second : second + int(generator.integers(2, 12))] = True
    if generator.random() < _REPLACED and n > 4:
        absent = int(generator.integers(1, n))
        away = int(generator.uniform(0.2, 0.8) * seconds)
        if generator.random() < 0.5:
            lost[absent, away:] = True
        else:
            lost[absent, :away] = True
    for samples in values.values():
        samples[lost] = np.nan
    if generator.random() < _FROZEN_SENSOR_SHARE:
        name = list(values)[int(generator.integers(len(values)))]
        machine, begin = int(generator.integers(n)), int(generator.uniform(0.0, 0.7) * seconds)
        row = values[name][machine]
        row[begin:] = np.where(np.isnan(row[begin:]), np.nan, row[begin])
