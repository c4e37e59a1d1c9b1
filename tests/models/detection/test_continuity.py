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
    needed = int(np.ceil(round(share * span, 9)))
    for machine in range(3):
        for w in range(20):
            last = scores[machine, max(0, w - span + 1) : w + 1]
            last = np.sort(last[np.isfinite(last)])[::-1]
            wanted = last[needed - 1] if len(last) >= needed else -np.inf
            assert found[machine, w] == wanted


@given(st.integers(0, 10**6), st.floats(0, 5))
def test_floor_keeps_levels_above_it(seed: int, floor: float) -> None:
    scores = np.random.default_rng(seed).integers(0, 6, (4, 30)).astype(np.float32)
    whole, short = continuity_levels(scores, 6, 0.9), continuity_levels(scores, 6, 0.9, floor)
    assert ((whole >= floor) == (short >= floor)).all()
    assert (whole[whole >= floor] == short[whole >= floor]).all()


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
