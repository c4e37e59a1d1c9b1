"""The test set of a window: all positives and some negatives, the same however rows come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["sampled_mask"]

Flags = npt.NDArray[np.bool_]


def sampled_mask(
    labels: npt.NDArray[np.int8], hashes: npt.NDArray[np.uint64], negatives_per_positive: float
) -> Flags:
    """Mark the test set of one window: all positives and so many negatives for each.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        1, 0, or -1 for unknown, which is never taken.
    hashes : ndarray of shape (n,)
        Of seed, serial and end (`sampling_hash`): the negatives with the smallest are taken.
    negatives_per_positive : float

    Examples
    --------
    >>> labels = np.array([1, 0, 0, 0], np.int8)
    >>> sampled_mask(labels, np.array([9, 3, 1, 2], np.uint64), 2.0).tolist()
    [True, False, True, True]
    """
    sampled: Flags = labels == 1
    n_negatives = round(negatives_per_positive * int(sampled.sum()))
    negatives = np.flatnonzero(labels == 0)
    chosen = negatives[np.argsort(hashes[negatives], kind="stable")[:n_negatives]]
    sampled[chosen] = True
    return sampled
