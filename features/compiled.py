"""Loops in machine code, kept on disk where a folder can be written to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

__all__ = ["compiled", "vectorised"]

P = ParamSpec("P")
R = TypeVar("R")

# Sums in any order, so that a loop can take many places at once; NaN and infinity stay themselves.
_FASTMATH_FLAGS = {"reassoc", "contract", "arcp", "afn", "nsz"}


class _CodeCache(FunctionCache):
    """Machine code on disk, loaded without what only compiling needs.

    Numba would first load all that it makes of Python and numpy, and scipy with it, to see whether
    there is a BLAS: a third of a second. What compiles asks for that itself.
    """

    def load_overload(self, sig: Any, context: Any) -> Any:
        """Return what is kept for a signature, None if there is nothing; numba holds its lock."""
        rtsys.initialize(context)
        context.refresh = _skip_refresh  # of this object alone, for as long as it takes
        try:
            return super().load_overload(sig, context)  # type: ignore[no-untyped-call]  # numba's
        finally:
            vars(context).pop("refresh", None)


def _skip_refresh() -> None:
    """Take the place of what loads all that numba knows."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays; while it runs other threads run too.

    Large arrays are better made outside by `np.empty` or `np.full` and filled in by the loop:
    those ask the system for huge pages, and touching small ones for the first time costs more
    than the arithmetic.

    A loop calls little of numpy: searches, sorts, sums and medians bring all that numba makes of
    arrays, and scipy, with the kept machine code.

    The machine code is kept beside the source or in the user's cache folder, until the source
    changes; not if what it calls in another file does, so touch that source, too. Where neither can
    be written, as in a container with a read-only installation, it is made in each process anew.
    """
    return _compile(function)


def vectorised(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop of plain arithmetic for the widest registers that the machine has.

    Dividing by zero gives infinity here, as in numpy: a check for it would keep the loop from
    being widened. What calls such a loop, and what it calls, is inlined into it.
    """
    return _compile(function, fastmath=_FASTMATH_FLAGS, error_model="numpy")


def _remove_stale_index(cache: Any, source: Path) -> None:
    """Remove the list of kept machine code that is older than its source.

    Numba would not use it, but reads it first, and that fails where it names a class that is gone:
    an upgrade in place would end in a traceback.
    """
    with suppress(AttributeError, OSError):  # the names are numba's own, and may change
        index = Path(cache._cache_file._index_path)
        if index.stat().st_mtime < source.stat().st_mtime:
            index.unlink()


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    made = numba.njit(nogil=True, **options)(function)
    with suppress(RuntimeError):  # no folder can be written to
        made._cache = cache = _CodeCache(function)  # type: ignore[no-untyped-call]  # numba's
        _remove_stale_index(cache, Path(function.__code__.co_filename))
    return cast(Callable[P, R], made)
