"""Candidates selected slice by slice give the same training sets as all instances."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.prediction.test_training_set import N_GPUS, RECIPE, START, timeline_of

from forewarn.features.prediction.instances import Instances
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.models.prediction.training_candidates import (
    KnownCounts,
    TrainingBudget,
    TrainingCandidates,
    instances_known_at,
    undersample_positives,
)
from forewarn.models.prediction.training_set import Recipe, UndersampledInstances

TIMELINE = timeline_of({1: 50, 2: 53, 4: 81})
EVERY = RECIPE.instances(TIMELINE)
MOMENT = START + 100 * HOUR
SPANS = [Nanoseconds(hours * HOUR) for hours in (45, 60, 90)]


def candidates_of(recipe: Recipe, some: Instances) -> TrainingCandidates:
    hashes = sampling_hash(recipe.seed, TIMELINE.serials, some.gpu, some.end)
    most = recipe.max_instances
    return TrainingCandidates.from_instances(some, hashes, MOMENT, recipe.horizon, SPANS, most)


@given(
    slice_of_gpu=st.lists(st.integers(0, 3), min_size=N_GPUS, max_size=N_GPUS),
    max_instances=st.sampled_from([0, 1, 5, 14, 40, 150, 1000]),
    ratio=st.sampled_from([0.0, 0.5, 1.0, 9.0]),
    tree_negatives=st.sampled_from([1.0, 20.0]),
    seed=st.integers(0, 5),
)
def test_size_limit_keeps_training_set(
    slice_of_gpu: list[int], max_instances: int, ratio: float, tree_negatives: float, seed: int
) -> None:
    recipe = replace(
        RECIPE,
        max_instances=max_instances,
        negatives_per_positive=ratio,
        tree_negatives=tree_negatives,
        seed=seed,
    )
    own = np.array(slice_of_gpu)[EVERY.gpu]
    parts = [
        candidates_of(recipe, EVERY.select(own == number)) for number in np.unique(own).tolist()
    ]
    of_fleet = TrainingCandidates.joined(parts)
    if max_instances:
        most = len(EVERY.select(EVERY.label == 1)) + len(SPANS) * max_instances
        assert len(of_fleet.instances) <= most  # for any number of slices
    for span in SPANS:
        past = instances_known_at(EVERY, MOMENT, span, recipe.horizon)
        whole = UndersampledInstances.from_instances(recipe, TIMELINE, past)
        some = UndersampledInstances.from_instances(
            recipe, TIMELINE, of_fleet.known(span), of_fleet.counts[span]
        )
        assert of_fleet.counts[span] == KnownCounts.from_instances(past)
        assert some.prevalence == whole.prevalence == float((past.label == 1).mean())
        assert some.few.tolist() == whole.few.tolist()
        for ours, theirs in zip(some.chosen.columns, whole.chosen.columns, strict=True):
            assert ours.tolist() == theirs.tolist()


def test_candidates_keep_positives_and_smallest_hashes() -> None:
    n = 8
    zeros, gpu = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int32)
    end = np.arange(n, dtype=np.int64) * HOUR
    label = np.array([0, 0, 1, 0, 0, -1, 0, 0], dtype=np.int8)
    hashes = np.array([1, 9, 5, 2, 8, 0, 7, 0], dtype=np.uint64)
    spans = [Nanoseconds(3 * HOUR), Nanoseconds(7 * HOUR)]
    candidates = TrainingCandidates.from_instances(
        Instances(zeros, gpu, end, label), hashes, 8 * HOUR, HOUR, spans, 1
    )
    # In [4, 7) the negatives are 4 and 6, of which 6 has the smaller hash; in [0, 7) it is the
    # first.
    assert candidates.counts == {spans[0]: (0, 2), spans[1]: (1, 5)}
    assert (candidates.instances.end // HOUR).tolist() == [0, 2, 6]
    assert (candidates.known(spans[0]).end // HOUR).tolist() == [6]
    assert candidates.counts[spans[1]].prevalence == pytest.approx(1 / 6)


@st.composite
def positives(draw: st.DrawFn) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    failure = np.array(draw(st.lists(st.integers(0, 8), min_size=1, max_size=40)))
    own = draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(failure), max_size=40, unique=True))
    return np.unique(failure, return_inverse=True)[1], np.array(own[: len(failure)], np.uint64)


def of_failures(failure: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return (failure.astype(np.uint64) * np.uint64(7919)) % np.uint64(31)


@given(positives(), st.integers(0, 50))
def test_every_failure_keeps_positive_first(
    case: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]], n: int
) -> None:
    failure, own = case
    chosen = undersample_positives(failure, of_failures(failure), own, n)
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
def test_row_order_does_not_matter(
    case: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]], n: int, random: Random
) -> None:
    failure, own = case
    hashes = of_failures(failure)
    rows = list(range(len(failure)))
    random.shuffle(rows)
    other = failure.max() - failure[rows]  # in reverse order
    shuffled = undersample_positives(other, hashes[rows], own[rows], n)
    chosen = undersample_positives(failure, hashes, own, n)
    assert {rows[i] for i in shuffled.tolist()} == set(chosen.tolist())


@given(
    st.integers(1, 10_000),
    st.integers(1, 500),
    st.integers(1, 100_000),
    st.integers(1, 500),
    st.floats(0.1, 100.0),
)
def test_budget_prefers_failures_to_negatives(
    most: int, positives: int, negatives: int, failures: int, ratio: float
) -> None:
    failures, most = min(failures, positives), max(most, 2)
    counts = {"positives": positives, "negatives": negatives, "failures": failures}
    budget = TrainingBudget.allocate(most, ratio=ratio, **counts)
    whole = TrainingBudget.allocate(0, ratio=ratio, **counts)
    assert budget.positives + budget.negatives <= max(most, 2)
    assert 1 <= budget.positives <= positives
    assert budget.negatives <= whole.negatives
    if failures <= most // 2:
        assert budget.positives >= failures
    if whole.positives + whole.negatives <= most:
        assert budget == whole
