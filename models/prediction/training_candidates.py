"""Training candidates: the instances from which undersampling selects a training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from forewarn.features.array_types import BoolArray, Int64Array, UInt64Array
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.ordering import stable_order
from forewarn.features.time_units import Nanoseconds

__all__ = [
    "KnownCounts",
    "TrainingBudget",
    "TrainingCandidates",
    "instances_known_at",
    "smallest_hashes",
    "smallest_hashes_among",
    "undersample_positives",
]


_HASH_LIMIT_FACTOR = 1.5  # expected ratio of hashes below the limit to wanted hashes
_MAX_FLOAT_HASH = float(2**64 - 2**11)  # largest uint64 that a float represents exactly


def instances_known_at(
    instances: Instances, moment: int, training_span: Nanoseconds, horizon: Nanoseconds
) -> Instances:
    """Return the instances of a training span whose labels are known at `moment`.

    Parameters
    ----------
    instances : Instances
        Labelled with the knowledge before `moment`.
    moment : int
        Nanoseconds since 1970 UTC.
    training_span : Nanoseconds
        Length of the interval in which the instances end; it closes one horizon before `moment`.
    horizon : Nanoseconds
    """
    return instances.select(_is_known(instances, moment, training_span, horizon))


def _is_known(
    instances: Instances, moment: int, training_span: Nanoseconds, horizon: Nanoseconds
) -> BoolArray:
    end, first = instances.end, moment - horizon - training_span
    return (end >= first) & (end < moment - horizon) & (instances.label >= 0)


def smallest_hashes(rows: Int64Array, hashes: UInt64Array, n: int) -> Int64Array:
    """Return the `n` of `rows` with the smallest hashes."""
    return rows if n >= len(rows) else rows[np.argpartition(hashes[rows], n)[:n]]


def smallest_hashes_among(some: BoolArray, hashes: UInt64Array, n: int) -> Int64Array:
    """Return the `n` rows in the mask `some` with the smallest hashes.

    Hashes are uniform, so a limit on the hash excludes most rows before they are compared.
    """
    share = min(_HASH_LIMIT_FACTOR * n / max(1, int(np.count_nonzero(some))), 1.0)
    low = np.flatnonzero(some & (hashes <= np.uint64(share * _MAX_FLOAT_HASH)))
    return smallest_hashes(low if len(low) >= n else np.flatnonzero(some), hashes, n)


class KnownCounts(NamedTuple):
    """Number of known positives and negatives in a training span, before undersampling."""

    positives: int
    negatives: int

    @classmethod
    def from_instances(cls, instances: Instances) -> Self:
        """Count instances whose labels are known."""
        positives = int(np.count_nonzero(instances.label == 1))
        return cls(positives, len(instances) - positives)

    @property
    def prevalence(self) -> float:
        """Share of positives."""
        return self.positives / (self.positives + self.negatives)


@dataclass(frozen=True, slots=True)
class TrainingCandidates:
    """The instances that a training as of a moment can select, and the counts before the selection.

    Only few instances of a large fleet are candidates, so the others need not be kept in memory.

    Attributes
    ----------
    moment : int
    horizon : Nanoseconds
    most : int
        Maximum number of negatives per training span; 0 keeps all.
    instances : Instances
        n instances by GPU and time.
    hashes : ndarray of shape (n,)
        Sampling hashes: the smallest ones stay.
    counts : dict of KnownCounts
        Counts by training span.
    """

    moment: int
    horizon: Nanoseconds
    most: int
    instances: Instances
    hashes: UInt64Array
    counts: Mapping[Nanoseconds, KnownCounts]

    @classmethod
    def from_instances(
        cls,
        instances: Instances,
        hashes: UInt64Array,
        moment: int,
        horizon: Nanoseconds,
        spans: Sequence[Nanoseconds],
        most: int,
    ) -> TrainingCandidates:
        """Keep all positives and, for each span, the `most` negatives with the smallest hashes.

        Parameters
        ----------
        instances : Instances
            n instances of a slice or of a fleet.
        hashes : ndarray of shape (n,)
        moment, horizon, spans
            See `instances_known_at`.
        most : int
            0: all negatives.
        """
        positive, counts = instances.label == 1, {}
        for span in spans:
            within = _is_known(instances, moment, span, horizon)
            n_positives = int(np.count_nonzero(within & positive))
            counts[span] = KnownCounts(n_positives, int(np.count_nonzero(within)) - n_positives)
        return cls(moment, horizon, most, instances, hashes, counts)._undersampled()

    def _undersampled(self) -> TrainingCandidates:
        """Return all positives and, for each span, the negatives with the smallest hashes."""
        positive, chosen = self.instances.label == 1, np.zeros(len(self.instances), dtype=bool)
        for span in self.counts:
            within = _is_known(self.instances, self.moment, span, self.horizon)
            negatives = within & ~positive
            chosen |= within & positive
            chosen[
                smallest_hashes_among(negatives, self.hashes, self.most) if self.most else negatives
            ] = 1
        return self._select(np.flatnonzero(chosen))

    def _select(self, rows: Int64Array) -> TrainingCandidates:
        return replace(self, instances=self.instances.select(rows), hashes=self.hashes[rows])

    def known(self, span: Nanoseconds) -> Instances:
        """Return the candidates of one span."""
        return instances_known_at(self.instances, self.moment, span, self.horizon)

    def renumbered(self, gpu: Int64Array) -> TrainingCandidates:
        """Return the candidates of a slice with the GPU numbers of the fleet."""
        return replace(self, instances=self.instances.renumbered(gpu))

    @classmethod
    def joined(cls, slices: Sequence[TrainingCandidates]) -> TrainingCandidates:
        """Join the candidates of all slices by GPU and time, and apply the size limit again."""
        if len(slices) == 1:
            return slices[0]
        counts = {
            span: KnownCounts(*map(sum, zip(*(part.counts[span] for part in slices), strict=True)))
            for span in slices[0].counts
        }
        instances = Instances.concatenated([part.instances for part in slices])
        hashes = np.concatenate([part.hashes for part in slices])
        every = replace(slices[0], instances=instances, hashes=hashes, counts=counts)
        few = every._undersampled() if every.most else every
        return few._select(stable_order(few.instances.gpu, few.instances.end))


@dataclass(frozen=True, slots=True)
class TrainingBudget:
    """Maximum number of positives and negatives in a training set.

    Attributes
    ----------
    positives, negatives : int
    """

    positives: int
    negatives: int

    @classmethod
    def allocate(
        cls, max_instances: int, *, positives: int, negatives: int, failures: int, ratio: float
    ) -> TrainingBudget:
        """Divide `max_instances` between positives and negatives.

        Negatives follow `ratio` unless a failure would then lose its last positive. In that case
        negatives make room, down to half of all instances, because failures are the rarest data.

        Parameters
        ----------
        max_instances : int
            0: no limit.
        positives, negatives, failures : int
            Available instances, and the number of failures that the positives precede.
        ratio : float
            Wanted negatives per positive.

        Examples
        --------
        >>> TrainingBudget.allocate(100, positives=40, negatives=5000, failures=4, ratio=9.0)
        TrainingBudget(positives=10, negatives=90)
        >>> TrainingBudget.allocate(100, positives=40, negatives=5000, failures=30, ratio=9.0)
        TrainingBudget(positives=30, negatives=70)
        >>> TrainingBudget.allocate(0, positives=40, negatives=5000, failures=30, ratio=9.0)
        TrainingBudget(positives=40, negatives=360)
        """
        by_share = min(round(ratio * positives), negatives)
        if not max_instances or positives + by_share <= max_instances:
            return cls(positives, by_share)
        by_ratio = int(max_instances / (1.0 + min(ratio, negatives / positives)))
        n_positives = min(positives, max(by_ratio, min(failures, max_instances // 2), 1))
        room = max_instances - n_positives
        return cls(n_positives, min(max(round(ratio * n_positives), 1), room, negatives))


def undersample_positives(
    failure: Int64Array, of_failure: UInt64Array, own: UInt64Array, n: int
) -> Int64Array:
    """Select `n` positives: one per failure first, then a second one per failure, and so on.

    Parameters
    ----------
    failure : ndarray of shape (m,)
        Number of the failure that each positive precedes.
    of_failure, own : ndarray of shape (m,)
        Hashes of the failure and of the instance. They make the selection independent of row order.
    n : int

    Returns
    -------
    ndarray of shape (min(n, m),)
        Positions, in ascending order.

    Examples
    --------
    >>> hashes = np.array([3, 1, 2, 9], np.uint64)
    >>> undersample_positives(np.array([0, 0, 0, 1]), np.array([5, 5, 5, 7], np.uint64), hashes, 3)
    array([1, 2, 3])
    """
    by_failure = np.lexsort((own, failure))
    first = np.flatnonzero(np.append(True, np.diff(failure[by_failure]) != 0)[: len(failure)])
    turn = np.empty(len(failure), dtype=np.int64)
    sizes = np.diff(np.append(first, len(failure)))
    turn[by_failure] = np.arange(len(failure)) - np.repeat(first, sizes)
    return np.sort(np.lexsort((own, of_failure, turn))[:n])
