"""Test set of a window: all positives and sampled negatives, independent of row order."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import BoolArray, Int8Array, UInt64Array

__all__ = ["negative_sampling_mask"]


def negative_sampling_mask(
    labels: Int8Array, hashes: UInt64Array, negatives_per_positive: float
) -> BoolArray:
    """Mark the test set of a window: all positives, and a number of negatives for each.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        1, 0, or -1 for unknown, which is never sampled.
    hashes : ndarray of shape (n,)
        Hashes of seed, serial and end (`sampling_hash`); the smallest ones are sampled.
    negatives_per_positive : float

    Examples
    --------
    >>> labels = np.array([1, 0, 0, 0], np.int8)
    >>> negative_sampling_mask(labels, np.array([9, 3, 1, 2], np.uint64), 2.0).tolist()
    [True, False, True, True]
    """
    sampled: BoolArray = labels == 1
    n_negatives = round(negatives_per_positive * int(sampled.sum()))
    negatives = np.flatnonzero(labels == 0)
    chosen = negatives[np.argsort(hashes[negatives], kind="stable")[:n_negatives]]
    sampled[chosen] = True
    return sampled
