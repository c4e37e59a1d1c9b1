from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.detection.pairwise_distances import (
    DISTANCES,
    Distance,
    distance_sums,
    normal_scores,
)

ORDER = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}


@pytest.mark.parametrize("distance", DISTANCES)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 9))
def test_sums_match_plain_loop(distance: Distance, seed: int, n: int) -> None:
    generator = np.random.default_rng(seed)
    windows = generator.normal(0, 1, (3, 5, n)).astype(np.float32)
    there = generator.random((3, n)) < 0.8
    found = distance_sums(windows, there, distance)
    for w in range(3):
        for i in range(n):
            if not there[w, i]:
                assert np.isnan(found[w, i])
                continue
            wanted = sum(
                np.linalg.norm(windows[w, :, i] - windows[w, :, j], ord=ORDER[distance])
                for j in range(n)
                if there[w, j]
            )
            assert found[w, i] == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_outlier_score_is_bounded() -> None:
    """With four machines no score exceeds 1.73 (DESIGN, decision 11)."""
    for n in (4, 10, 100):
        sums = np.ones((1, n), np.float32)
        sums[0, 0] = 1e6
        assert normal_scores(sums).max() == pytest.approx(np.sqrt(n - 1), rel=1e-3)


def test_equal_machines_score_zero() -> None:
    assert (normal_scores(np.full((2, 5), 7.0, np.float32)) == 0).all()
