"""When a backtest retrains, which test windows are finished, which length is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["best_length", "finished", "last_finished", "retraining_times"]

DAY = 86_400_000_000_000


def retraining_times(
    first_record: int,
    last_record: int,
    *,
    longest: int,
    horizon: int,
    every: int,
    start: int | None = None,
    end: int | None = None,
) -> list[int]:
    """Return the retraining times of a backtest (docs/formats.md, section 3), in nanoseconds.

    Parameters
    ----------
    first_record, last_record : int
    longest : int
        Longest training length.
    horizon, every : int
    start, end : int, optional
        Limits asked for: no earlier, and before.

    Returns
    -------
    list of int
        The first midnight UTC at least `longest` + `horizon` after the first record, or `start`;
        then every `every`, as long as records follow.
    """
    earliest = first_record + longest + horizon
    moment = -(-earliest // DAY) * DAY if start is None else start
    stop = last_record if end is None else min(end - 1, last_record)
    return list(range(moment, stop + 1, every))


def finished(window: int, moment: int, *, every: int, horizon: int) -> bool:
    """Tell whether the test window that starts at `window` has all its labels at `moment`."""
    return window + every + horizon <= moment


def last_finished(moment: int, *, every: int, horizon: int) -> int:
    """Return the start of the last test window that is finished at `moment`.

    Windows follow each other as retrainings do, whole steps before `moment`.

    Examples
    --------
    >>> last_finished(100, every=3, horizon=1)
    94
    """
    return moment - -(-(every + horizon) // every) * every


def best_length(lengths: Sequence[int], precision: Mapping[int, float | None] | None) -> int:
    """Return the training length that was best on the last finished window.

    Parameters
    ----------
    lengths : sequence of int
        Candidates.
    precision : mapping of int to float or None
        Precision@K of each that was scored; None where nothing was flagged. None if no window
        is finished.

    Returns
    -------
    int
        The longest if no window is finished; of equal ones the shorter.

    Examples
    --------
    >>> best_length([9, 12, 15], {9: 0.5, 12: 0.8, 15: 0.8})
    12
    >>> best_length([9, 12, 15], None)
    15
    """
    compared = [length for length in lengths if precision is not None and length in precision]
    if precision is None or not compared:
        return max(lengths)

    def merit(length: int) -> tuple[float, int]:
        value = precision[length]
        return (-1.0 if value is None else value, -length)

    return max(compared, key=merit)
