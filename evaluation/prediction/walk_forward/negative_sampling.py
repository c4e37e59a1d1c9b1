"""The test set of a window: all positives and some negatives, the same however rows come."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import BoolArray, Int8Array, UInt64Array

__all__ = ["negative_sampling_mask"]


def negative_sampling_mask(
    labels: Int8Array, hashes: UInt64Array, negatives_per_positive: float
) -> BoolArray:
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
    sampled: BoolArray = labels == 1
    n_negatives = round(negatives_per_positive * int(sampled.sum()))
    negatives = np.flatnonzero(labels == 0)
    chosen = negatives[np.argsort(hashes[negatives], kind="stable")[:n_negatives]]
    sampled[chosen] = True
    return sampled
