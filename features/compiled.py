"""Loops in machine code, kept on disk where a folder can be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["compiled"]

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays; while it runs other threads run too.

    Large arrays are better made outside by `np.empty` or `np.full` and filled in by the loop:
    those ask the system for huge pages, and touching small ones for the first time costs more
    than the arithmetic.

    The machine code is kept beside the source or in the user's cache folder. Where neither can be
    written, as in a container with a read-only installation, it is made in each process anew.
    """
    try:
        made = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        made = numba.njit(nogil=True)(function)
    return cast(Callable[P, R], made)
