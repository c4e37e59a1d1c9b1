"""Bootstrap intervals over machines, because instances of one machine are not independent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = [
    "INTERVAL_LEVEL",
    "Interval",
    "bootstrap_weights",
    "mean_interval",
    "percentile_interval",
]

Interval = tuple[float, float]
N_DRAWS = 200
_MEAN_DRAWS = 2_000  # means are cheap
INTERVAL_LEVEL = 0.95


def bootstrap_weights(
    n_machines: int, *, seed: int, n_draws: int = N_DRAWS
) -> npt.NDArray[np.float64]:
    """Return how often each machine is drawn, shape (n_draws, n_machines); rows sum to n_machines.

    One failure makes about fourteen positive instances, and failures cluster on bad machines, so
    the machine is the independent unit.
    """
    generator = np.random.default_rng(seed)
    chances = np.full(n_machines, 1.0 / n_machines)
    return generator.multinomial(n_machines, chances, size=n_draws).astype(np.float64)


def percentile_interval(draws: npt.NDArray[np.float64] | Sequence[float]) -> Interval | None:
    """Return the central 95 % of the draws; None if fewer than half of them have a value.

    Examples
    --------
    >>> percentile_interval(np.arange(101.0))
    (2.5, 97.5)
    """
    values = np.asarray(draws, dtype=np.float64)
    finite = values[np.isfinite(values)]
    if 2 * len(finite) < max(1, len(values)):
        return None
    outside = round((1.0 - INTERVAL_LEVEL) / 2.0, 6)
    low, high = np.quantile(finite, [outside, 1.0 - outside])
    return float(low), float(high)


def mean_interval(values: npt.NDArray[np.float64]) -> Interval:
    """Return the central 95 % of the means of resampled values, which are independent.

    Examples
    --------
    >>> mean_interval(np.array([3.0, 3.0]))
    (3.0, 3.0)
    """
    generator = np.random.default_rng(0)
    means = generator.choice(values, (_MEAN_DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
