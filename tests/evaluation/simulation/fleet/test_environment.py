from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.environment import Surroundings
from forewarn.evaluation.simulation.fleet.fleet_hardware import make_layout


def mean_inlet(start: str, n_days: int) -> float:
    site = Surroundings(make_layout(320, seed=0), 0, np.datetime64(start))
    return float(np.mean([site.advance(day).inlet.mean() for day in range(n_days)]))


def test_summer_is_warmer_than_winter() -> None:
    assert mean_inlet("2025-07-05", 20) - mean_inlet("2025-01-05", 20) > 3


def test_air_varies_smoothly_and_by_rack() -> None:
    layout = make_layout(32, seed=1)  # one rack
    site = Surroundings(layout, 5, np.datetime64("2025-01-01"))
    air = np.concatenate([site.advance(day).inlet[0] for day in range(4)])
    assert abs(np.diff(air)).max() < 0.5
    wide = Surroundings(make_layout(1280, seed=1), 5, np.datetime64("2025-01-01")).advance(0)
    assert wide.inlet[::32, 0].std() > 0.7


def test_racks_overheat_or_lack_power_occasionally() -> None:
    layout = make_layout(1280, seed=2)
    site = Surroundings(layout, 2, np.datetime64("2025-01-01"))
    days = [site.advance(day) for day in range(40)]
    cap = np.concatenate([day.cap for day in days], axis=1)
    assert 0.0005 < (cap < 1).mean() < 0.02
    assert cap.min() >= 0.65
    hit = int(np.argmin(cap.min(axis=1)))
    rack = np.flatnonzero(layout.rack == layout.rack[hit])
    assert (cap[rack] == cap[hit]).all()
    inlet = np.concatenate([day.inlet for day in days], axis=1)
    steps = np.diff(inlet, axis=1)
    assert steps.max() > 3
    assert steps.min() < -3
    assert np.median(abs(steps)) < 0.1


def test_events_continue_over_midnight() -> None:
    site = Surroundings(make_layout(1280, seed=3), 3, np.datetime64("2025-01-01"))
    days = [site.advance(day).cap for day in range(40)]
    over = [((one[:, -1] < 1) & (two[:, 0] == one[:, -1])).any() for one, two in pairwise(days)]
    assert any(over)
    for one, two in pairwise(days):
        lasting = (one[:, -1] < 1) & (two[:, 0] < 1)
        assert one[lasting, -1] == pytest.approx(two[lasting, 0])
