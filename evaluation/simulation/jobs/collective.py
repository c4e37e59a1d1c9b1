"""A collective operation that the ranks of a simulated job enter and leave together."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.array_types import BoolArray, Float64Array

__all__ = ["Collective"]


@dataclass(frozen=True, slots=True)
class Collective:
    """One operation in all groups of an axis.

    Attributes
    ----------
    axis : str
        `tp`, `dp`, `pp` or `world`.
    names : tuple of str
        The operation that each rank calls, such as `all_reduce`; a single name applies to all
        ranks.
    entered, ended : ndarrays of shape (n_ranks,)
        Seconds; infinite where a rank never enters or leaves, NaN where it is not a member.
    broken : ndarray of shape (n_ranks,), bool
        Ranks whose device never starts the operation.
    """

    axis: str
    names: tuple[str, ...]
    entered: Float64Array
    ended: Float64Array
    broken: BoolArray

    def name(self, rank: int) -> str:
        """Return the operation that a rank calls."""
        return self.names[rank % len(self.names)]
