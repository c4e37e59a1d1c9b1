from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from forewarn.features.compiled import compiled


def _sum(values: npt.NDArray[np.float64]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def test_a_loop_gives_what_it_gives_in_python() -> None:
    values = np.array([0.5, 2.0, -1.0])
    assert compiled(_sum)(values) == _sum(values) == 1.5


def test_where_no_folder_can_be_written_to_it_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    njit = numba.njit

    def read_only(**options: Any) -> Callable[[Any], Any]:
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        made: Callable[[Any], Any] = njit(**options)
        return made

    monkeypatch.setattr(numba, "njit", read_only)
    assert compiled(_sum)(np.ones(3)) == 3.0
