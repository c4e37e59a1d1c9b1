"""Kinds of jobs on the simulated fleet, and the load they put on GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY, draw_lognormal
from forewarn.features.array_types import BoolArray, Float32Array, Float64Array, Int32Array

__all__ = ["JOB_KINDS", "Demand", "GpuLoad", "JobKind", "compute_load", "draw_demand"]

_Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job; ranges are uniform.

    Attributes
    ----------
    name : str
    whole : bool
        The job takes whole machines; otherwise one GPU.
    weight : float
        Relative frequency among the jobs of the same type of allocation.
    machines : tuple of int
        Possible numbers of machines, with equal probability.
    hours : float
        Median duration.
    load : tuple of float
        Utilisation in percent, outside dips.
    dip, dip_share, period_hours : tuple of float
        Dips occur once per period, lower the load by a share, and last for a share of the period:
        checkpoints, evaluation, waiting for data.
    rhythm : tuple of float
        Share of the load that follows the time of day.
    intensity, bandwidth, memory : tuple of float
        At full load: share of the power limit, memory utilisation relative to GPU utilisation, and
        share of the memory in use.
    """

    name: str
    whole: bool
    weight: float
    machines: tuple[int, ...]
    hours: float
    load: _Range
    dip: _Range
    dip_share: _Range
    period_hours: _Range
    rhythm: _Range
    intensity: _Range
    bandwidth: _Range
    memory: _Range


# All are guesses. Durations are skewed: few long jobs take most of the time.
JOB_KINDS = (
    JobKind(
        "pretraining", True, 0.15, (2, 4, 8, 16), 40, (93, 100), (0.5, 1), (0.02, 0.08), (2, 8),
        (0, 0), (0.8, 1.08), (0.3, 0.6), (0.75, 0.97),
    ),
    JobKind(
        "finetuning", True, 0.35, (1, 1, 1, 2), 7, (80, 99), (0.3, 0.9), (0.05, 0.25), (1, 6),
        (0, 0), (0.55, 0.95), (0.2, 0.6), (0.5, 0.95),
    ),
    JobKind(
        "data-bound", True, 0.25, (1, 1, 2), 5, (45, 85), (0.3, 0.8), (0.2, 0.5), (0.5, 3),
        (0, 0), (0.4, 0.8), (0.1, 0.4), (0.3, 0.8),
    ),
    JobKind(
        "serving", True, 0.25, (1, 1, 2), 60, (35, 80), (0, 0), (0, 0), (24, 24),
        (0.4, 0.9), (0.35, 0.7), (0.3, 0.8), (0.8, 0.95),
    ),
    JobKind(
        "experiment", False, 0.6, (1,), 5, (60, 98), (0.2, 0.9), (0.05, 0.4), (0.5, 4),
        (0, 0), (0.4, 0.95), (0.1, 0.6), (0.2, 0.9),
    ),
    JobKind(
        "notebook", False, 0.4, (1,), 3, (5, 60), (0.7, 1), (0.4, 0.9), (0.5, 3),
        (0, 0.5), (0.25, 0.7), (0.05, 0.4), (0.05, 0.5),
    ),
)  # fmt: skip
_HOURS_SPREAD = 1.0
_MIN_JOB_RECORDS = 2

# Guesses. Application bugs cause Xids that carry no information about the board.
_CRASHES = 0.15  # share of jobs that end in an application error
_BUGGY = 0.03  # share of jobs with application errors throughout


@dataclass(frozen=True, slots=True)
class Demand:
    """The drawn properties of one job.

    Attributes
    ----------
    machines, records : int
        Size and duration.
    crashes, buggy : bool
        Ends in an application error; raises application errors throughout.
    shape : ndarray of shape (9,)
        Parameters for `compute_load`.
    """

    machines: int
    records: int
    crashes: bool
    buggy: bool
    shape: Float64Array


def draw_demand(rng: np.random.Generator, weights: Float64Array, whole: bool) -> Demand:
    """Draw a job.

    Parameters
    ----------
    rng : numpy.random.Generator
    weights : ndarray of shape (len(JOB_KINDS),)
        Factors on the weights of the kinds at this time.
    whole : bool
        Draw a job of whole machines, not of one GPU.
    """
    chances = np.array(
        [k.weight * w if k.whole == whole else 0.0 for k, w in zip(JOB_KINDS, weights, strict=True)]
    )
    uniform = rng.random(13)
    kind = JOB_KINDS[int(np.searchsorted(np.cumsum(chances) / chances.sum(), uniform[0]))]
    phase = (0.0, 1.0)
    ranges = np.array(
        [
            *(kind.load, kind.dip, kind.dip_share, kind.period_hours, kind.rhythm, phase),
            *(kind.intensity, kind.bandwidth, kind.memory),
        ]
    )
    hours = draw_lognormal(rng, kind.hours, _HOURS_SPREAD)
    return Demand(
        machines=kind.machines[int(uniform[1] * len(kind.machines))],
        records=max(int(hours * RECORDS_PER_DAY / 24), _MIN_JOB_RECORDS),
        crashes=bool(uniform[2] < _CRASHES),
        buggy=bool(uniform[3] < _BUGGY),
        shape=ranges[:, 0] + (ranges[:, 1] - ranges[:, 0]) * uniform[4:],
    )


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """Load of each GPU by its jobs on one day, before noise.

    Attributes
    ----------
    busy : ndarray of shape (n_positions, RECORDS_PER_DAY), bool
    utilization : ndarray of shape (n_positions, RECORDS_PER_DAY)
        Percent.
    intensity : ndarray of shape (n_positions, RECORDS_PER_DAY)
        Share of the power limit at full utilisation.
    bandwidth : ndarray of shape (n_positions, RECORDS_PER_DAY)
        Memory utilisation relative to GPU utilisation.
    memory : ndarray of shape (n_positions, RECORDS_PER_DAY)
        Share of the memory in use.
    """

    busy: BoolArray
    utilization: Float32Array
    intensity: Float32Array
    bandwidth: Float32Array
    memory: Float32Array


def compute_load(demands: list[Demand], job: Int32Array, day: int, up: BoolArray) -> GpuLoad:
    """Return the load of one day, given which job runs where.

    Parameters
    ----------
    demands : list of Demand
    job : ndarray of shape (n_positions, RECORDS_PER_DAY), int32
        Index into `demands` plus one; 0 where no job runs.
    day : int
    up : ndarray of shape (n_positions, RECORDS_PER_DAY), bool
        A GPU that is down has no load.
    """
    idle = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0], np.float64)
    shapes = np.array([idle, *(demand.shape for demand in demands)])
    record = np.arange(RECORDS_PER_DAY)
    level, dip, dip_share, period, rhythm, phase, *static = shapes.T[:, :, None]
    cycle = (24 * (day + record / RECORDS_PER_DAY) / period + phase) % 1
    hour = 0.5 - 0.5 * np.cos(2 * np.pi * (record / RECORDS_PER_DAY - 0.1))
    shape = level * np.where(cycle < dip_share, 1 - dip, 1) * (1 - rhythm + rhythm * hour)
    running = np.where(up, job, 0)
    intensity, bandwidth, memory = (values[:, 0].astype(np.float32)[running] for values in static)
    return GpuLoad(
        busy=running > 0,
        utilization=shape.astype(np.float32)[running, record],
        intensity=intensity,
        bandwidth=bandwidth,
        memory=memory,
    )
