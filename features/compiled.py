"""Loops in machine code, kept on disk where a folder can be written to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

__all__ = ["compiled", "vectorised"]

P = ParamSpec("P")
R = TypeVar("R")

# Sums in any order, so that a loop can take many places at once; NaN and infinity stay themselves.
_ANY_ORDER = {"reassoc", "contract", "arcp", "afn", "nsz"}


def _start_without_scipy() -> None:
    """Load what numba makes of arrays before anything is compiled, and scipy not with it.

    Numba looks whether there is a BLAS, by importing all of `scipy.linalg`: a quarter of a second
    and 30 MiB, for products of matrices that no loop here has.
    """
    blas = "scipy.linalg.cython_blas"
    if blas in sys.modules:
        return
    sys.modules[blas] = None  # type: ignore[assignment]  # what an import then says is: not there
    try:
        import_module("numba.np.arraymath")
    finally:
        del sys.modules[blas]


_start_without_scipy()


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


def _forget_if_older(made: Any, source: Path) -> None:
    """Remove the list of kept machine code that is older than its source.

    Numba would not use it, but reads it first, and that fails where it names a class that is gone:
    an upgrade in place would end in a traceback.
    """
    with suppress(AttributeError, OSError):  # the names are numba's own, and may change
        index = Path(made._cache._cache_file._index_path)
        if index.stat().st_mtime < source.stat().st_mtime:
            index.unlink()


def _made(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    try:
        made = numba.njit(cache=True, nogil=True, **options)(function)
        _forget_if_older(made, Path(function.__code__.co_filename))
    except RuntimeError:
        made = numba.njit(nogil=True, **options)(function)
    return cast(Callable[P, R], made)
