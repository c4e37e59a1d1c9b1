"""The threshold that keeps false alarms at the requested rate, by size of the task."""

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

MIN_THRESHOLD = 1.0  # a score of 1 is the smallest difference worth acting on
_MIN_TAIL = 0.05
_MIN_SCORE = 0.2  # scores below it are treated as equal
# Prior over sites: the upward spread of log scores of pulls. A site's own metrics update it; the
# prior counts as four metrics that are known exactly. Metrics of one site differ by a quarter to a
# third of the spread, so the site's value counts as much as 16 pulls in the tail of one metric.
PRIOR_SPREAD, _SITE_METRICS, _METRIC_PULLS = 0.25, 4.0, 16.0
_PRIOR_PULLS = 8.0  # pulls that the prior's degrees of freedom are worth
TAIL_QUANTILE = 0.8  # quantile above which pulls belong to the tail
_NORMAL_QUANTILE, _NORMAL_EXCESS = (
    0.8416,
    0.5584,
)  # of a standard normal: quantile, mean excess
_MAX_ALARM_SHARE = 0.2  # share of the pulls; a larger share is not a tail
_MARGIN_ABOVE_MAX = 1.5  # divided by the root of the pulls: margin above the largest one
_SLOPE_PRIOR_PULLS = 20.0  # pulls at which half of the fitted slope is used


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold that changes with the logarithm of the number of machines.

    log threshold = `base` + `slope` log(machines) + `margin`. The margin comes from the tail of
    the scores of healthy pulls: the probability of exceeding it falls by a factor e per `tail`.

    Attributes
    ----------
    base, slope, margin, tail : float
    machines : mapping of str to float
        Offset of the log threshold of each machine that was in enough healthy tasks. Other
        machines have the threshold of the task.
    """

    base: float
    slope: float
    margin: float
    tail: float
    machines: Mapping[str, float] = field(default_factory=dict)

    def at(self, n_machines: int) -> float:
        """Return the threshold of a task with `n_machines` machines."""
        return max(float(np.exp(self._log_at(n_machines))), MIN_THRESHOLD)

    def _log_at(self, n_machines: int) -> float:
        size = self.base + self.slope * float(np.log(max(n_machines, 1)))
        return size + self.margin

    def for_machines(self, machines: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the threshold of every machine of a task, without a prior."""
        if not self.machines:
            return np.full(len(machines), self.at(len(machines)))
        above = np.array([self.machines.get(name, 0.0) for name in machines])
        return np.maximum(np.exp(self._log_at(len(machines)) + above), MIN_THRESHOLD)

    def with_prior(
        self, machines: Sequence[str], weights: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Return the threshold of every machine of a task, given a prior.

        Parameters
        ----------
        machines : sequence of str
        weights : ndarray of shape (n_machines,)
            How many times as likely a false alarm on each machine may be, at most. The tail is
            known only roughly. Where the threshold falls, the thinnest plausible tail is used, so
            that a wrong list does no harm; where it rises, the fitted tail is used.
        """
        tails = np.where(weights > 1.0, min(self.tail, _MIN_TAIL), self.tail)
        return np.asarray(self.for_machines(machines) * weights**-tails)

    def with_machine_levels(self, levelled: Threshold, levels: Mapping[str, float]) -> Threshold:
        """Return a copy with a threshold for each machine.

        Parameters
        ----------
        levelled : Threshold
            Fitted with the same slope to scores from which the machine levels were subtracted.
        levels : mapping of str to float
            How far the log scores of each machine lie above those of the other machines.

        Examples
        --------
        >>> usual = Threshold(base=1.0, slope=0.0, margin=2.0, tail=0.1)
        >>> quiet = usual.with_machine_levels(Threshold(0.5, 0.0, 1.5, 0.1), {"a": -0.25})
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
    """Fit a threshold to the scores that healthy pulls reached.

    Adjacent windows are not independent, so false alarms are counted per pull, not per window.
    The requested rate is usually rarer than anything observed, so the tail is extrapolated: the
    log scores above the upper fifth are modelled as normal, with a deviation between that of
    these pulls and that of other metrics. The prediction for the next pull is then a Student t
    distribution, which is wide for few pulls. The threshold always exceeds the largest score of
    these pulls, by more if there are few.

    Parameters
    ----------
    highest : array_like of shape (n_pulls,)
        Highest threshold that a machine of each pull would still have reached.
    n_machines : array_like of shape (n_pulls,)
    days : array_like of shape (n_pulls,)
        Length of each pull.
    per_day : float
        False alarms per task and day.
    spread : float
        Deviation known from other metrics (`pooled_spread`).
    slope : float, optional
        Slope over the logarithm of the number of machines, if known; otherwise it is fitted.

    Raises
    ------
    ValueError
        If there is no pull.
    """
    from scipy.special import stdtrit  # a detector that only runs has no SciPy

    if not np.size(highest):
        raise ValueError("`highest` is empty: at least one pull is needed to fit a threshold.")
    slope, base, rest = _remove_size_trend(highest, n_machines, slope)
    n, excess = len(rest), rest[rest >= base] - base
    spread = (_METRIC_PULLS * spread + excess.sum() / _NORMAL_EXCESS) / (
        _METRIC_PULLS + len(excess)
    )
    chance = min(per_day * float(np.asarray(days, dtype=np.float64).mean()), _MAX_ALARM_SHARE)

    def beyond(chance: float) -> float:
        quantile = -float(stdtrit(_PRIOR_PULLS + n, chance)) * np.sqrt(1.0 + 1.0 / n)
        return float(spread * max(quantile - _NORMAL_QUANTILE, 0.0))

    # If the requested rate implies alarms in some of these pulls, allow that many.
    allowed = int(chance * n)
    reached = float(np.sort(rest)[-1 - allowed]) - base
    if not allowed:
        reached += _MARGIN_ABOVE_MAX / np.sqrt(n)
    tail = max(beyond(chance / np.e) - beyond(chance), _MIN_TAIL)
    return Threshold(base, slope, max(beyond(chance), reached), tail)


def pooled_spread(metrics: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> float:
    """Return the upward spread of the log scores of pulls at a site.

    The tail of a few dozen pulls holds few of them, and a metric without any outlier by chance
    would get too low a threshold. The metrics of one site have similar outliers; sites differ.

    Parameters
    ----------
    metrics : iterable of (array_like, array_like)
        For each metric, the highest threshold that each healthy pull would still have reached,
        and its number of machines.

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
        n = len(excess) - 1  # the pull that defines the base carries no information
        if n > 0 and base > np.log(_MIN_SCORE):
            known = n / (n + _METRIC_PULLS)
            total += known * excess.sum() / _NORMAL_EXCESS / n
            weight += known
    return float(total / weight)


def log_scores(reached: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return log scores; scores too low to matter are set to the same value."""
    return np.log(np.maximum(np.asarray(reached, dtype=np.float64), _MIN_SCORE))


def _remove_size_trend(
    highest: npt.ArrayLike, n_machines: npt.ArrayLike, slope: float | None = None
) -> tuple[float, float, npt.NDArray[np.float64]]:
    """Return the slope over sizes and, with the slope removed, the tail base and the log scores."""
    logs = log_scores(highest)
    sizes = np.log(np.asarray(n_machines, dtype=np.float64))
    slope = _slope(sizes, logs) if slope is None else slope
    rest = logs - slope * sizes
    return slope, float(np.quantile(rest, TAIL_QUANTILE)), rest


def _slope(sizes: npt.NDArray[np.float64], logs: npt.NDArray[np.float64]) -> float:
    """Return the slope of a least-absolute-error line, shrunk where there are few pulls."""
    if len(sizes) < 8 or np.ptp(sizes) < 0.5:
        return 0.0
    weights = np.ones(len(sizes))
    for _ in range(8):
        slope, height = np.polyfit(sizes, logs, 1, w=np.sqrt(weights))
        weights = 1.0 / np.maximum(np.abs(logs - slope * sizes - height), 0.05)
    return float(slope) * len(sizes) / (len(sizes) + _SLOPE_PRIOR_PULLS)
