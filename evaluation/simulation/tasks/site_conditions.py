"""Random conditions of a simulated site, so that no rule is tuned to a single simulator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Conditions", "MetricConditions", "draw_conditions"]

Generator = np.random.Generator

# Samples per pull and per continuity, by seconds between two samples.
_CADENCES = ((1, 900, 240), (1, 900, 240), (60, 240, 30), (300, 180, 24))
_SIZES = ((4, 4), (8, 8), (12, 12), (4, 40), (4, 120), (4, 120))
_FAMILIES = {
    "pfc_tx_packet_rate": "pfc",
    "cpu_usage": "cpu",
    "gpu_duty_cycle": "gpu",
    "power_draw": "gpu",
    "graphics_engine_activity": "gpu",
    "tensor_core_activity": "gpu",
    "nvlink_bandwidth": "link",
}
_QUANTA = (0.0, 0.0, 0.0001, 0.01, 0.02)  # share of the range: whole percents and coarser
_TAILS = (2.5, 4.0, np.inf)  # degrees of freedom of the noise


@dataclass(frozen=True, slots=True)
class MetricConditions:
    """Behaviour of a metric of healthy machines; all values are shares of its range.

    Attributes
    ----------
    name, family : str
    level : float
        Level while the task computes.
    idle : float
        Level between two steps, as a share of `level`.
    noise : float
        Standard deviation from sample to sample.
    tail : float
        Degrees of freedom of the noise.
    inertia : float
        Autocorrelation of the noise between adjacent samples.
    lasting, gain, drift : float
        Deviations of a machine's own level, of its response to the task, and of its movement
        within a pull.
    quantum : float
        Smallest visible step; 0 for none.
    """

    name: str
    family: str
    level: float
    idle: float
    noise: float
    tail: float
    inertia: float
    lasting: float
    gain: float
    drift: float
    quantum: float


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that all tasks of a site share.

    Attributes
    ----------
    seconds : int
        Between two samples.
    samples, continuity : int
        Samples of a pull, and samples for which a machine has to deviate.
    sizes : (int, int)
        Smallest and largest number of machines of a task.
    stages : int
        Largest number of pipeline stages.
    stage_spread : float
        Difference between stages, as a share.
    period, duty : float
        Samples per step, and the share of a step in which machines compute.
    skew : float
        Deviation of the machines' clocks, in samples.
    wander : float
        Deviation of the whole task's level within a pull, as a share.
    saving : float
        Probability of a checkpoint in a pull.
    missing, bursts : float
        Shares of samples that are lost, and that start longer gaps.
    odd : float
        Share of machines with permanent offsets on some metrics.
    jitters : float
        Jitters per machine and pull.
    weakest, strongest : float
        Smallest and largest strength of a fault, as a share of the possible loss.
    from_start : float
        Share of faults that exist before the first sample.
    metrics : tuple of MetricConditions
    """

    seconds: int
    samples: int
    continuity: int
    sizes: tuple[int, int]
    stages: int
    stage_spread: float
    period: float
    duty: float
    skew: float
    wander: float
    saving: float
    missing: float
    bursts: float
    odd: float
    jitters: float
    weakest: float
    strongest: float
    from_start: float
    metrics: tuple[MetricConditions, ...]


def draw_conditions(generator: Generator) -> Conditions:
    """Draw the conditions of a site.

    The ranges are those seen on real servers, sampled every second and every minute: noise of
    0.003 to 0.09 of the range with autocorrelation of -0.02 to 0.99 and tails of 1 to 20 times
    the median deviation; permanent offsets of 0.002 to 0.16, drifts of 0.001 to 0.1 within a
    pull, and values that stay constant for a pull.
    """
    seconds, samples, continuity = _CADENCES[generator.integers(len(_CADENCES))]
    smooth = seconds > 1  # a sample is the mean of many steps
    return Conditions(
        seconds=seconds,
        samples=samples,
        continuity=continuity,
        sizes=_SIZES[generator.integers(len(_SIZES))],
        stages=int(generator.choice([1, 1, 2, 4])),
        stage_spread=_log(generator, 0.01, 0.3),
        period=1.0 if smooth else _log(generator, 1.5, 60.0),
        duty=float(generator.uniform(0.5, 0.95)),
        skew=0.0 if smooth else _log(generator, 0.01, 3.0),
        wander=_log(generator, 0.01, 0.3),
        saving=float(generator.uniform(0.0, 0.8)),
        missing=_log(generator, 0.0005, 0.03),
        bursts=_log(generator, 0.0001, 0.002),
        odd=float(generator.uniform(0.0, 0.04)),
        jitters=_log(generator, 0.005, 0.1),
        weakest=float(generator.uniform(0.1, 0.3)),
        strongest=float(generator.uniform(0.6, 1.0)),
        from_start=float(generator.uniform(0.0, 0.2)),
        metrics=tuple(_draw_metric(generator, name, smooth) for name in _FAMILIES),
    )


def _draw_metric(generator: Generator, name: str, smooth: bool) -> MetricConditions:
    level = float(generator.uniform(0.15, 0.95))
    return MetricConditions(
        name=name,
        family=_FAMILIES[name],
        level=level,
        idle=1.0 if smooth else float(generator.uniform(0.1, 1.0)),
        noise=_log(generator, 0.003, 0.09) * (0.5 + level),
        tail=float(generator.choice(_TAILS)),
        inertia=float(generator.choice([0.0, 0.5, 0.9, 0.98])),
        lasting=_log(generator, 0.002, 0.08),
        gain=_log(generator, 0.002, 0.05),
        drift=_log(generator, 0.001, 0.05),
        quantum=float(generator.choice(_QUANTA)),
    )


def _log(generator: Generator, low: float, high: float) -> float:
    """Draw a log-uniform number."""
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))
