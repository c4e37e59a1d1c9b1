"""Memory of a process that does one thing and ends: what it makes, it mostly keeps."""

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
_GC_THRESHOLD = 10_000  # that are made before garbage is looked for among them


def tune_process_memory() -> None:
    """Do what a command, or a task of a DAG, does before anything else.

    Looking for garbage at every 700th object is a sixth of the start of a command. What Arrow
    lets go of is given back within a second or so, and may be chosen by its own variable,
    `ARROW_DEFAULT_MEMORY_POOL`.
    """
    gc.set_threshold(_GC_THRESHOLD)
    use_shared_arena()
    _select_arrow_pool()


def _select_arrow_pool() -> None:
    """Have Arrow take jemalloc: its own choice keeps 200 MiB of what ended threads let go of."""
    if sys.platform != "linux" or platform.machine() != "x86_64":  # it may come without it
        return
    chosen = os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    if chosen == "jemalloc" and "pyarrow" in sys.modules:  # it has looked there already
        pyarrow = sys.modules["pyarrow"]
        with suppress(NotImplementedError):  # built by somebody else
            pyarrow.set_memory_pool(pyarrow.jemalloc_memory_pool())


def use_shared_arena() -> None:
    """Let all threads of this process share a heap that keeps some memory for later.

    While a fleet is read, arrays of megabytes come and go by the hundred. By default most threads
    have a heap of their own, which gives them back to the system each time, and the largest are
    got from it one by one: up to a fifth of the time of a training set. To be called before
    libraries begin threads: a heap that one of those had is used again. Without glibc nothing
    changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
