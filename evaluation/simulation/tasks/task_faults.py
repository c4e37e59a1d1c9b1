"""Faults of a machine in a running task: frequency, affected metrics and strength."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["TASK_FAULTS", "Fault", "FaultKind", "draw_fault"]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault.

    Attributes
    ----------
    name : str
    share : float
        Percent of all faults, from Minder's table of seven months.
    shows : mapping of str to float
        Probability of showing in each family of metrics. The paper describes in words which family
        shows which fault; the numbers are guesses.
    spreads : float
        Probability that the rest of the task slows down too.
    """

    name: str
    share: float
    shows: dict[str, float]
    spreads: float


TASK_FAULTS = (
    FaultKind("ecc error", 38.9, {"cpu": 0.75, "gpu": 0.75, "link": 0.3, "net": 0.15}, 0.5),
    FaultKind("pcie downgrading", 6.6, {"pfc": 0.75, "net": 0.6, "gpu": 0.1}, 0.7),
    FaultKind("nic dropout", 5.7, {"pfc": 0.5, "net": 0.8, "cpu": 0.7, "gpu": 0.6}, 0.7),
    FaultKind("gpu card drop", 2.0, {"cpu": 0.75, "gpu": 0.9, "link": 0.5}, 0.6),
    FaultKind("nvlink error", 1.7, {"link": 0.8, "gpu": 0.7, "cpu": 0.6}, 0.6),
    FaultKind("aoc error", 0.9, {"pfc": 0.45, "net": 0.5}, 0.5),
    FaultKind("cuda execution error", 14.6, {"cpu": 0.75, "gpu": 0.8, "link": 0.2}, 0.5),
    FaultKind("gpu execution error", 7.7, {"cpu": 0.45, "gpu": 0.6}, 0.5),
    FaultKind("hdfs error", 5.7, {"cpu": 0.75, "gpu": 0.4, "net": 0.4}, 0.4),
    FaultKind("machine unreachable", 6.0, {"cpu": 0.6, "gpu": 0.6, "pfc": 0.5, "net": 0.8}, 0.6),
    FaultKind("others", 10.2, {"cpu": 0.6, "gpu": 0.6, "pfc": 0.2, "net": 0.2}, 0.4),
)
_MEDIAN_SECONDS, _SPREAD_OF_SECONDS = 1200.0, 0.8  # most abnormal patterns last over 5 minutes


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a simulated task.

    Attributes
    ----------
    kind : str
    machine : int
    start, end : float
        Seconds from the start of the task's data.
    strength : mapping of str to float
        Loss by family of metrics, from 0 to 1 of the possible loss; may be empty.
    spread_after : float
        Seconds until the whole task slows down; infinite if it does not.
    """

    kind: str
    machine: int
    start: float
    end: float
    strength: dict[str, float]
    spread_after: float


def draw_fault(generator: np.random.Generator, machine: int, start: float) -> Fault:
    """Draw the kind and duration of a fault, and where and how strongly it shows."""
    shares = np.array([kind.share for kind in TASK_FAULTS])
    kind = TASK_FAULTS[generator.choice(len(TASK_FAULTS), p=shares / shares.sum())]
    seconds = _MEDIAN_SECONDS * np.exp(_SPREAD_OF_SECONDS * generator.standard_normal())
    strength = {
        family: float(generator.uniform(0.3, 1.0))
        for family, chance in kind.shows.items()
        if generator.random() < chance
    }
    spreads = generator.random() < kind.spreads
    after = float(generator.uniform(10.0, 180.0)) if spreads else np.inf
    return Fault(kind.name, machine, start, start + float(seconds), strength, after)
