from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.detection.continuity import continuity_levels, longest_excursions


@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from([0.5, 0.9, 1.0]))
def test_level_is_highest_exceeded_threshold(seed: int, span: int, share: float) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 6, (3, 20)).astype(np.float32)
    scores[generator.random((3, 20)) < 0.2] = np.nan
    found = continuity_levels(scores, span, share)
    for machine in range(3):
        for last in range(20):
            thresholds = [t for t in range(6) if holds(scores[machine], last, span, share, t)]
            assert found[machine, last] == max(thresholds, default=-np.inf)


def holds(scores: np.ndarray, last: int, span: int, share: float, threshold: int) -> bool:
    """Tell by plain counting whether the span that ends at `last` is a continuity."""
    begin = last - span + 1
    inside = scores[max(begin, 0) : last + 1]
    inside = inside[np.isfinite(inside)]
    before = scores[: max(begin, 0) + 1]
    before = before[np.isfinite(before)]
    if begin < 0 or np.isnan(scores[last]) or 2 * len(inside) < span or not len(before):
        return False
    passing = (inside >= threshold).sum()
    return bool(
        min(before[-1], scores[last]) >= threshold
        and passing >= np.ceil(round(share * len(inside), 9))
    )


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_longest_excursion_matches_plain_loop(seed: int, quiet: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 4, (3, 25)).astype(np.float32)
    scores[generator.random((3, 25)) < 0.15] = np.nan
    above, below = np.full(3, 2.0, np.float32), np.full(3, 1.0, np.float32)
    words = ["".join(_letter(one) for one in row) for row in scores]
    for word, (begin, end) in zip(
        words, longest_excursions(scores, above, below, quiet), strict=True
    ):
        # A run without another one, then calm windows with only unknown ones in between.
        over = re.finditer(rf"(?=((?<!a)a+)(?!a)[ubc]*?(?:cu*){{{quiet}}})", word)
        wanted = max((len(run[1]) for run in over), default=0)
        assert end - begin == wanted, word
        assert set(word[begin:end]) <= {"a"}


def _letter(score: float) -> str:
    """A window above, between, below the thresholds, or unknown."""
    return "u" if np.isnan(score) else "a" if score >= 2 else "b" if score >= 1 else "c"
