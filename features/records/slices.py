"""Slices of a fleet: which of up to 64 parts a GPU belongs to, on every date the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["FINEST", "slice_of"]

FINEST = 64
"""The number of finest slices; any coarser slice is a union of consecutive ones of these."""


def slice_of(serials: Sequence[str], n: int = FINEST) -> npt.NDArray[np.uint8]:
    """Return the slice of each GPU, by a hash of its serial alone (blake2b).

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
    >>> slice_of(["GPU-1", "GPU-2", "GPU-3"]).tolist()
    [14, 11, 38]
    >>> slice_of(["GPU-1", "GPU-2", "GPU-3"], 4).tolist()
    [0, 0, 2]
    """
    if not 1 <= n <= FINEST:
        raise ValueError(f"found {n} slices, expected 1 to {FINEST}")
    # A hash of its own: the one that draws samples must not be alike within a slice.
    digests = [hashlib.blake2b(s.encode(), digest_size=1, person=b"slice") for s in serials]
    finest = np.array([d.digest()[0] >> 2 for d in digests], dtype=np.uint16)
    return (finest * n // FINEST).astype(np.uint8)
