"""The period of a job's steps is found on all machines together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.detection.rhythm import find_period


def steps(period: int, share: float, n: int = 6, ticks: int = 900) -> np.ndarray:
    """Return machines that work for a share of each period and then wait."""
    phase = np.arange(ticks) % period
    return np.tile((phase < share * period).astype(np.float32), (n, 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(12, 100), st.floats(0.2, 0.8), st.floats(0.0, 0.3), st.integers(0, 10**6))
def test_period_is_found_in_noise(period: int, share: float, noise: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    series = steps(period, share) + generator.normal(0, noise, (6, 900)).astype(np.float32)
    found = find_period(series.astype(np.float32), 9, 120)
    assert min(abs(found - k * period) for k in (1, 2)) <= 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_noise_has_no_period(seed: int) -> None:
    series = np.random.default_rng(seed).normal(0, 1, (6, 900)).astype(np.float32)
    assert find_period(series, 9, 120) == 0


def test_single_change_is_no_period() -> None:
    series = np.zeros((6, 900), np.float32)
    series[:, 400:] = 1.0
    assert find_period(series, 9, 120) == 0


@pytest.mark.parametrize("gone", [slice(0, 6), slice(0, 2)])
def test_missing_samples_are_allowed(gone: slice) -> None:
    series = steps(20, 0.7)
    series[gone, 100:130] = np.nan
    assert find_period(series, 9, 120) == 20


def test_no_samples_no_period() -> None:
    assert find_period(np.full((3, 900), np.nan, np.float32), 9, 120) == 0
    assert find_period(np.zeros((3, 20), np.float32), 9, 120) == 0
