"""The type's names are found and hidden, and a type's share of its own model grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("days", "category:gpu_type=a", "category:gpu_type=b", "category:rack=a")


@dataclass(frozen=True)
class Values:
    context: npt.NDArray[np.float32]
    context_names: tuple[str, ...] = NAMES


@dataclass(frozen=True)
class Study:
    values: Values
    recipe: Any


@pytest.fixture(scope="module")
def pooled_types(benchmark_module: Callable[[str], ModuleType]) -> Any:
    return benchmark_module("pooled_types")


def test_types_are_read_from_the_first_categorical_column(pooled_types: Any) -> None:
    context = np.array([[3, 1, 0, 1], [4, 0, 1, 0], [5, 0, 0, 1]], np.float32)
    kinds = SimpleNamespace(categorical=("gpu_type", "rack"))
    study = Study(Values(context), SimpleNamespace(plan=SimpleNamespace(kinds=kinds)))
    types = pooled_types.Types.of(study)
    assert types.names == ("a", "b")
    assert types.number.tolist() == [0, 1, -1]
    hidden = types.hidden(study).values.context
    assert hidden.tolist() == [[3, 0, 0, 1], [4, 0, 0, 0], [5, 0, 0, 1]]
    assert context[0, 1] == 1


@given(st.integers(0, 1000))
def test_the_own_share_grows_from_the_fifth_failing_gpu_on(
    pooled_types: Any, n_failing: int
) -> None:
    share, more = pooled_types.own_share(n_failing), pooled_types.own_share(n_failing + 1)
    assert 0 <= share <= more < 1
    assert (share > 0) == (n_failing >= 5)
