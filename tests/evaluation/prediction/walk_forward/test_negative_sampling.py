from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.evaluation.prediction.walk_forward.negative_sampling import negative_sampling_mask
from forewarn.features.array_types import Int8Array, UInt64Array


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Int8Array, UInt64Array]:
    labels = draw(st.lists(st.sampled_from([-1, 0, 0, 0, 1]), max_size=60))
    n = len(labels)
    hashes = draw(st.lists(st.integers(0, 2**64 - 1), min_size=n, max_size=n, unique=True))
    return np.array(labels, dtype=np.int8), np.array(hashes, dtype=np.uint64)


def test_all_positives_and_negatives_with_smallest_hashes() -> None:
    labels = np.array([0, 1, 0, -1, 0, 0, 1], dtype=np.int8)
    hashes = np.array([50, 99, 10, 1, 2**64 - 1, 30, 98], dtype=np.uint64)
    chosen = negative_sampling_mask(labels, hashes, 1.0)
    assert np.flatnonzero(chosen).tolist() == [1, 2, 5, 6]


def test_all_negatives_are_sampled_if_few() -> None:
    labels = np.array([1, 1, 0, 0, 0], dtype=np.int8)
    assert negative_sampling_mask(labels, np.arange(5, dtype=np.uint64), 8.0).all()


def test_no_test_set_without_positives() -> None:
    labels = np.array([0, 0, -1], dtype=np.int8)
    assert not negative_sampling_mask(labels, np.arange(3, dtype=np.uint64), 8.0).any()
    assert negative_sampling_mask(labels[:0], np.zeros(0, dtype=np.uint64), 8.0).shape == (0,)


@settings(max_examples=50)
@given(labelled(), st.sampled_from([0.5, 1.0, 2.0, 8.0]))
def test_sampling_matches_contract(case: tuple[Int8Array, UInt64Array], ratio: float) -> None:
    labels, hashes = case
    chosen = negative_sampling_mask(labels, hashes, ratio)
    positives, negatives = labels == 1, labels == 0
    assert chosen[positives].all()
    assert not chosen[labels == -1].any()
    wanted = ratio * positives.sum()
    count = int((chosen & negatives).sum())
    assert count == negatives.sum() or count == pytest.approx(wanted, abs=0.5)
    assert count <= wanted + 0.5
    if 0 < count < negatives.sum():
        assert hashes[chosen & negatives].max() < hashes[~chosen & negatives].min()


@settings(max_examples=40)
@given(labelled(), st.randoms(use_true_random=False))
def test_row_order_does_not_matter(
    case: tuple[Int8Array, UInt64Array], source: random.Random
) -> None:
    labels, hashes = case
    rows = list(range(len(labels)))
    source.shuffle(rows)
    here = negative_sampling_mask(labels, hashes, 2.0)
    assert np.array_equal(negative_sampling_mask(labels[rows], hashes[rows], 2.0), here[rows])


def test_inputs_are_not_mutated() -> None:
    labels, hashes = np.array([1, 0, 0], dtype=np.int8), np.array([7, 5, 6], dtype=np.uint64)
    negative_sampling_mask(labels, hashes, 1.0)
    assert labels.tolist() == [1, 0, 0]
    assert hashes.tolist() == [7, 5, 6]
