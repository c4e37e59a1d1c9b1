"""The split in time on which early stopping looks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["later_part"]


def later_part(
    ends: npt.NDArray[np.int64], share: float, purge: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Split instances into an early part and the last `share` of the time span.

    A label looks one horizon ahead of its instance. An early instance that ends less than
    `purge` before the first later one would know about failures of the later part, so it is in
    neither part. Either part can be empty.

    Parameters
    ----------
    ends : ndarray of shape (n,)
        End of each window, nanoseconds.
    share : float
        Share of the time span, not of the instances; between 0 and 1, both excluded.
    purge : int
        Nanoseconds between the parts, at least 0; one horizon.

    Returns
    -------
    early, late : bool ndarrays of shape (n,)
        An instance is early if it ends at least `purge` before the later part begins.

    >>> early, late = later_part(np.array([0, 50, 70, 90, 100]), share=0.2, purge=20)
    >>> early.tolist(), late.tolist()
    ([True, True, False, False, False], [False, False, False, True, True])
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"`share` must lie between 0 and 1, got {share}.")
    if purge < 0:
        raise ValueError(f"`purge` must be at least 0 nanoseconds, got {purge}.")
    if len(ends) == 0:
        return np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_)
    first, last = int(ends.min()), int(ends.max())
    begin = last - int((last - first) * share)
    # Without a purge an instance that ends where the later part begins belongs to that part only.
    return ends <= begin - max(purge, 1), ends >= begin
