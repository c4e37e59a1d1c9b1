from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.prediction.instance_budget import Budget, thin_positives


@st.composite
def positives(draw: st.DrawFn) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    failure = np.array(draw(st.lists(st.integers(0, 8), min_size=1, max_size=40)))
    own = draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(failure), max_size=40, unique=True))
    return np.unique(failure, return_inverse=True)[1], np.array(own[: len(failure)], np.uint64)


def of_failures(failure: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return (failure.astype(np.uint64) * np.uint64(7919)) % np.uint64(31)


@given(positives(), st.integers(0, 50))
def test_no_failure_gives_a_second_positive_before_each_has_given_one(
    case: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]], n: int
) -> None:
    failure, own = case
    chosen = thin_positives(failure, of_failures(failure), own, n)
    assert len(chosen) == len(set(chosen.tolist())) == min(n, len(failure))
    left = np.bincount(failure[chosen], minlength=failure.max() + 1)
    had = np.bincount(failure)
    if n >= len(had):
        assert (left >= 1).all()
    assert all(count in (most, had[i]) or count == most - 1 for most in [left.max(initial=0)]
               for i, count in enumerate(left.tolist()))  # fmt: skip
    for number in range(len(had)):
        of_one = np.flatnonzero(failure == number)
        smallest = of_one[np.argsort(own[of_one])][: left[number]]
        assert set(smallest.tolist()) <= set(chosen.tolist())


@given(positives(), st.integers(0, 50), st.randoms())
def test_the_order_of_rows_and_of_failures_decides_nothing(
    case: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]], n: int, random: Random
) -> None:
    failure, own = case
    hashes = of_failures(failure)
    rows = list(range(len(failure)))
    random.shuffle(rows)
    other = failure.max() - failure[rows]  # numbered from the other end
    shuffled = thin_positives(other, hashes[rows], own[rows], n)
    chosen = thin_positives(failure, hashes, own, n)
    assert {rows[i] for i in shuffled.tolist()} == set(chosen.tolist())


@given(
    st.integers(1, 10_000),
    st.integers(1, 500),
    st.integers(1, 100_000),
    st.integers(1, 500),
    st.floats(0.1, 100.0),
)
def test_a_budget_is_kept_and_failures_come_before_negatives(
    most: int, positives: int, negatives: int, failures: int, ratio: float
) -> None:
    failures, most = min(failures, positives), max(most, 2)
    counts = {"positives": positives, "negatives": negatives, "failures": failures}
    budget = Budget.of(most, ratio=ratio, **counts)
    whole = Budget.of(0, ratio=ratio, **counts)
    assert budget.positives + budget.negatives <= max(most, 2)
    assert 1 <= budget.positives <= positives
    assert budget.negatives <= whole.negatives
    if failures <= most // 2:
        assert budget.positives >= failures
    if whole.positives + whole.negatives <= most:
        assert budget == whole
