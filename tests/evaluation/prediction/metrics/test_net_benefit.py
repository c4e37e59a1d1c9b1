"""Net benefit of lists, on a table small enough to verify by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.evaluation.prediction.metrics.net_benefit import list_benefit
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.ensembles import Committee

START = pd.Timestamp("2025-03-01", tz="UTC")
PRICES = ActionCosts(100.0, 0.5, (("avoid", 1.0), ("drain", 10.0)))


def table(n_days: int = 2, **columns: Any) -> ScoreTable:
    """Return four GPUs a day with instances at 23:00; `a` fails at noon after the first list."""
    rows = [
        (day, gpu, 12 + 1 if (gpu == "a" and day == 0) else np.inf)
        for day in range(n_days)
        for gpu in "abcd"
        if not (gpu == "a" and day > 0)
    ]
    hours = np.array([hour for _, _, hour in rows])
    score = {"a": 0.9, "b": 0.8, "c": 0.3, "d": 0.1}
    chance = {"a": 0.5, "b": 0.15, "c": 0.03, "d": 0.001}
    frame = pd.DataFrame(
        {
            "test_window": START,
            "gpu_serial": [gpu for _, gpu, _ in rows],
            "machine_id": [gpu for _, gpu, _ in rows],
            "window_end": [START + pd.Timedelta(hours=24 * day + 23) for day, _, _ in rows],
            "label": np.isfinite(hours).astype("int8"),
            "sampled": True,
            "train_length_days": 9.0,
            "hours_to_failure": hours,
            "score_gbdt": [score[gpu] for _, gpu, _ in rows],
            "score_blend": [score[gpu] for _, gpu, _ in rows],
            "score_rules": [1 - score[gpu] for _, gpu, _ in rows],
            "probability": [chance[gpu] for _, gpu, _ in rows],
        }
    ).assign(**columns)
    protocol = EvaluationProtocol(
        Committee(("gbdt",), (("gbdt", 0.5),)),
        0.5,
        0.7,
        0.75,
        Nanoseconds(2 * HOUR),
        DAY,
        0,
    )
    return ScoreTable(frame, protocol)


def test_benefit_of_alternatives_by_hand() -> None:
    worth = list_benefit(table(), PRICES)
    assert worth is not None
    assert (worth.days, worth.failures, worth.empty_days) == (2, 1, 0)
    # Day 1 lists a, b, c, d; day 2 lists b, c, d. Alerts of b and c last a day, so they are
    # repeated.
    ways = worth.ways
    assert ways["nothing"].gpu_hours == 0.0
    # The top half: a, b and b, c (1.5 is rounded to 2): 4 alerts at 10 each, 50 saved; x 30 / 2.
    assert (ways["top_k"].alerts, ways["top_k"].failures_caught) == (4, 1)
    assert ways["top_k"].gpu_hours == pytest.approx((50 - 40) * 15)
    # Fixed rules list d, c, b on the first day, and d, c on the second: all wrong.
    assert ways["rules"].gpu_hours == pytest.approx(-50 * 15)
    # By probability: a (drain) and b (drain, 0.15 x 50 = 7.5 < 10: avoid), c (1.5: avoid); b, c
    # again.
    chosen = worth.chosen.worth
    assert (chosen.alerts, chosen.failures_caught) == (5, 1)
    assert chosen.gpu_hours == pytest.approx((50 - 10 - 4 * 1) * 15)
    assert chosen.precision == pytest.approx(1 / 5)


def test_curve_starts_at_one_gpu_per_day() -> None:
    worth = list_benefit(table(), PRICES)
    assert worth is not None
    first = worth.curve[0]
    assert first.listed_per_day == 1
    assert (first.worth.alerts, first.worth.precision) == (2, 0.5)
    assert first.worth.failures_caught == 1
    alerts = [point.worth.alerts for point in worth.curve]
    assert alerts == sorted(alerts)


def test_list_is_empty_on_quiet_days() -> None:
    worth = list_benefit(table(probability=0.001), PRICES)
    assert worth is not None
    assert worth.empty_days == 2
    assert worth.chosen.worth.alerts == 0
    assert worth.chosen.worth.precision is None
    assert worth.chosen.worth.gpu_hours == 0.0


def test_no_gpu_hours_without_costs() -> None:
    worth = list_benefit(table(), None)
    assert worth is not None
    assert worth.costs is None
    assert worth.chosen.worth.gpu_hours is None
    assert worth.chosen.worth.alerts == 5  # the whole daily list


def test_no_curve_without_blend() -> None:
    frame = table().frame.drop(columns="score_blend")
    assert list_benefit(ScoreTable(frame, table().protocol), PRICES) is None


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9))
def test_most_expensive_justified_action_is_chosen(chances: list[float]) -> None:
    probability = np.array(chances)
    for chance, action, cost, pays in zip(
        chances,
        PRICES.action_for(probability).tolist(),
        PRICES.cost_for(probability).tolist(),
        PRICES.pays_off(probability).tolist(),
        strict=True,
    ):
        worth = chance * 50.0
        assert action == ("drain" if worth > 10 else "avoid" if worth > 1 else "")
        assert cost == {"drain": 10.0, "avoid": 1.0, "": 0.0}[action]
        assert pays == bool(action)


def test_costs_round_trip() -> None:
    assert ActionCosts.from_dict(PRICES.to_dict()) == PRICES
    assert PRICES.break_even == pytest.approx(0.02)
