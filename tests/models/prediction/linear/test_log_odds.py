from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.prediction.linear.log_odds import logit, sigmoid


@given(st.floats(1e-6, 1 - 1e-6))
def test_sigmoid_inverts_logit(probability: float) -> None:
    assert np.isclose(sigmoid(logit(probability)), probability, rtol=1e-9)


def test_range_ends_are_clipped() -> None:
    assert np.allclose(
        logit([0.0, 1e-6, 1 - 1e-6, 1.0]), [-13.815509, -13.815509, 13.8155, 13.8155]
    )


@given(st.floats(-1e6, 1e6))
def test_sigmoid_has_no_overflow(log_odds: float) -> None:
    assert 0.0 <= sigmoid(log_odds) <= 1.0


def test_sigmoid_by_hand() -> None:
    assert np.isclose(sigmoid(np.log(3.0)), 0.75)
