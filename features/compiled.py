"""Loops in machine code, kept on disk where a folder can be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

__all__ = ["compiled", "vectorised"]

P = ParamSpec("P")
R = TypeVar("R")

# Sums in any order, so that a loop can take many places at once; NaN and infinity stay themselves.
_ANY_ORDER = {"reassoc", "contract", "arcp", "afn", "nsz"}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays; while it runs other threads run too.

    Large arrays are better made outside by `np.empty` or `np.full` and filled in by the loop:
    those ask the system for huge pages, and touching small ones for the first time costs more
    than the arithmetic.

    The machine code is kept beside the source or in the user's cache folder. Where neither can be
    written, as in a container with a read-only installation, it is made in each process anew.
    """
    return _made(function)


def vectorised(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop of plain arithmetic for the widest registers that the machine has.

    Dividing by zero gives infinity here, as in numpy: a check for it would keep the loop from
    being widened. What calls such a loop, and what it calls, is inlined into it.
    """
    return _made(function, fastmath=_ANY_ORDER, error_model="numpy")


def _made(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    try:
        made = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        made = numba.njit(nogil=True, **options)(function)
    return cast(Callable[P, R], made)
