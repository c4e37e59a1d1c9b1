from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.defects import MECHANISMS, SUDDEN
from forewarn.evaluation.simulation.fleet.failure_rates import FAILURES_PER_GPU_DAY, FailureRates
from forewarn.evaluation.simulation.fleet.fleet_hardware import make_layout


def total(rates: FailureRates, n_positions: int) -> float:
    boards = np.ones(n_positions, np.float32)
    each = [rates.per_day(mechanism, boards).mean() for mechanism in range(len(MECHANISMS))]
    return float(sum(each))


def test_mix_drifts_but_total_does_not() -> None:
    layout = make_layout(8000, seed=0)
    rates = FailureRates(layout, seed=0)
    shares, totals = [], []
    for day in range(60):
        rates.advance(day)
        shares.append(rates.shares)
        totals.append(total(rates, len(layout)))
    assert np.sum(shares, axis=1) == pytest.approx(1)
    assert totals == pytest.approx([FAILURES_PER_GPU_DAY] * 60, rel=0.1)
    visible = np.array(shares)[:, :SUDDEN]
    assert (visible.max(axis=0) / visible.min(axis=0) > 1.5).all()


def test_half_of_failures_have_no_precursor() -> None:
    layout = make_layout(8, seed=0)
    shares = []
    for seed in range(40):
        rates = FailureRates(layout, seed)
        rates.advance(0)
        shares.append(rates.shares)
    assert 0.4 < np.mean(shares, axis=0)[SUDDEN] < 0.65
    assert (np.mean(shares, axis=0) > 0.03).all()


def test_frailty_varies_with_unchanged_mean() -> None:
    layout = make_layout(40_000, seed=1)
    rates = FailureRates(layout, seed=1)
    rates.advance(0)
    link = rates.per_day(3, np.ones(len(layout), np.float32))
    machines = link.reshape(-1, 8)
    typical = np.median(machines, axis=1)
    assert typical.std() / typical.mean() > 0.4
    bad_slots = machines > 4 * typical[:, None]
    assert 0.01 < bad_slots.mean() < 0.03
    memory = rates.per_day(0, np.ones(len(layout), np.float32)).reshape(-1, 8)
    assert memory.max(axis=1) == pytest.approx(memory.min(axis=1))  # independent of the slot


def test_frail_board_fails_more_often() -> None:
    rates = FailureRates(make_layout(8, seed=1), seed=1)
    one = rates.per_day(SUDDEN, np.ones(8, np.float32))
    assert rates.per_day(SUDDEN, np.full(8, 3, np.float32)) == pytest.approx(3 * one)
