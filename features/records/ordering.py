"""Sorting of rows by GPU and time, and sampling hashes that do not depend on order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = [
    "sampling_hash",
    "stable_order",
]


def stable_order(
    gpu: npt.NDArray[np.int32], time: npt.NDArray[np.int64]
) -> npt.NDArray[np.signedinteger]:
    """Return the rows sorted by (gpu, time); the sort is stable.

    Files are read by date, so rows of one GPU are nearly always sorted by time. Counting the rows
    of each GPU is then sufficient, and much faster than sorting by both keys.

    Parameters
    ----------
    gpu : ndarray of shape (n,)
        From 0 on.
    time : ndarray of shape (n,)

    Examples
    --------
    >>> stable_order(np.array([1, 0, 1], np.int32), np.array([5, 9, 4])).tolist()
    [1, 2, 0]
    """
    n_gpus = int(gpu.max(initial=-1)) + 1
    n_rows, last = np.zeros(n_gpus, dtype=np.int64), np.full(n_gpus, np.iinfo(np.int64).min)
    if not _count_by_time(gpu, time, n_rows, last):
        return np.lexsort((time, gpu))
    order: npt.NDArray[np.signedinteger] = np.empty(
        len(gpu), dtype=np.int32 if len(gpu) < 2**31 else np.int64
    )
    _put_rows(gpu, np.cumsum(n_rows) - n_rows, order)
    return order


@compiled
def _count_by_time(
    gpu: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
    n_rows: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
) -> bool:
    """Count the rows of each GPU; return False if they are not sorted by time."""
    for row in range(len(gpu)):
        if time[row] < last[gpu[row]]:
            return False
        last[gpu[row]] = time[row]
        n_rows[gpu[row]] += 1
    return True


@compiled
def _put_rows(
    gpu: npt.NDArray[np.int32],
    free: npt.NDArray[np.int64],
    order: npt.NDArray[np.signedinteger],
) -> None:
    """Write the rows of each GPU consecutively, from its first position on."""
    for row in range(len(gpu)):
        order[free[gpu[row]]] = row
        free[gpu[row]] += 1


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
    """Return a hash of (seed, serial, time) for each instance, whatever the order of files.

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
    hashes = np.empty(len(gpu), dtype=np.uint64)
    _mix_all(_words(seed, tuple(serials)), gpu, time, hashes)
    return hashes


@lru_cache(1)  # failures are hashed right after instances
def _words(seed: int, serials: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    """Return a hash of (seed, serial) for each serial."""
    digests = [hashlib.blake2b(f"{seed}:{serial}".encode(), digest_size=8) for serial in serials]
    return np.frombuffer(b"".join(each.digest() for each in digests), dtype="<u8")
