from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import pdtrc

from forewarn.evaluation.detection.self_judgement import beyond_chance


@given(st.integers(0, 60), st.floats(0.0, 100.0))
def test_alarms_beyond_chance_are_those_of_the_poisson_distribution(
    alarms: int, expected: float
) -> None:
    chance = float(pdtrc(alarms - 1, expected)) if alarms else 1.0
    assume(abs(chance - 0.05) > 1e-9)
    assert beyond_chance(alarms, 1.0, expected) == (chance < 0.05)
