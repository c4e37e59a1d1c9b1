"""Fleet slices: a fixed assignment of GPUs to up to 64 parts by their serial."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_SLICES", "assign_slices", "slice_ranges"]

MAX_SLICES = 64
"""The largest number of slices; coarser slices are unions of consecutive ones."""


def assign_slices(serials: Sequence[str], n: int = MAX_SLICES) -> npt.NDArray[np.uint8]:
    """Return the slice of each GPU by a hash of its serial (blake2b).

    Parameters
    ----------
    serials : sequence of str
    n : int
        Number of slices, 1 to 64.

    Returns
    -------
    ndarray of shape (n_serials,), uint8
        Numbers in [0, n).

    Raises
    ------
    ValueError
        If `n` is out of range.

    Examples
    --------
    >>> assign_slices(["GPU-1", "GPU-2", "GPU-3"]).tolist()
    [14, 11, 38]
    >>> assign_slices(["GPU-1", "GPU-2", "GPU-3"], 4).tolist()
    [0, 0, 2]
    """
    if not 1 <= n <= MAX_SLICES:
        raise ValueError(f"found {n} slices, expected 1 to {MAX_SLICES}")
    finest = np.array([_slice_number(serial) for serial in serials], dtype=np.uint16)
    return (finest * n // MAX_SLICES).astype(np.uint8)


@lru_cache(1 << 17)  # all files have the same serials
def _slice_number(serial: str) -> int:
    # Personalised, so that it is independent of the sampling hash within a slice.
    return hashlib.blake2b(serial.encode(), digest_size=1, person=b"slice").digest()[0] >> 2


def slice_ranges(n: int) -> list[tuple[int, int]]:
    """Return n equal ranges [first, last) of the `MAX_SLICES` slices.

    Examples
    --------
    >>> slice_ranges(2)
    [(0, 32), (32, 64)]
    """
    return [(MAX_SLICES * i // n, MAX_SLICES * (i + 1) // n) for i in range(n)]
