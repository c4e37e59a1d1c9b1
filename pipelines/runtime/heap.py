"""The heap of the C library: one for all threads, which keeps what the next array needs."""

from __future__ import annotations

import ctypes

__all__ = ["share_heap"]

# Options of glibc (mallopt(3)).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_TRIMMED_ABOVE = 256 * 2**20
_LARGEST = 32 * 2**20  # glibc takes no larger threshold


def share_heap() -> None:
    """Let all threads of this process share a heap that keeps some memory for later.

    While a fleet is read, arrays of some megabytes come and go by the hundred. By default most
    threads have a heap of their own, which gives them back to the system each time: to get them
    anew was a tenth of the time of a training set. Without glibc nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _TRIMMED_ABOVE)
