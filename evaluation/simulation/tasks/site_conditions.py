"""Conditions of a simulated site, drawn anew for each set: no rule fits only one simulator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Conditions", "MetricConditions", "draw_conditions"]

Generator = np.random.Generator

# Samples of a pull and of a continuity, by seconds between two samples.
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
_QUANTA = (0.0, 0.0, 0.0001, 0.01, 0.02)  # of the range: whole percents and coarser
_TAILS = (2.5, 4.0, np.inf)  # degrees of freedom of the noise


@dataclass(frozen=True, slots=True)
class MetricConditions:
    """How a metric of healthy machines behaves; everything as a share of its range.

    Attributes
    ----------
    name, family : str
    level : float
        While the task computes.
    idle : float
        Between two steps, as a share of the level.
    noise : float
        Deviation from sample to sample.
    tail : float
        Degrees of freedom of the noise.
    inertia : float
        Of one sample's noise that is still there in the next.
    lasting, gain, drift : float
        Deviations of a machine's own level, of how strongly it follows the task, and of what it
        moves by in a pull.
    quantum : float
        Smallest step that is shown; 0 for none.
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
    """What the tasks of a site have in common.

    Attributes
    ----------
    seconds : int
        Between two samples.
    samples, continuity : int
        Of a pull, and for which a machine has to stand out.
    sizes : (int, int)
        Fewest and most machines of a task.
    stages : int
        Most pipeline stages of a task.
    stage_spread : float
        By which stages differ, as a share.
    period, duty : float
        Samples of a step, and the share of it in which machines compute.
    skew : float
        Deviation of the machines' clocks, in samples.
    wander : float
        Deviation of the whole task's level in a pull, as a share.
    saving : float
        Chance of a checkpoint in a pull.
    missing, bursts : float
        Shares of samples: lost ones, and beginnings of longer gaps.
    odd : float
        Share of machines that differ for good on some metrics.
    jitters : float
        For each machine and pull.
    weakest, strongest : float
        Of what can be lost that a fault takes away.
    from_start : float
        Share of faults that have been there before the first sample.
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

    The ranges are those seen on real servers, a second and a minute apart: noise of 0.003 to 0.09
    of the range, correlated by -0.02 to 0.99, with deviations of 1 to 20 times what the median
    would have; lasting differences of 0.002 to 0.16, drifts of 0.001 to 0.1 in a pull, and single
    values that stay for a pull.
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
    """Draw evenly on a logarithmic scale."""
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))
