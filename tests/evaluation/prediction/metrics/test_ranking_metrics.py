from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from forewarn.evaluation.prediction.metrics.ranking_metrics import (
    accuracy,
    average_precision,
    average_precision_draws,
    flag_precision,
    flag_recall,
)
from forewarn.features.array_types import Float64Array, Int8Array, Int64Array

LABELS = np.array([1, 0, 0, 1, 0], dtype=np.int8)
FEW = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@st.composite
def scored(draw: st.DrawFn) -> tuple[Int8Array, Float64Array]:
    """Draw labels, and scores with many ties."""
    rows = draw(
        st.lists(st.tuples(st.integers(0, 1), FEW | st.floats(0.0, 1.0)), min_size=1, max_size=30)
    )
    labels, scores = zip(*rows, strict=True)
    return np.array(labels, dtype=np.int8), np.array(scores, dtype=np.float64)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Int8Array, Float64Array, Int64Array, Float64Array]:
    """Draw labels and scores, the machine of each, and bootstrap samples of machines."""
    labels, scores = draw(scored())
    n_machines = draw(st.integers(1, 5))
    machine = draw(
        st.lists(st.integers(0, n_machines - 1), min_size=len(labels), max_size=len(labels))
    )
    counts = st.lists(st.integers(0, 3), min_size=n_machines, max_size=n_machines)
    draws = draw(st.lists(counts, min_size=1, max_size=4))
    return labels, scores, np.array(machine, dtype=np.int64), np.array(draws, dtype=np.float64)


def test_precision_by_hand() -> None:
    flags = np.array([True, True, False, True, False])
    assert flag_precision(LABELS, flags) == pytest.approx(2 / 3)


def test_precision_without_flags_is_none() -> None:
    assert flag_precision(LABELS, np.zeros(5, dtype=bool)) is None


def test_recall_by_hand() -> None:
    assert flag_recall(LABELS, np.array([True, True, True, False, True])) == 0.5
    assert flag_recall(LABELS, np.zeros(5, dtype=bool)) == 0.0


def test_recall_without_positives_is_none() -> None:
    assert flag_recall(np.zeros(3, dtype=np.int8), np.ones(3, dtype=bool)) is None


def test_score_at_threshold_counts_as_positive() -> None:
    scores = np.array([0.7, 0.69, 0.7, 0.1, 0.0])
    # Correct are the first, the second and the last one.
    assert accuracy(LABELS, scores, 0.7) == pytest.approx(3 / 5)


def test_accuracy_without_instances_is_none() -> None:
    assert accuracy(LABELS[:0], np.zeros(0), 0.7) is None


def test_average_precision_by_hand() -> None:
    # Positives have ranks 1 and 4: (1/1 + 2/4) / 2.
    assert average_precision(LABELS, np.array([0.9, 0.8, 0.7, 0.6, 0.5])) == pytest.approx(0.75)


def test_equal_scores_count_together() -> None:
    # All three are tied, so their order does not matter: 1/3, then 2/4.
    for labels in ([1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1]):
        scores = np.array([0.9, 0.9, 0.9, 0.1])
        found = average_precision(np.array(labels, dtype=np.int8), scores)
        assert found == pytest.approx((1 / 3 + 2 / 4) / 2)


def test_average_precision_without_positives_is_none() -> None:
    assert average_precision(np.zeros(3, dtype=np.int8), np.array([0.1, 0.2, 0.3])) is None
    assert average_precision(LABELS[:0], np.zeros(0)) is None


@settings(max_examples=50)
@given(scored())
def test_average_precision_equals_sklearn(case: tuple[Int8Array, Float64Array]) -> None:
    labels, scores = case
    assume((labels == 1).any())
    assert average_precision(labels, scores) == pytest.approx(
        average_precision_score(labels, scores)
    )


@settings(max_examples=40)
@given(scored(), st.randoms(use_true_random=False))
def test_average_precision_ignores_row_order(
    case: tuple[Int8Array, Float64Array], source: random.Random
) -> None:
    labels, scores = case
    rows = list(range(len(labels)))
    source.shuffle(rows)
    first, second = average_precision(labels, scores), average_precision(labels[rows], scores[rows])
    assert second == (None if first is None else pytest.approx(first))


@settings(max_examples=50)
@given(drawn())
def test_average_precision_draws_equal_weighted_sklearn(
    case: tuple[Int8Array, Float64Array, Int64Array, Float64Array],
) -> None:
    labels, scores, machine, draws = case
    found = average_precision_draws(labels, scores, machine, draws)
    assert found.shape == (len(draws),)
    for value, drawn_times in zip(found, draws, strict=True):
        weights = drawn_times[machine]
        if weights[labels == 1].sum() == 0:
            assert np.isnan(value)
        else:
            expected = average_precision_score(labels, scores, sample_weight=weights)
            assert value == pytest.approx(expected)


def test_machine_drawn_twice_counts_like_two_machines() -> None:
    labels = np.array([1, 0, 1], dtype=np.int8)
    scores, machine = np.array([0.9, 0.8, 0.7]), np.array([0, 1, 0])
    (twice,) = average_precision_draws(labels, scores, machine, np.array([[2.0, 1.0]]))
    rows = [0, 0, 1, 2, 2]
    assert twice == pytest.approx(average_precision(labels[rows], scores[rows]))
    # Positives at 2/2, 2/2 (tied with its copy), then 4/5 and 4/5.
    assert twice == pytest.approx((1 + 1 + 4 / 5 + 4 / 5) / 4)
