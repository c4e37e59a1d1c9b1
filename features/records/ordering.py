"""The order of rows by GPU and time, and hashes that do not depend on it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["sampling_hash", "stable_order"]


def stable_order(
    gpu: npt.NDArray[np.int32], time: npt.NDArray[np.int32] | npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the rows by (gpu, time); rows equal in both keep their order.

    Files come by date, so that rows of one GPU are nearly always in order of time already: then
    two passes of a 16-bit radix sort do, ten times faster than sorting by both keys.

    Examples
    --------
    >>> stable_order(np.array([1, 0, 1], np.int32), np.array([5, 9, 4])).tolist()
    [1, 2, 0]
    """
    order = np.argsort((gpu & 0xFFFF).astype(np.uint16), kind="stable")
    if len(gpu) and gpu.max() > 0xFFFF:
        order = order[np.argsort((gpu[order] >> 16).astype(np.uint16), kind="stable")]
    backwards = (np.diff(gpu[order]) == 0) & (np.diff(time[order]) < 0)
    return np.lexsort((time, gpu)) if backwards.any() else order


@compiled
def _mix(value: np.uint64) -> np.uint64:
    """Scramble a 64-bit number (the finaliser of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _mix_all(
    words: npt.NDArray[np.uint64],
    gpu: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
) -> None:
    for i in range(len(gpu)):
        hashes[i] = _mix(_mix(np.uint64(time[i])) ^ words[gpu[i]])


def sampling_hash(
    seed: int,
    serials: Sequence[str],
    gpu: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint64]:
    """Return a hash of (seed, serial, time) per instance, the same in any order of files.

    Parameters
    ----------
    seed : int
    serials : sequence of str
    gpu : ndarray of shape (n,)
        Positions in `serials`.
    time : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (n,), uint64
    """
    digests = [hashlib.blake2b(f"{seed}:{serial}".encode(), digest_size=8) for serial in serials]
    words = np.array([int.from_bytes(d.digest(), "little") for d in digests], dtype=np.uint64)
    hashes = np.empty(len(gpu), dtype=np.uint64)
    _mix_all(words, gpu, time, hashes)
    return hashes
