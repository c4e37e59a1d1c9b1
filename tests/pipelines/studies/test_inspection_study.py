"""The study of inspections: strategies at equal node-hours, and their order where it is certain."""

from __future__ import annotations

import pytest

from forewarn.evaluation.simulation.inspections.inspected_fleet import FleetRates, InspectedFleet
from forewarn.pipelines.studies.inspection_study import STRATEGIES, report_lines, run_study

RATES = FleetRates(machines=80, days_between_defects=60.0)


def test_strategies_cost_the_same_and_the_oracle_is_best() -> None:
    rows = {row.strategy: row for row in run_study([1], rates=RATES, days=60)}
    assert tuple(rows) == STRATEGIES
    assert rows["none"].node_hours == 0.0
    assert rows["none"].prevented == 0
    spent = [rows[name].node_hours for name in ("random", "oldest first", "list")]
    assert spent == pytest.approx([80 / 30 * 2 * 60] * 3, rel=0.05)
    assert rows["oracle"].incidents < min(rows[name].incidents for name in STRATEGIES[:4])
    assert rows["oracle"].node_hours < spent[0]
    assert rows["list, a tenth at random"].drawn > 0
    assert len(list(report_lines(list(rows.values())))) == 1 + len(STRATEGIES) + 1


def test_seed_decides_the_fleet() -> None:
    first, second, other = (run_study([seed], rates=RATES, days=30) for seed in (3, 3, 4))
    assert first == second
    assert first != other


def test_list_is_calibrated() -> None:
    """Among machines with a probability of p, about p have a latent defect that it can see."""
    rates = FleetRates(machines=1500, separation=2.0)
    fleet = InspectedFleet(rates, seed=2)
    expected = actual = 0.0
    for _ in range(80):
        fleet.next_day()
        if fleet.day >= 40:
            chosen = fleet.in_service & (fleet.listed_probabilities() > 0.05)
            expected += fleet.listed_probabilities()[chosen].sum()
            actual += ((fleet.defect[chosen] >= 0) & (fleet.defect[chosen] < 3)).sum()
    assert actual == pytest.approx(expected, rel=0.35)


def test_sudden_defects_cannot_be_prevented() -> None:
    rates = FleetRates(machines=40, days_between_defects=20.0, sudden=1.0, failed_repairs=0.0)
    rows = run_study([1], rates=rates, days=40)
    assert {row.prevented for row in rows} == {0}
