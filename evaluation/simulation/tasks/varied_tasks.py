"""Simulated tasks under the random conditions of a site, healthy or with a faulty machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forewarn.evaluation.simulation.tasks.site_conditions import Conditions, MetricConditions
from forewarn.evaluation.simulation.tasks.task_faults import Fault, draw_fault
from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask, apply_inertia
from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int64Array
from forewarn.features.detection.metric_limits import MetricLimits

__all__ = ["draw_varied_count", "varied_task"]

Generator = np.random.Generator

_PULL_SECONDS = 900.0  # seconds; fault durations are drawn for pulls of this length
_JITTER = 0.1  # median duration, as a share of a continuity
_RAISING_FAULT_SHARE = 0.2  # share of faults that raise the values instead of lowering them


def draw_varied_count(generator: Generator, conditions: Conditions) -> int:
    """Draw the number of machines of a task."""
    low, high = conditions.sizes
    return int(np.exp(generator.uniform(np.log(low), np.log(high + 1))))


def varied_task(
    generator: Generator,
    conditions: Conditions,
    limits: Sequence[MetricLimits],
    n_machines: int,
    *,
    faulty: bool,
) -> SimulatedTask:
    """Simulate a task of a site.

    Parameters
    ----------
    generator : numpy Generator
    conditions : Conditions
    limits : sequence of MetricLimits
        Limits of the metrics in the conditions, in the same order; drawn values are shares of them.
    n_machines : int
    faulty : bool
    """
    n, samples = n_machines, conditions.samples
    stages = np.arange(n) * min(conditions.stages, max(n // 2, 1)) // n
    busy, saving = _rhythm(generator, conditions, n)
    faults = [_fault(generator, conditions, n)] if faulty else []
    jitters = _jitters(generator, conditions, n)
    pace = _pace(generator, samples, faults)
    odd = generator.random(n) < conditions.odd
    values = {}
    for metric, limit in zip(conditions.metrics, limits, strict=True):
        level = _level(generator, conditions, metric, stages, busy * pace)
        level = np.where(saving, 0.1 * level, level)
        level += _own(generator, metric, n, samples, odd)
        for fault in (*faults, *jitters):
            _apply_fault(generator, metric, level, fault)
        level += _noise(generator, metric, n, samples)
        if metric.quantum:
            level = np.round(level / metric.quantum) * metric.quantum
        values[metric.name] = _in_units(limit, np.clip(level, 0.0, 1.0))
    _drop_samples(generator, conditions, values)
    machines = tuple(f"node-{i:04d}" for i in range(n))
    return SimulatedTask(machines, tuple(f"stage-{s}" for s in stages), values, tuple(faults))


def _rhythm(generator: Generator, conditions: Conditions, n: int) -> tuple[Float32Array, BoolArray]:
    """Return the activity of each machine by sample, and when the task saves a checkpoint."""
    samples, period = conditions.samples, conditions.period
    late = conditions.skew * generator.standard_normal((n, 1))
    clock = (np.cumsum(1.0 + 0.05 * generator.standard_normal(samples)) - late) / period
    phase, edge = (clock + generator.random()) % 1.0, 1.0 / period
    down = np.clip((conditions.duty - phase) / edge + 0.5, 0.0, 1.0)
    busy = down * np.clip(phase / edge + 0.5, 0.0, 1.0) if period > 1.0 else np.ones((n, samples))
    saving = np.zeros(samples, dtype=bool)
    if generator.random() < conditions.saving:
        begin = int(generator.integers(samples))
        saving[begin : begin + int(generator.uniform(0.02, 0.12) * samples)] = True
    return busy.astype(np.float32), saving


def _level(
    generator: Generator,
    conditions: Conditions,
    metric: MetricConditions,
    stages: Int64Array,
    busy: Float32Array,
) -> Float64Array:
    """Return the values of each machine without its own noise."""
    by_stage = 1.0 + conditions.stage_spread * _fixed(metric, int(stages.max()) + 1)
    gain = 1.0 + metric.gain * generator.standard_normal(len(stages))
    steps = generator.standard_normal(conditions.samples) / np.sqrt(conditions.samples)
    wander = np.exp(conditions.wander * np.cumsum(steps))
    task = metric.level * np.exp(0.1 * generator.standard_normal())
    course = metric.idle + (1.0 - metric.idle) * busy
    return np.asarray(task * course * wander * (gain * by_stage[stages])[:, None])


def _fixed(metric: MetricConditions, n: int) -> Float64Array:
    """Draw what is the same in all tasks of the site."""
    return np.random.default_rng(int(metric.level * 1e9)).standard_normal(n)


def _own(
    generator: Generator,
    metric: MetricConditions,
    n: int,
    samples: int,
    odd: BoolArray,
) -> Float64Array:
    """Return the permanent offset of each machine, and its movement."""
    lasting = metric.lasting * generator.standard_normal(n)
    lasting[odd & (generator.random(n) < 0.4)] += generator.choice([-1, 1]) * 0.3 * metric.level
    steps = generator.standard_normal((n, samples)) / np.sqrt(samples)
    return np.asarray(lasting[:, None] + metric.drift * np.cumsum(steps, axis=1))


def _noise(generator: Generator, metric: MetricConditions, n: int, samples: int) -> Float32Array:
    if np.isinf(metric.tail):
        noise = generator.standard_normal((n, samples))
    else:
        noise = generator.standard_t(metric.tail, (n, samples))
    values: Float32Array = noise.astype(np.float32)
    apply_inertia(values, metric.inertia)
    return np.float32(metric.noise) * values


def _fault(generator: Generator, conditions: Conditions, n: int) -> Fault:
    scale = conditions.samples / _PULL_SECONDS
    start = 0.0 if generator.random() < conditions.from_start else generator.uniform(120, 420)
    fault = draw_fault(generator, int(generator.integers(n)), float(start) * scale)
    end = conditions.samples if not start else fault.start + (fault.end - start) * scale
    strength = {
        family: float(generator.uniform(conditions.weakest, conditions.strongest))
        for family in fault.strength
    }
    return replace(fault, end=end, strength=strength, spread_after=fault.spread_after * scale)


def _jitters(generator: Generator, conditions: Conditions, n: int) -> list[Fault]:
    """Return deviations that look like faults and end soon."""
    jitters = []
    for _ in range(generator.poisson(conditions.jitters * n)):
        begin = float(generator.uniform(0.0, conditions.samples))
        fault = draw_fault(generator, int(generator.integers(n)), begin)
        long = _JITTER * conditions.continuity * np.exp(0.8 * generator.standard_normal())
        end = begin + min(float(long), 0.6 * conditions.continuity)
        jitters.append(replace(fault, kind="jitter", end=end, spread_after=np.inf))
    return jitters


def _pace(generator: Generator, samples: int, faults: Sequence[Fault]) -> Float32Array:
    """Return the remaining speed of the whole task, as a share."""
    pace = np.ones(samples, dtype=np.float32)
    for fault in faults:
        if fault.spread_after < np.inf:
            begin = int(fault.start + fault.spread_after)
            pace[begin : int(fault.end)] = generator.uniform(0.2, 0.8)
    return pace


def _apply_fault(
    generator: Generator, metric: MetricConditions, level: Float64Array, fault: Fault
) -> None:
    strength = fault.strength.get(metric.family)
    if strength is None:
        return
    row = level[fault.machine, int(fault.start) : int(fault.end)]
    if metric.family == "pfc" or generator.random() < _RAISING_FAULT_SHARE:
        row += strength * 0.6 * (1.0 - row)
    else:
        row *= 1.0 - strength


def _in_units(limit: MetricLimits, shares: Float64Array) -> Float32Array:
    """Return shares converted to the units of the metric."""
    if limit.log:
        low, high = np.log1p(limit.low), np.log1p(limit.high)
        values = np.expm1(low + shares * (high - low))
    else:
        values = limit.low + shares * (limit.high - limit.low)
    return np.asarray(values, dtype=np.float32)


def _drop_samples(
    generator: Generator, conditions: Conditions, values: dict[str, Float32Array]
) -> None:
    shape = next(iter(values.values())).shape
    lost = generator.random(shape) < conditions.missing
    begins = generator.random(shape) < conditions.bursts
    for machine, sample in zip(*np.nonzero(begins), strict=True):
        lost[machine, sample : sample + int(generator.integers(2, 12))] = True
    for samples in values.values():
        samples[lost] = np.nan
