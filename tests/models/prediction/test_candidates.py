"""Candidates chosen slice by slice give the training sets that all instances give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.prediction.test_training_set import N_GPUS, RECIPE, START, timeline_of

from forewarn.features.prediction.instances import Instances
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.models.prediction.candidates import Candidates, KnownCounts, known
from forewarn.models.prediction.training_set import Recipe, Thinned

TIMELINE = timeline_of({1: 50, 2: 53, 4: 81})
EVERY = RECIPE.instances(TIMELINE)
MOMENT = START + 100 * HOUR
SPANS = [Nanoseconds(hours * HOUR) for hours in (45, 60, 90)]


def candidates_of(recipe: Recipe, some: Instances) -> Candidates:
    hashes = sampling_hash(recipe.seed, TIMELINE.serials, some.gpu, some.end)
    most = recipe.max_instances
    return Candidates.of(some, hashes, MOMENT, recipe.horizon, SPANS, most)


@given(
    slice_of_gpu=st.lists(st.integers(0, 3), min_size=N_GPUS, max_size=N_GPUS),
    max_instances=st.sampled_from([0, 1, 5, 14, 40, 150, 1000]),
    ratio=st.sampled_from([0.0, 0.5, 1.0, 9.0]),
    tree_negatives=st.sampled_from([1.0, 20.0]),
    seed=st.integers(0, 5),
)
def test_a_training_set_does_not_depend_on_what_is_let_go(
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
    parts = [candidates_of(recipe, EVERY.take(own == number)) for number in np.unique(own).tolist()]
    of_fleet = Candidates.joined(parts)
    if max_instances:
        most = len(EVERY.take(EVERY.label == 1)) + len(SPANS) * max_instances
        assert len(of_fleet.instances) <= most  # however many slices there are
    for span in SPANS:
        past = known(EVERY, MOMENT, span, recipe.horizon)
        whole = Thinned.of(recipe, TIMELINE, past)
        some = Thinned.of(recipe, TIMELINE, of_fleet.known(span), of_fleet.counts[span])
        assert of_fleet.counts[span] == KnownCounts.of(past)
        assert some.prevalence == whole.prevalence == float((past.label == 1).mean())
        assert some.few.tolist() == whole.few.tolist()
        for ours, theirs in zip(some.chosen.columns, whole.chosen.columns, strict=True):
            assert ours.tolist() == theirs.tolist()


def test_positives_of_all_spans_stay_and_the_negatives_of_least_hash() -> None:
    n = 8
    zeros, gpu = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int32)
    end = np.arange(n, dtype=np.int64) * HOUR
    label = np.array([0, 0, 1, 0, 0, -1, 0, 0], dtype=np.int8)
    hashes = np.array([1, 9, 5, 2, 8, 0, 7, 0], dtype=np.uint64)
    spans = [Nanoseconds(3 * HOUR), Nanoseconds(7 * HOUR)]
    candidates = Candidates.of(
        Instances(zeros, gpu, end, label), hashes, 8 * HOUR, Nanoseconds(HOUR), spans, 1
    )
    # Of [4, 7) the negatives 4 and 6, of which 6 has the lesser hash; of [0, 7) the first one.
    assert candidates.counts == {spans[0]: (0, 2), spans[1]: (1, 5)}
    assert (candidates.instances.end // HOUR).tolist() == [0, 2, 6]
    assert (candidates.known(spans[0]).end // HOUR).tolist() == [6]
    assert candidates.counts[spans[1]].prevalence == pytest.approx(1 / 6)
