"""Numba decorators for loops over arrays, with machine code cached on disk."""

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

# Sums may be reordered, which allows SIMD. NaN and infinity keep their meaning.
_FASTMATH_FLAGS = {"reassoc", "contract", "arcp", "afn", "nsz"}


class _CodeCache(FunctionCache):
    """A numba cache that loads machine code without the modules that only compilation needs.

    Numba would first import its extensions for Python and numpy, and scipy to detect BLAS, which
    takes a third of a second. Compilation imports them itself.
    """

    def load_overload(self, sig: Any, context: Any) -> Any:
        """Return the cached code of a signature, or None; the caller holds numba's lock."""
        rtsys.initialize(context)
        context.refresh = _skip_refresh  # on this object only, for the duration of the call
        try:
            return super().load_overload(sig, context)  # type: ignore[no-untyped-call]  # numba's
        finally:
            vars(context).pop("refresh", None)


def _skip_refresh() -> None:
    """Replace the method that loads all of numba's extensions."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays with numba; the loop releases the GIL.

    Allocate large arrays outside the loop with `np.empty` or `np.full` and fill them inside: these
    functions request huge pages, and touching small pages for the first time costs more than the
    arithmetic. Call little of numpy inside a loop: searches, sorts, sums and medians load numba's
    array extensions and scipy together with the cached code.

    The code is cached next to the source or in the user's cache folder until that source file
    changes. A change of a called function in another file does not invalidate it: touch this file
    as well. If neither folder is writable, as in a read-only container, each process compiles
    again.
    """
    return _compile(function)


def vectorised(function: Callable[P, R]) -> Callable[P, R]:
    """Compile an arithmetic loop for the widest SIMD registers of the machine.

    Division by zero yields infinity, as in numpy, because a check would prevent vectorisation.
    Callers and callees of the loop are inlined.
    """
    return _compile(function, fastmath=_FASTMATH_FLAGS, error_model="numpy")


def _remove_stale_index(cache: Any, source: Path) -> None:
    """Remove the cache index if it is older than the source.

    Numba would not use the index but reads it first. Reading fails if it names a class that no
    longer exists, so that an in-place upgrade would end in a traceback.
    """
    with suppress(AttributeError, OSError):  # private attributes of numba, which may change
        index = Path(cache._cache_file._index_path)
        if index.stat().st_mtime < source.stat().st_mtime:
            index.unlink()


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    made = numba.njit(nogil=True, **options)(function)
    with suppress(RuntimeError):  # no cache folder is writable
        made._cache = cache = _CodeCache(function)  # type: ignore[no-untyped-call]  # numba's
        _remove_stale_index(cache, Path(function.__code__.co_filename))
    return cast(Callable[P, R], made)
