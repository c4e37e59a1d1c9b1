"""Figures with intervals: the machines of a fleet are drawn again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import Interval, interval, machine_draws

__all__ = ["Figure", "Resampling", "figure", "ratio"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its interval; where there is no number, `why` says why."""

    value: float | None
    interval: Interval | None = None
    why: str = ""


class Resampling:
    """How often each machine is drawn; the first row is the fleet as it is.

    Parameters
    ----------
    machines : iterable of str
        Those that anything is known of.
    size : int
        Of the fleet; the other machines are drawn, too, and add nothing.
    seed : int
    """

    def __init__(self, machines: Iterable[str], *, size: int, seed: int) -> None:
        names = sorted(set(machines))
        self._numbers = {name: number for number, name in enumerate(names)}
        size = max(len(names), size, 1)
        self._draws = np.vstack([np.ones(size), machine_draws(size, seed=seed)])

    def weights(self, machines: Sequence[str]) -> Floats:
        """Return how often each of some machines is drawn, shape (1 + draws, machines)."""
        return self._draws[:, [self._numbers[name] for name in machines]]


def figure(values: Floats, why: str = "") -> Figure:
    """Return the first value with the interval of the others; no number where it is not finite."""
    if not np.isfinite(values[0]):
        return Figure(None, None, why)
    return Figure(float(values[0]), interval(values[1:]))


def ratio(above: Floats, below: Floats) -> Floats:
    """Return above / below; NaN where there is nothing below."""
    safe = np.where(below > 0, below, 1.0)
    return np.where(below > 0, above / safe, np.nan)
