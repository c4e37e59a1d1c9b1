from __future__ import annotations

import bisect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from forewarn.features.array_types import Float32Array
from forewarn.features.prediction.buckets import Buckets

any_float = st.floats(width=32)
few = st.sampled_from([0.0, 1.0, 2.5, -3.0, math.nan, math.inf, -math.inf])
whole = st.integers(-500, 500)
columns = st.one_of(
    some.arrays(np.float32, st.integers(0, 40), elements=any_float),
    some.arrays(np.float32, st.integers(0, 40), elements=few),
    some.arrays(np.float32, st.integers(60, 120), elements=whole, fill=st.nothing()),
)


def _one(values: Float32Array) -> Buckets:
    return Buckets.fit(values[:, None])


def _encode(buckets: Buckets, values: Float32Array) -> list[int]:
    return [int(number) for number in buckets.encode(values[:, None])[:, 0]]


@given(columns, columns)
def test_encoding_matches_brute_force(fitted: Float32Array, values: Float32Array) -> None:
    buckets = _one(fitted)
    edges = buckets.edges[0].tolist()
    expected = [0 if math.isnan(v) else 1 + bisect.bisect_right(edges, v) for v in values.tolist()]
    assert _encode(buckets, values) == expected


@given(columns, columns)
def test_encoding_is_monotone(fitted: Float32Array, values: Float32Array) -> None:
    there = np.sort(values[~np.isnan(values)])
    assert _encode(_one(fitted), there) == sorted(_encode(_one(fitted), there))


@given(columns, columns)
def test_only_missing_is_zero(fitted: Float32Array, values: Float32Array) -> None:
    buckets = _one(fitted)
    numbers = buckets.encode(values[:, None])[:, 0]
    assert numbers.dtype == np.uint8
    assert ((numbers == 0) == np.isnan(values)).all()
    assert buckets.levels[0] <= 256
    assert (numbers < buckets.levels[0]).all()


@given(columns)
def test_edges_are_finite_sorted_and_different(fitted: Float32Array) -> None:
    edges = _one(fitted).edges[0]
    assert edges.dtype == np.float32
    assert np.isfinite(edges).all()
    assert (np.diff(edges) > 0).all()


@given(st.lists(st.integers(-1000, 1000), max_size=60, unique=True))
def test_few_distinct_values_get_own_buckets(values: list[int]) -> None:
    fitted = np.array(sorted(values), dtype=np.float32)
    assert _encode(_one(fitted), fitted) == list(range(1, len(values) + 1))


@given(columns, st.randoms(use_true_random=False))
def test_training_order_does_not_matter(fitted: Float32Array, random: object) -> None:
    shuffled = fitted.tolist()
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    again = _one(np.array(shuffled, dtype=np.float32))
    assert np.array_equal(_one(fitted).edges[0], again.edges[0])


def test_edge_value_is_in_upper_bucket() -> None:
    buckets = Buckets((np.array([1.0, 2.0], dtype=np.float32),))
    values = np.array([0.9, 1.0, 1.9, 2.0, np.inf, -np.inf, np.nan], dtype=np.float32)
    assert _encode(buckets, values) == [1, 2, 2, 3, 3, 1, 0]
    assert buckets.levels == (4,)


def test_quantile_buckets_are_balanced() -> None:
    fitted = np.arange(10_000, dtype=np.float32)
    counts = np.bincount(_encode(_one(fitted), fitted))[1:]
    assert len(counts) > 50
    assert counts.max() < 10_000 / 50


def test_mode_is_separated_from_larger_values() -> None:
    # A counter that is constant nine times in ten: its other values must not share one bucket.
    fitted = np.concatenate([np.zeros(9_000), np.arange(1, 1_001)]).astype(np.float32)
    numbers = _encode(_one(fitted), fitted)
    assert set(numbers[:9_000]).isdisjoint(numbers[9_000:])
    assert len(set(numbers[9_000:])) > 40


def test_outlier_does_not_move_buckets() -> None:
    fitted = np.arange(1_000, dtype=np.float32)
    wild = np.append(fitted, np.float32(3e38))
    assert len(set(_encode(_one(wild), fitted))) > 50


def test_extreme_values_give_finite_edges() -> None:
    largest = float(np.finfo(np.float32).max)
    buckets = _one(np.array([-largest, largest, largest / 2], dtype=np.float32))
    assert len(buckets.edges[0]) == 2
    assert np.isfinite(buckets.edges[0]).all()


def test_always_missing_column_has_one_bucket() -> None:
    buckets = _one(np.full(5, np.nan, dtype=np.float32))
    assert buckets.levels == (2,)
    assert _encode(buckets, np.array([np.nan, 3.0], dtype=np.float32)) == [0, 1]


@pytest.mark.parametrize("shape", [(0, 2), (4, 2), (4, 3, 2), (0, 3, 2), (4, 0)])
def test_encoding_keeps_shape(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    buckets = Buckets.fit(values)
    assert len(buckets.edges) == shape[-1]
    assert buckets.encode(values).shape == shape


def test_columns_have_separate_edges() -> None:
    values = np.array([[0.0, 5.0], [1.0, 5.0]], dtype=np.float32)
    assert Buckets.fit(values).levels == (3, 2)
    assert Buckets.fit(values).encode(values).tolist() == [[1, 1], [2, 1]]


@given(st.floats(2.0**-90, 2.0**90, width=32), st.integers(2, 12))
def test_adjacent_floats_are_distinguished(first: float, n: int) -> None:
    """For dates in year 9999 or bytes, the midpoint of two values rounds to one of them."""
    values = [np.float32(first)]
    while len(values) < n:
        values.append(np.nextafter(values[-1], np.float32(np.inf)))
    column = np.array(values, dtype=np.float32)
    buckets = _one(column)
    assert _encode(buckets, column) == list(range(1, n + 1))
    assert Buckets.from_lists([buckets.edges[0].tolist()]).levels == (n + 1,)
