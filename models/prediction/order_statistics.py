"""Values by their rank among all values of several parts, of which one is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["order_statistics"]

_DIGIT = 16  # bits
_N_DIGITS = 1 << _DIGIT

Floats = npt.NDArray[np.float64]


def order_statistics(
    parts: Iterable[Floats], ranks: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return the values that would stand at `ranks` if all parts were sorted together.

    The bits of a float that is not negative are in the order of the floats: four readings find
    four digits of each value, each by counting.

    Parameters
    ----------
    parts : iterable of ndarray
        Iterated four times. No value is negative or NaN.
    ranks : ndarray of shape (n_ranks,)
        From 0, below the number of all values.

    Examples
    --------
    >>> order_statistics([np.array([0.5, 0.1]), np.array([0.3])], np.array([0, 2])).tolist()
    [0.1, 0.5]
    """
    left = np.array(ranks, dtype=np.int64)
    known = np.zeros(len(left), dtype=np.uint64)
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        heads, which = np.unique(known, return_inverse=True)
        up_to = _counts(parts, heads, np.uint64(shift)).cumsum(axis=1)
        for i, row in enumerate(which.tolist()):
            digit = int(np.searchsorted(up_to[row], left[i], side="right"))
            left[i] -= up_to[row, digit - 1] if digit else 0
            known[i] = (known[i] << np.uint64(_DIGIT)) | np.uint64(digit)
    return known.view(np.float64)


def _counts(
    parts: Iterable[Floats], heads: npt.NDArray[np.uint64], shift: np.uint64
) -> npt.NDArray[np.int64]:
    """Count, for each beginning of the bits of a value, the digits that follow it."""
    counts = np.zeros((len(heads), _N_DIGITS), dtype=np.int64)
    for values in parts:
        bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        digits = bits >> shift
        before = digits >> np.uint64(_DIGIT)
        for row, head in enumerate(heads):
            following = digits[before == head] & np.uint64(_N_DIGITS - 1)
            counts[row] += np.bincount(following.astype(np.int64), minlength=_N_DIGITS)
    return counts
