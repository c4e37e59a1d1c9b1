from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forewarn.models.prediction.linear.bucket_scaling import BucketScaling


def column(*values: int) -> npt.NDArray[np.uint8]:
    return np.array(values, dtype=np.uint8)[:, None]


def test_buckets_lie_evenly_around_training_mean() -> None:
    scaling = BucketScaling.fit(column(1, 2, 3), [4])
    assert scaling.apply(column(1, 2, 3))[:, 0].tolist() == [-1.0, 0.0, 1.0]


def test_scaled_training_mean_is_zero() -> None:
    values = column(1, 1, 1, 5)
    scaled = BucketScaling.fit(values, [6]).apply(values)[:, 0]
    assert scaled.tolist() == [-0.5, -0.5, -0.5, 1.5]


def test_missing_becomes_mean_and_is_counted() -> None:
    values = np.array([[0, 1], [2, 0], [3, 3], [2, 2]], dtype=np.uint8)
    scaled = BucketScaling.fit(values, [4, 4]).apply(values)
    assert (scaled[0, 0], scaled[1, 1]) == (0.0, 0.0)
    assert scaled[:, 2].tolist() == [0.25, 0.25, -0.25, -0.25]  # half missing, mean a quarter


def test_one_hot_zero_is_value() -> None:
    values = column(0, 1, 1, 0)
    scaled = BucketScaling.fit(values, [2]).apply(values)
    assert scaled.tolist() == [[-1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]


def test_constant_training_column_is_ignored() -> None:
    scaling = BucketScaling.fit(column(2, 2, 2), [4])
    assert scaling.apply(column(1, 2, 3, 0)).tolist() == [[0.0, 0.0]] * 4


def test_empty_context_has_missing_share() -> None:
    values = np.zeros((3, 0), dtype=np.uint8)
    assert BucketScaling.fit(values, []).apply(values).tolist() == [[0.0]] * 3


@pytest.mark.parametrize("levels", [1, 2, 3, 64, 255])
def test_scaled_values_span_at_most_two(levels: int) -> None:
    values = np.arange(levels, dtype=np.uint8)[:, None]
    scaled = BucketScaling.fit(values, [levels]).apply(values)
    assert np.isfinite(scaled).all()
    assert np.abs(scaled).max() <= 2.0


@given(hnp.arrays(np.uint8, (6, 3, 2), elements=st.integers(0, 8)))
def test_json_is_lossless(values: npt.NDArray[np.uint8]) -> None:
    scaling = BucketScaling.fit(values, [9, 9])
    again = BucketScaling.from_dict(json.loads(json.dumps(scaling.to_dict())))
    assert again == scaling
    assert np.array_equal(again.apply(values), scaling.apply(values))
