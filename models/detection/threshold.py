"""The threshold that keeps false alarms to a wanted rate, by size of the task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

__all__ = [
    "MIN_THRESHOLD",
    "PRIOR_SPREAD",
    "TAIL_QUANTILE",
    "Threshold",
    "fit_threshold",
    "log_scores",
    "pooled_spread",
]

MIN_THRESHOLD = 1.0  # a score of 1 is the floor of a metric: less than that is no effect to act on
_MIN_TAIL = 0.05
_MIN_SCORE = 0.2  # scores below it are alike: nothing happens there
# What is known before the first pull, over sites: the logarithms of what pulls reach scatter upward
# by so much. A site shows with its metrics how much it is there, and is believed as far as this is
# worth four metrics that are known for sure. Its metrics differ by a quarter to a third of it: what
# is known of the site is worth what 16 pulls of the upper fifth show of one of them.
PRIOR_SPREAD, _SITE_METRICS, _METRIC_PULLS = 0.25, 4.0, 16.0
_PRIOR_PULLS = 8.0  # that make the spread as sure as it is before the first pull
TAIL_QUANTILE = 0.8  # quantile from which on a pull tells of the tail
_NORMAL_QUANTILE, _NORMAL_EXCESS = (
    0.8416,
    0.5584,
)  # of a normal variable: that quantile, mean excess
_MAX_ALARM_SHARE = 0.2  # of the pulls: a larger share is no tail
_MARGIN_ABOVE_MAX = 1.5  # over the root of the pulls: how far above all of them a next one may be
_SLOPE_PRIOR_PULLS = 20.0  # that make half of a slope over sizes believed


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold that grows or falls with the logarithm of the number of machines.

    log threshold = `base` + `slope` log(machines) + `margin`, the last from the tail of what
    healthy pulls reached; beyond it chances fall by e with every `tail`.

    Attributes
    ----------
    base, slope, margin, tail : float
    machines : mapping of str to float
        By how much the logarithm is higher, or lower if negative, for a machine that healthy tasks
        have shown well. All others have the threshold of the task.
    """

    base: float
    slope: float
    margin: float
    tail: float
    machines: Mapping[str, float] = field(default_factory=dict)

    def at(self, n_machines: int) -> float:
        """Return the threshold of a task of so many machines."""
        return max(float(np.exp(self._log_at(n_machines))), MIN_THRESHOLD)

    def _log_at(self, n_machines: int) -> float:
        size = self.base + self.slope * float(np.log(max(n_machines, 1)))
        return size + self.margin

    def of(self, machines: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the threshold of every machine of a task, whoever is likely to fail."""
        if not self.machines:
            return np.full(len(machines), self.at(len(machines)))
        above = np.array([self.machines.get(name, 0.0) for name in machines])
        return np.maximum(np.exp(self._log_at(len(machines)) + above), MIN_THRESHOLD)

    def each(
        self, machines: Sequence[str], weights: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Return the threshold of every machine of a task.

        Parameters
        ----------
        machines : sequence of str
        weights : ndarray of shape (n_machines,)
            How many times as likely a false alarm on each may be, at most. A tail is known only
            roughly: it is taken for the thinnest where a machine needs less, so that a wrong list
            costs nothing, and as it was fitted where it needs more.
        """
        tails = np.where(weights > 1.0, min(self.tail, _MIN_TAIL), self.tail)
        return np.asarray(self.of(machines) * weights**-tails)

    def with_machine_levels(self, levelled: Threshold, levels: Mapping[str, float]) -> Threshold:
        """Give machines thresholds of their own.

        Parameters
        ----------
        levelled : Threshold
            Fitted with the same slope to what machines reach without their levels.
        levels : mapping of str to float
            By which the logarithm of what each reaches lies above that of the others.

        Examples
        --------
        >>> usual = Threshold(base=1.0, slope=0.0, margin=2.0, tail=0.1)
        >>> quiet = usual.by_machine(Threshold(0.5, 0.0, 1.5, 0.1), {"a": -0.25})
        >>> quiet.machines
        {'a': -1.25}
        """
        shift = levelled.base + levelled.margin - self.base - self.margin
        return replace(self, machines={name: shift + level for name, level in levels.items()})


def fit_threshold(
    highest: npt.ArrayLike,
    n_machines: npt.ArrayLike,
    days: npt.ArrayLike,
    *,
    per_day: float,
    spread: float = PRIOR_SPREAD,
    slope: float | None = None,
) -> Threshold:
    """Fit it to the highest threshold at which each healthy pull would still have named somebody.

    Windows next to each other are not independent, so a rate of windows says nothing; a pull is
    what one can count. A wanted rate is mostly rarer than what was seen, so that the tail has to
    be extended: logarithms of what pulls reach are taken for normal above their upper fifth, with
    a deviation between what these pulls show and what is known from other metrics. What a next pull
    does is then a Student t: with few pulls it is wide. A threshold is above what any of these
    pulls reached, the more so the fewer they are.

    Parameters
    ----------
    highest : array_like of shape (n_pulls,)
        By pull.
    n_machines : array_like of shape (n_pulls,)
    days : array_like of shape (n_pulls,)
        Length of each pull.
    per_day : float
        False alarms per task and day.
    spread : float
        The deviation that is known from other metrics (`pooled_spread`).
    slope : float, optional
        Over the logarithm of the number of machines, where it is known; else it is fitted.

    Raises
    ------
    ValueError
        If there is no pull.
    """
    from scipy.special import stdtrit  # where a detector only runs, there is no SciPy

    if not np.size(highest):
        raise ValueError("no pull to fit a threshold to.")
    slope, base, rest = _remove_size_trend(highest, n_machines, slope)
    n, excess = len(rest), rest[rest >= base] - base
    spread = (_METRIC_PULLS * spread + excess.sum() / _NORMAL_EXCESS) / (
        _METRIC_PULLS + len(excess)
    )
    chance = min(per_day * float(np.asarray(days, dtype=np.float64).mean()), _MAX_ALARM_SHARE)

    def beyond(chance: float) -> float:
        quantile = -float(stdtrit(_PRIOR_PULLS + n, chance)) * np.sqrt(1.0 + 1.0 / n)
        return float(spread * max(quantile - _NORMAL_QUANTILE, 0.0))

    # Where alarms are wanted so often that some of these pulls should have one, they may.
    allowed = int(chance * n)
    reached = float(np.sort(rest)[-1 - allowed]) - base
    if not allowed:
        reached += _MARGIN_ABOVE_MAX / np.sqrt(n)
    tail = max(beyond(chance / np.e) - beyond(chance), _MIN_TAIL)
    return Threshold(base, slope, max(beyond(chance), reached), tail)


def pooled_spread(metrics: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> float:
    """Return by how much the logarithms of what pulls reach scatter upward at a site.

    The largest of a few dozen pulls are few, and a metric in which nothing odd happened to happen
    would get too low a threshold. The metrics of a site are alike in how odd their healthy
    machines can be, and sites are not.

    Parameters
    ----------
    metrics : iterable of (array_like, array_like)
        For each metric the highest threshold at which each healthy pull would still have named
        somebody, and its machines.

    Examples
    --------
    >>> pooled_spread([])
    0.25
    """
    total, weight = _SITE_METRICS * PRIOR_SPREAD, _SITE_METRICS
    for highest, n_machines in metrics:
        if not np.size(highest):
            continue
        _, base, rest = _remove_size_trend(highest, n_machines)
        excess = rest[rest >= base] - base
        n = len(excess) - 1  # what the base was taken from tells nothing
        if n > 0 and base > np.log(_MIN_SCORE):
            known = n / (n + _METRIC_PULLS)
            total += known * excess.sum() / _NORMAL_EXCESS / n
            weight += known
    return float(total / weight)


def log_scores(reached: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the logarithms of what is reached, where something happens."""
    return np.log(np.maximum(np.asarray(reached, dtype=np.float64), _MIN_SCORE))


def _remove_size_trend(
    highest: npt.ArrayLike, n_machines: npt.ArrayLike, slope: float | None = None
) -> tuple[float, float, npt.NDArray[np.float64]]:
    """Return the slope over sizes, and without it the base of the tail and the logarithms."""
    logs = log_scores(highest)
    sizes = np.log(np.asarray(n_machines, dtype=np.float64))
    slope = _slope(sizes, logs) if slope is None else slope
    rest = logs - slope * sizes
    return slope, float(np.quantile(rest, TAIL_QUANTILE)), rest


def _slope(sizes: npt.NDArray[np.float64], logs: npt.NDArray[np.float64]) -> float:
    """Return the slope of the line of least absolute error, less where few pulls show it."""
    if len(sizes) < 8 or np.ptp(sizes) < 0.5:
        return 0.0
    weights = np.ones(len(sizes))
    for _ in range(8):
        slope, height = np.polyfit(sizes, logs, 1, w=np.sqrt(weights))
        weights = 1.0 / np.maximum(np.abs(logs - slope * sizes - height), 0.05)
    return float(slope) * len(sizes) / (len(sizes) + _SLOPE_PRIOR_PULLS)
