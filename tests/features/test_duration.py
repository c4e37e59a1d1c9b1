from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.duration import format_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (86_400, "1 day"),
        (3 * 86_400, "3 days"),
        (129_600, "1.5 days"),
        (10_800, "3 h"),
        (600, "10 min"),
        (100, "100 s"),
        (93.33, "93.3 s"),
        (86_399.7, "24 h"),
        (0.2, "200 ms"),
        (0, "0 s"),
    ],
)
def test_duration_uses_readable_units(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@given(st.floats(0.001, 1e9))
def test_formatted_duration_is_accurate(seconds: float) -> None:
    amount, unit = format_duration(seconds).split()
    length = {"day": 86_400, "days": 86_400, "h": 3600, "min": 60, "s": 1, "ms": 0.001}[unit]
    assert float(amount) * length == pytest.approx(seconds, rel=0.01)
