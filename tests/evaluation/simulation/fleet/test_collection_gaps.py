from __future__ import annotations

import numpy as np

from forewarn.evaluation.simulation.fleet.collection_gaps import CollectionGaps
from forewarn.evaluation.simulation.fleet.drivers import Reboot
from forewarn.evaluation.simulation.fleet.fleet_hardware import make_layout
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY


def test_reboot_gap_spans_midnight() -> None:
    layout = make_layout(32, seed=0)
    collection = CollectionGaps(layout, seed=0)
    first = collection.advance(0, [Reboot(1, RECORDS_PER_DAY - 1, 3)])
    second = collection.advance(1, [])
    assert not first.arrives[8:16, -1].any()
    assert not second.arrives[8:16, :2].any()
    assert first.arrives[:8].mean() > 0.9


def test_single_records_and_machines_are_missing() -> None:
    layout = make_layout(1600, seed=1)
    collection = CollectionGaps(layout, seed=1)
    days = [collection.advance(day, []).arrives for day in range(20)]
    missing = ~np.concatenate(days, axis=1)
    assert 0.002 < missing.mean() < 0.03
    whole = missing.reshape(200, 8, -1).all(axis=1)
    assert whole.any()
    lone = missing.reshape(200, 8, -1).sum(axis=1) == 1
    assert lone.sum() > 1000


def test_values_are_missing_singly_and_together() -> None:
    day = CollectionGaps(make_layout(1600, seed=2), seed=2).advance(0, [])
    one, other = day.is_null(), day.is_null()
    assert 0.001 < one.mean() < 0.005
    both = (one & other).mean()
    assert both > 50 * one.mean() * other.mean()
    assert (one != other).any()
