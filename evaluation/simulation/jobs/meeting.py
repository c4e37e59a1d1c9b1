"""A meeting: an operation that the ranks of a simulated job enter and leave together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Meeting"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Meeting:
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
    entered: FloatArray
    ended: FloatArray
    broken: BoolArray

    def name(self, rank: int) -> str:
        """Return what a rank calls."""
        return self.names[rank % len(self.names)]
