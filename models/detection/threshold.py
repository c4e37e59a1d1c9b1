"""The threshold that keeps false alarms to a wanted rate, by size of the task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Threshold", "fit_threshold"]

_OUTLIER = 5.0  # median deviations: a pull so far off holds a fault that nobody labelled
_LEAST_TAIL = 0.05
_SMALLEST = 0.1


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold that grows or falls with the logarithm of the number of machines.

    log threshold = `base` + `slope` log(machines) + `margin`, the last from the tail of what
    healthy pulls reached; beyond it chances fall by e with every `tail`.

    Attributes
    ----------
    base, slope, margin, tail : float
    """

    base: float
    slope: float
    margin: float
    tail: float

    def at(self, n_machines: int) -> float:
        """Return the threshold of a task of so many machines."""
        size = self.base + self.slope * float(np.log(max(n_machines, 1)))
        return float(np.exp(size + self.margin))

    def each(self, n_machines: int, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the threshold of every machine of a task.

        Parameters
        ----------
        n_machines : int
        weights : ndarray of shape (n_machines,)
            How many times as likely a false alarm on each may be, at most. A tail is known only
            roughly: it is taken for the thinnest where a machine needs less, so that a wrong list
            costs nothing, and as it was fitted where it needs more.
        """
        tails = np.where(weights > 1.0, min(self.tail, _LEAST_TAIL), self.tail)
        return np.asarray(self.at(n_machines) * weights**-tails)


def fit_threshold(
    highest: npt.ArrayLike,
    n_machines: npt.ArrayLike,
    days: npt.ArrayLike,
    *,
    per_day: float,
) -> Threshold:
    """Fit it to the highest threshold at which each healthy pull would still have named somebody.

    Windows next to each other are not independent, so a rate of windows says nothing; a pull is
    what one can count. The tail is exponential in the logarithm, with the mean excess of the upper
    fifth as its scale: the wanted rate is mostly rarer than what was seen, so that it has to be
    extended.

    Parameters
    ----------
    highest : array_like of shape (n_pulls,)
        By pull.
    n_machines : array_like of shape (n_pulls,)
    days : array_like of shape (n_pulls,)
        Length of each pull.
    per_day : float
        False alarms per task and day.

    Raises
    ------
    ValueError
        If there is no pull.
    """
    if not np.size(highest):
        raise ValueError("no pull to fit a threshold to.")
    logs = np.log(np.maximum(np.asarray(highest, dtype=np.float64), _SMALLEST))
    sizes = np.log(np.asarray(n_machines, dtype=np.float64))
    keep = np.ones(len(logs), dtype=bool)
    for _ in range(3):
        slope, base = _line(sizes[keep], logs[keep])
        rest = logs - base - slope * sizes
        middle = float(np.median(rest[keep]))
        spread = float(np.median(np.abs(rest[keep] - middle))) + 0.02
        keep = rest <= middle + _OUTLIER * 1.4826 * spread
    base += middle
    excess = np.sort(rest[keep] - middle)
    cut = float(np.quantile(excess, 0.8))
    beyond = excess[excess >= cut] - cut
    tail = max(float(beyond.mean()) if len(beyond) else 0.0, _LEAST_TAIL)
    # Pulls per day of which a fifth passes the cut; what is wanted is rarer by this factor.
    seen = 0.2 * keep.sum() / float(np.asarray(days)[keep].sum())
    margin = cut + tail * max(float(np.log(seen / per_day)), 0.0)
    expected = per_day * float(np.asarray(days)[keep].mean())
    reached = float(np.quantile(excess, max(0.0, 1.0 - expected)))
    return Threshold(base, slope, max(margin, reached), tail)


def _line(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and height of the line of least absolute error, roughly: three weighings."""
    if len(x) < 8 or np.ptp(x) < 0.5:
        return 0.0, float(np.median(y))
    weights = np.ones(len(x))
    for _ in range(8):
        slope, height = np.polyfit(x, y, 1, w=np.sqrt(weights))
        weights = 1.0 / np.maximum(np.abs(y - slope * x - height), 0.05)
    return float(slope), float(height)
