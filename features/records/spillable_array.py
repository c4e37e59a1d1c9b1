"""Arrays that grow with a fleet: in memory, unless whoever reads the fleet keeps them elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ArrayAllocator", "Move", "SpillableArray"]


class SpillableArray:
    """An array of zeros in memory.

    Parameters
    ----------
    shape : tuple of int
    kind : type or dtype

    Attributes
    ----------
    values : ndarray of that shape

    Examples
    --------
    >>> held = SpillableArray((2, 2), np.int32)
    >>> held.values[0] += 1
    >>> held.spill()
    >>> held.values.tolist()
    [[1, 1], [0, 0]]
    """

    def __init__(self, shape: tuple[int, ...], kind: npt.DTypeLike) -> None:
        self.values: npt.NDArray[Any] = np.zeros(shape, dtype=kind)

    def spill(self) -> None:
        """Have it leave memory, if it can, until somebody looks at it: its values stay."""


ArrayAllocator = Callable[[tuple[int, ...], npt.DTypeLike], SpillableArray]
"""Makes an array of zeros, of a shape and a kind."""

Move = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Returns an array with the same values that lies somewhere else, such as on disk."""
