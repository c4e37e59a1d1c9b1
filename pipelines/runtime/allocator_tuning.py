"""Tunes memory allocation for processes that do one job and end."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from contextlib import suppress

__all__ = ["tune_process_memory", "use_shared_arena"]

# Options of glibc (mallopt(3)).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_TRIM_THRESHOLD_BYTES = 256 * 2**20
_GC_THRESHOLD = 10_000  # allocations before a garbage collection


def tune_process_memory() -> None:
    """Tune garbage collection and allocators; called first by a command or a DAG task.

    With the default threshold of 700 objects, garbage collection takes a sixth of a command's
    start. Arrow's pool releases memory within a second; `ARROW_DEFAULT_MEMORY_POOL` overrides the
    choice.
    """
    gc.set_threshold(_GC_THRESHOLD)
    use_shared_arena()
    _select_arrow_pool()


def _select_arrow_pool() -> None:
    """Select jemalloc for Arrow; its default keeps 200 MiB of memory of ended threads."""
    if sys.platform != "linux" or platform.machine() != "x86_64":  # jemalloc may not be built in
        return
    chosen = os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    if chosen == "jemalloc" and "pyarrow" in sys.modules:  # Arrow has already read the variable
        pyarrow = sys.modules["pyarrow"]
        with suppress(NotImplementedError):  # built without jemalloc
            pyarrow.set_memory_pool(pyarrow.jemalloc_memory_pool())


def use_shared_arena() -> None:
    """Let all threads of this process share one arena that keeps freed memory.

    Reading a fleet allocates and frees hundreds of arrays of megabytes. By default most threads
    have their own arena, which returns the memory to the system each time, and large arrays are
    mapped one by one; this takes up to a fifth of the time of a training set. Call it before
    libraries start threads, because existing arenas continue to be used. Without glibc it has no
    effect.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
