from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.models.prediction.ensembles import (
    cascade_flags,
    parallel_flags,
    top_k_count,
    top_k_mask,
    worst_rank,
)


@st.composite
def scored(draw: st.DrawFn, n_members: int = 1) -> tuple[list[Float64Array], Int64Array]:
    """Draw scores with many ties, and an order."""
    n = draw(st.integers(1, 25))
    few = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    members = [
        np.array(draw(st.lists(few, min_size=n, max_size=n)), dtype=np.float64)
        for _ in range(n_members)
    ]
    return members, np.array(draw(st.permutations(range(n))), dtype=np.int64)


def brute_force_top_k(scores: Float64Array, k: int, order: Int64Array) -> set[int]:
    best_first = sorted(range(len(scores)), key=lambda i: (-scores[i], order[i]))
    return set(best_first[:k])


def flagged(mask: BoolArray) -> set[int]:
    return set(np.flatnonzero(mask).tolist())


@pytest.mark.parametrize(
    ("share", "n", "count"),
    [(0.02, 100, 2), (0.02, 10, 1), (0.02, 0, 1), (0.5, 5, 2), (0.5, 7, 4), (0.02, 124, 2)],
)
def test_top_k_count_rounding(share: float, n: int, count: int) -> None:
    assert top_k_count(share, n) == count


def test_ties_go_to_lower_order() -> None:
    mask = top_k_mask(np.array([0.5, 0.9, 0.5, 0.5]), 2, np.array([3, 2, 0, 1]))
    assert flagged(mask) == {1, 2}


def test_zero_k_is_refused() -> None:
    with pytest.raises(ValueError, match="`k` must be at least 1, got 0"):
        top_k_mask(np.array([0.5]), 0, np.array([0]))


@given(scored(), st.integers(1, 30))
def test_top_k_matches_sorting(case: tuple[list[Float64Array], Int64Array], k: int) -> None:
    (scores,), order = case
    assert flagged(top_k_mask(scores, k, order)) == brute_force_top_k(scores, k, order)


@given(scored(), st.integers(1, 30))
def test_top_k_ignores_row_order(case: tuple[list[Float64Array], Int64Array], k: int) -> None:
    (scores,), order = case
    rows = np.argsort(order)[::-1]
    assert np.array_equal(
        top_k_mask(scores, k, order)[rows], top_k_mask(scores[rows], k, order[rows])
    )


def test_parallel_flags_agreement() -> None:
    scores = {"a": np.array([0.9, 0.8, 0.1, 0.2]), "b": np.array([0.1, 0.8, 0.9, 0.2])}
    assert flagged(parallel_flags(scores, 2, np.arange(4))) == {1}


@given(scored(n_members=3), st.integers(1, 30))
def test_parallel_is_intersection(case: tuple[list[Float64Array], Int64Array], k: int) -> None:
    members, order = case
    mask = parallel_flags(dict(zip("abc", members, strict=True)), k, order)
    tops = [brute_force_top_k(member, k, order) for member in members]
    assert flagged(mask) == set.intersection(*tops)


@given(scored(n_members=3), st.integers(1, 30))
def test_parallel_flags_match_worst_rank(
    case: tuple[list[Float64Array], Int64Array], k: int
) -> None:
    members, order = case
    scores = dict(zip("abc", members, strict=True))
    mask = parallel_flags(scores, k, order)
    ranks = worst_rank(scores, order)
    assert flagged(mask) == flagged(ranks <= mask.sum())


def test_cascade_ranks_only_survivors() -> None:
    first, second = np.array([0.9, 0.8, 0.7, 0.1]), np.array([0.2, 0.3, 0.4, 0.9])
    assert flagged(cascade_flags([(first, 3), (second, 2)], np.arange(4))) == {1, 2}


def test_few_survivors_all_pass() -> None:
    first, second = np.array([0.9, 0.8, 0.7]), np.array([0.2, 0.3, 0.4])
    assert flagged(cascade_flags([(first, 1), (second, 2)], np.arange(3))) == {0}


@given(scored(n_members=3), st.lists(st.integers(1, 30), min_size=3, max_size=3))
def test_cascade_matches_brute_force(
    case: tuple[list[Float64Array], Int64Array], counts: list[int]
) -> None:
    members, order = case
    survivors = set(range(len(order)))
    for scores, k in zip(members, counts, strict=True):
        best_first = sorted(survivors, key=lambda i: (-scores[i], order[i]))
        survivors = set(best_first[:k])
    assert flagged(cascade_flags(list(zip(members, counts, strict=True)), order)) == survivors
    assert len(survivors) == min([len(order), *counts])


def test_worst_rank_by_hand() -> None:
    # Ranks of a: 1 2 3 4, of b: 4 1 2 3; the worst: 4 2 3 4; the mean of 2.5 decides the tie.
    scores = {"a": np.array([0.9, 0.8, 0.7, 0.6]), "b": np.array([0.1, 0.9, 0.8, 0.7])}
    assert worst_rank(scores, np.arange(4)).tolist() == [3, 1, 2, 4]


def test_worst_rank_ties_use_order() -> None:
    scores = {"a": np.array([0.9, 0.1]), "b": np.array([0.1, 0.9])}
    assert worst_rank(scores, np.array([0, 1])).tolist() == [1, 2]
    assert worst_rank(scores, np.array([1, 0])).tolist() == [2, 1]


@given(scored(n_members=3))
def test_worst_rank_is_permutation(
    case: tuple[list[Float64Array], Int64Array],
) -> None:
    members, order = case
    ranks = worst_rank(dict(zip("abc", members, strict=True)), order)
    assert sorted(ranks.tolist()) == list(range(1, len(order) + 1))
    worst = np.max([worst_rank({"m": member}, order) for member in members], axis=0)
    assert (np.diff(worst[np.argsort(ranks)]) >= 0).all()


def test_ensemble_without_members_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one member, got none"):
        parallel_flags({}, 1, np.array([0]))
    with pytest.raises(ValueError, match="at least one member, got none"):
        worst_rank({}, np.array([0]))
