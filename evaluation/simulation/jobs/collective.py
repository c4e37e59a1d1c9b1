"""A meeting: an operation that the ranks of a simulated job enter and leave together."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.array_types import BoolArray, Float64Array

__all__ = ["Collective"]


@dataclass(frozen=True, slots=True)
class Collective:
    """An operation of all groups of an axis at once.

    Attributes
    ----------
    axis : str
        `tp`, `dp`, `pp` or `world`.
    names : tuple of str
        What each rank calls, such as `all_reduce`; one name stands for all.
    entered, ended : ndarrays of shape (n_ranks,)
        Seconds; infinite where a rank does not, NaN where it has no part in it.
    broken : ndarray of shape (n_ranks,), bool
        Whose device never begins it.
    """

    axis: str
    names: tuple[str, ...]
    entered: Float64Array
    ended: Float64Array
    broken: BoolArray

    def name(self, rank: int) -> str:
        """Return what a rank calls."""
        return self.names[rank % len(self.names)]
