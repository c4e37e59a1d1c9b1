from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.continuity import levels, longest_spells


@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from([0.5, 0.9, 1.0]))
def test_a_level_is_the_highest_threshold_that_is_passed(
    seed: int, span: int, share: float
) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 6, (3, 20)).astype(np.float32)
    scores[generator.random((3, 20)) < 0.2] = np.nan
    found = levels(scores, span, share)
    needed = int(np.ceil(round(share * span, 9)))
    for machine in range(3):
        for w in range(20):
            last = scores[machine, max(0, w - span + 1) : w + 1]
            last = np.sort(last[np.isfinite(last)])[::-1]
            wanted = last[needed - 1] if len(last) >= needed else -np.inf
            assert found[machine, w] == wanted


@given(st.integers(0, 10**6), st.floats(0, 5))
def test_a_floor_changes_nothing_at_or_above_it(seed: int, floor: float) -> None:
    scores = np.random.default_rng(seed).integers(0, 6, (4, 30)).astype(np.float32)
    whole, short = levels(scores, 6, 0.9), levels(scores, 6, 0.9, floor)
    assert ((whole >= floor) == (short >= floor)).all()
    assert (whole[whole >= floor] == short[whole >= floor]).all()


@given(st.integers(0, 10**6))
def test_the_longest_spell_is_that_of_a_plain_loop(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 4, (3, 25)).astype(np.float32)
    scores[generator.random((3, 25)) < 0.2] = np.nan
    needed = generator.integers(1, 4, 3).astype(np.float32)
    for machine, (begin, end) in enumerate(longest_spells(scores, needed).tolist()):
        passed = scores[machine] >= needed[machine]
        runs = [len(run) for run in "".join("x" if one else " " for one in passed).split()]
        assert end - begin == max(runs, default=0)
        assert passed[begin:end].all()
