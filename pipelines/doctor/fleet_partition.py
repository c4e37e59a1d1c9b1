"""Partition of the fleet into parts that match the slices of row groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.records.fleet_slices import MAX_SLICES, assign_slices, slice_ranges

__all__ = ["FleetPartition"]


@dataclass(frozen=True, slots=True)
class FleetPartition:
    """Assignment of GPUs to parts.

    Attributes
    ----------
    part : ndarray of shape (n_gpus,)
        Part of each GPU.
    position : ndarray of shape (n_gpus,), int32
        Position of each GPU in its part.
    n_ranges, n_shares : int
        Number of slice ranges, and of parts per range.
    """

    part: npt.NDArray[np.int64]
    position: npt.NDArray[np.int32]
    n_ranges: int
    n_shares: int

    @classmethod
    def from_serials(cls, serials: Sequence[str], n_parts: int) -> Self:
        """Return a partition with at least `n_parts` parts; a slice is subdivided by GPU number.

        Examples
        --------
        >>> FleetPartition.from_serials(["GPU-1", "GPU-2", "GPU-3"], 2).part.tolist()
        [0, 0, 1]
        """
        n_ranges = 1
        while n_ranges < min(n_parts, MAX_SLICES):  # row groups are divided by powers of two
            n_ranges *= 2
        n_shares = max(1, -(-n_parts // n_ranges))
        number = np.arange(len(serials))
        part = assign_slices(serials, n_ranges).astype(np.int64) * n_shares + number % n_shares
        by_part = np.argsort(part, kind="stable")
        begin = np.searchsorted(part[by_part], part[by_part])
        position = np.empty(len(serials), dtype=np.int32)
        position[by_part] = number - begin
        return cls(part, position, n_ranges, n_shares)

    @property
    def n_parts(self) -> int:
        """Number of parts; some may be empty."""
        return self.n_ranges * self.n_shares

    def gpus(self, part: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the GPUs of a part, in the order of their positions."""
        return np.flatnonzero(self.part == part)

    def slices(self, part: int) -> tuple[int, int]:
        """Return the slices [first, last) that contain a part."""
        return slice_ranges(self.n_ranges)[part // self.n_shares]
