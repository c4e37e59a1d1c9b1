"""The budget of a training set: which positives stay where there are too many instances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Budget", "thin_positives"]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Budget:
    """How many positives and negatives a training set holds at most.

    Attributes
    ----------
    positives, negatives : int
    """

    positives: int
    negatives: int

    @classmethod
    def of(
        cls, max_instances: int, *, positives: int, negatives: int, failures: int, ratio: float
    ) -> Budget:
        """Share `max_instances` out: negatives follow the ratio, until failures would be lost.

        A failure is rarer than anything else: before one loses its last positive, negatives make
        room, down to half of all instances.

        Parameters
        ----------
        max_instances : int
            0: as many as there are.
        positives, negatives, failures : int
            How many there are; failures are those that the positives come before.
        ratio : float
            Negatives wanted for each positive.

        Examples
        --------
        >>> Budget.of(100, positives=40, negatives=5000, failures=4, ratio=9.0)
        Budget(positives=10, negatives=90)
        >>> Budget.of(100, positives=40, negatives=5000, failures=30, ratio=9.0)
        Budget(positives=30, negatives=70)
        >>> Budget.of(0, positives=40, negatives=5000, failures=30, ratio=9.0)
        Budget(positives=40, negatives=360)
        """
        by_share = min(round(ratio * positives), negatives)
        if not max_instances or positives + by_share <= max_instances:
            return cls(positives, by_share)
        by_ratio = int(max_instances / (1.0 + min(ratio, negatives / positives)))
        n_positives = min(positives, max(by_ratio, min(failures, max_instances // 2), 1))
        room = max_instances - n_positives
        return cls(n_positives, min(max(round(ratio * n_positives), 1), room, negatives))


def thin_positives(failure: Ints, of_failure: Hashes, own: Hashes, n: int) -> Ints:
    """Choose `n` positives: one of every failure first, then a second one of each, and so on.

    Parameters
    ----------
    failure : ndarray of shape (m,)
        Number of the failure that each positive comes before.
    of_failure, own : ndarray of shape (m,)
        Hash of that failure, and of the instance: they decide, whatever order rows are in.
    n : int

    Returns
    -------
    ndarray of shape (min(n, m),)
        Positions, in ascending order.

    Examples
    --------
    >>> hashes = np.array([3, 1, 2, 9], np.uint64)
    >>> thin_positives(np.array([0, 0, 0, 1]), np.array([5, 5, 5, 7], np.uint64), hashes, 3)
    array([1, 2, 3])
    """
    by_failure = np.lexsort((own, failure))
    first = np.flatnonzero(np.append(True, np.diff(failure[by_failure]) != 0)[: len(failure)])
    turn = np.empty(len(failure), dtype=np.int64)
    sizes = np.diff(np.append(first, len(failure)))
    turn[by_failure] = np.arange(len(failure)) - np.repeat(first, sizes)
    return np.sort(np.lexsort((own, of_failure, turn))[:n])
