from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.defects import MECHANISMS, SUDDEN, VISIBLE, Defects
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY


def one(fatal: bool, onset: int = 10, length: int = 300) -> Defects:
    defects = Defects(4)
    rng = np.random.default_rng(1)
    defects.begin(rng, 0, 2, onset, fatal=fatal, lean=0.5, length=length)
    return defects


def whole(defects: Defects, days: int) -> list[float]:
    levels: list[float] = []
    for day in range(days):
        symptoms = defects.symptoms(0, day)
        levels += symptoms.level[0].tolist() if len(symptoms.positions) else [0.0] * RECORDS_PER_DAY
    return levels


def test_fatal_defect_grows_until_failure() -> None:
    levels = np.array(whole(one(fatal=True), 3))
    assert (levels[:11] == 0).all()
    assert (np.diff(levels[10:310]) > 0).all()
    assert (levels[310:] == 0).all()
    assert levels[309] > 0.1


def test_benign_defect_rises_and_heals() -> None:
    levels = np.array(whole(one(fatal=False), 3))
    top = int(levels.argmax())
    assert 150 < top < 170
    assert (np.diff(levels[top:310]) < 0).all()
    assert levels[309] < 0.1 * levels[top]


def test_symptoms_have_position_and_two_kinds() -> None:
    symptoms = one(fatal=True).symptoms(0, 1)
    assert symptoms.positions.tolist() == [2]
    assert symptoms.first + symptoms.second == pytest.approx(symptoms.level)
    for other in range(1, len(MECHANISMS)):
        assert len(one(fatal=True).symptoms(other, 1).positions) == 0


def test_clear_ends_all_defects_of_position() -> None:
    defects = one(fatal=True)
    defects.begin(np.random.default_rng(0), 1, 2, 0, fatal=True, lean=0.5)
    defects.begin(np.random.default_rng(0), 1, 3, 0, fatal=True, lean=0.5)
    defects.clear(2, 100)
    assert not defects.fatal[:, 2].any()
    assert defects.fatal[1, 3]
    assert defects.free(0, 100).all()
    assert defects.free(1, 100).tolist() == [True, True, True, False]
    assert len(defects.symptoms(0, 1).positions) == 0


def test_precursors_last_hours_to_weeks() -> None:
    defects, rng = Defects(2000), np.random.default_rng(0)
    for mechanism in range(len(MECHANISMS)):
        for position in range(2000):
            defects.begin(rng, mechanism, position, 0, fatal=True, lean=0.5)
    lengths = defects.end / RECORDS_PER_DAY
    for mechanism in range(len(VISIBLE)):
        short, long = np.quantile(lengths[mechanism], [0.02, 0.98])
        assert short < 1 < 8 < long
    assert (defects.end[SUDDEN] == 1).all()
