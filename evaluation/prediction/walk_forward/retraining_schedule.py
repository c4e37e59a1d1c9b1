"""Schedule of a backtest: retraining times, finished test windows, choice of training span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import bootstrap_weights, percentile_interval
from forewarn.features.time_units import DAY, Nanoseconds

__all__ = [
    "PooledFlags",
    "best_length",
    "is_finished",
    "last_finished_window",
    "retraining_times",
    "steady_length",
    "times_with_instances",
]

Span = TypeVar("Span", bound=int)  # in any unit
_ENDS_PER_PART = 1 << 21  # instance ends per part


def retraining_times(
    first_record: int,
    last_record: int,
    *,
    longest: Nanoseconds,
    horizon: Nanoseconds,
    every: Nanoseconds,
    start: int | None = None,
    end: int | None = None,
) -> list[int]:
    """Return the retraining times of a backtest (docs/formats.md, section 3), in nanoseconds.

    Parameters
    ----------
    first_record, last_record : int
    longest : Nanoseconds
        Longest training span.
    horizon, every : Nanoseconds
    start, end : int, optional
        Requested limits: first retraining, and exclusive end.

    Returns
    -------
    list of int
        The first midnight UTC at least `longest` + `horizon` after the first record, or `start`;
        then every `every`, while records follow.
    """
    earliest = first_record + longest + horizon
    moment = -(-earliest // DAY) * DAY if start is None else start
    stop = last_record if end is None else min(end - 1, last_record)
    return list(range(moment, stop + 1, every))


def times_with_instances(
    times: Sequence[int],
    ends: npt.NDArray[np.int64],
    *,
    longest: Nanoseconds,
    every: Nanoseconds,
) -> list[int]:
    """Return the retraining times with instances to train on or to test.

    A single clock that is wrong by decades would cause thousands of other times.

    Parameters
    ----------
    times : sequence of int
        Retraining times.
    ends : ndarray of shape (n,)
        Ends of all instances, in any order.
    longest, every : Nanoseconds
        Longest training span, and length of a test window.

    Examples
    --------
    >>> times_with_instances([10, 13, 16, 19, 22], np.array([8, 20]), longest=4, every=3)
    [10, 19, 22]
    """
    moments = np.asarray(times, dtype=np.int64)
    # There are few distinct ends, and sorting all of them at once would double the memory.
    parts = np.array_split(ends, 1 + len(ends) // _ENDS_PER_PART)
    ends = np.unique(np.concatenate([np.unique(part) for part in parts]))
    first, stop = np.searchsorted(ends, (moments - longest, moments + every))
    return [int(moment) for moment in moments[first < stop]]


def is_finished(window: int, moment: int, *, every: Nanoseconds, horizon: Nanoseconds) -> bool:
    """Return whether all labels of the test window starting at `window` are known at `moment`."""
    return window + every + horizon <= moment


def last_finished_window(moment: int, *, every: Nanoseconds, horizon: Nanoseconds) -> int:
    """Return the start of the last test window that is finished at `moment`.

    Windows follow each other like retrainings, in whole steps before `moment`.

    Examples
    --------
    >>> last_finished_window(100, every=3, horizon=1)
    94
    """
    return moment - -(-(every + horizon) // every) * every


def best_length(spans: Sequence[Span], precision: Mapping[Span, float | None] | None) -> Span:
    """Return the training span that was best on the last finished window.

    Parameters
    ----------
    spans : sequence of Nanoseconds
        Candidates.
    precision : mapping of Nanoseconds to float or None
        Precision@K of each scored candidate; None if nothing was flagged. None instead of the
        mapping if no window is finished.

    Returns
    -------
    Nanoseconds
        The longest span if no window is finished. Ties go to the shorter span.

    Examples
    --------
    >>> best_length([9, 12, 15], {9: 0.5, 12: 0.8, 15: 0.8})
    12
    >>> best_length([9, 12, 15], None)
    15
    """
    compared = [span for span in spans if precision is not None and span in precision]
    if precision is None or not compared:
        return max(spans)

    def merit(span: Span) -> tuple[float, int]:
        value = precision[span]
        return (-1.0 if value is None else value, -span)

    return max(compared, key=merit)


@dataclass(frozen=True, slots=True)
class PooledFlags:
    """Instances that a training span would have flagged in the pooled windows.

    Attributes
    ----------
    hit : ndarray of shape (n,), bool
        Whether a failure followed.
    machine : ndarray of shape (n,), int
        Number of its machine.
    """

    hit: npt.NDArray[np.bool_]
    machine: npt.NDArray[np.int64]

    @property
    def precision(self) -> float:
        """Share of hits; -1, which is worse than any share, if nothing is flagged."""
        return float(self.hit.mean()) if len(self.hit) else -1.0

    def draws(self, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the precision for each bootstrap draw of machines; NaN without drawn flags."""
        weight = weights[:, self.machine]
        with np.errstate(invalid="ignore"):
            precision: npt.NDArray[np.float64]
            precision = (weight * self.hit).sum(axis=1) / weight.sum(axis=1)
        return precision


def steady_length(
    spans: Sequence[Span],
    in_use: Span,
    flagged: Mapping[Span, PooledFlags],
    *,
    n_machines: int,
    seed: int,
) -> Span:
    """Return the best training span if its gain exceeds its interval, otherwise the one in use.

    Parameters
    ----------
    spans : sequence of Nanoseconds
        Candidates.
    in_use : Nanoseconds
    flagged : mapping of Nanoseconds to PooledFlags
        Flags of each candidate that was scored in all windows.
    n_machines, seed : int
        For bootstrap draws of machines; all spans use the same draws.

    Examples
    --------
    >>> few = {n: PooledFlags(np.array([n > 9, True]), np.array([0, 1])) for n in (9, 12)}
    >>> steady_length([9, 12], 9, few, n_machines=2, seed=0)  # two flags are not enough evidence
    9
    """
    compared = [span for span in spans if span in flagged]
    if not compared:
        return in_use
    best = max(compared, key=lambda span: (flagged[span].precision, -span))
    if in_use not in flagged or (not len(flagged[in_use].hit) and len(flagged[best].hit)):
        return best
    weights = bootstrap_weights(n_machines, seed=seed)
    gain = percentile_interval(flagged[best].draws(weights) - flagged[in_use].draws(weights))
    return best if gain is not None and gain[0] > 0 else in_use
