from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.detection.verdict_figures import (
    Outcome,
    detection_figures,
    hindsight_figures,
    random_figures,
)

RIGHT = Outcome("a", "a", "ecc error", 4, 250.0)
MISSED = Outcome("a", None, "ecc error", 4)
WRONG = Outcome("a", "b", "aoc error", 8)
QUIET = Outcome(None, None, "", 4)
FALSE = Outcome(None, "c", "", 4)


def test_only_the_right_machine_is_right() -> None:
    found = detection_figures([RIGHT, RIGHT, MISSED, WRONG, QUIET, FALSE])
    assert found["precision"] == 2 / 4
    assert found["recall"] == 2 / 4
    assert found["f1"] == 0.5
    assert (found["false_alarms"], found["wrong"]) == (1, 1)
    assert (found["pulls"], found["faulty"]) == (6, 4)
    assert found["delay_seconds"] == {"p10": 250.0, "p50": 250.0, "p90": 250.0}
    low, high = found["f1_interval"]
    assert 0.0 <= low < 0.5 < high <= 1.0


def test_what_cannot_be_said_is_null() -> None:
    found = detection_figures([MISSED, QUIET])
    assert found["precision"] is None
    assert found["recall"] == 0.0
    assert found["delay_seconds"]["p50"] is None
    assert detection_figures([QUIET])["recall"] is None


def test_the_best_threshold_in_hindsight() -> None:
    pulls = [
        Outcome("a", None, "ecc error", 4, strongest=(("x", 0.2), ("a", 0.9))),
        Outcome(None, None, "", 4, strongest=(("b", 0.5), ("c", 0.1))),
        Outcome("d", None, "ecc error", 4, strongest=(("d", 0.3), ("d", -np.inf))),
    ]
    # At 0.3 all three are named, two of them rightly; at 0.2 the first metric of the first pull
    # names somebody else, at 0.5 the last pull is missed.
    found = hindsight_figures(pulls)
    assert found == pytest.approx({"f1": 0.8, "precision": 2 / 3, "recall": 1.0, "scale": 0.3})


def test_in_hindsight_a_weak_finding_waits_for_the_other_metrics() -> None:
    pulls = [
        Outcome("a", None, "ecc error", 4, strongest=(("b", 1.1), ("a", 1.9))),
        Outcome("c", None, "ecc error", 4, strongest=(("c", 1.1),)),
    ]
    assert hindsight_figures(pulls)["f1"] == pytest.approx(2 / 3)
    assert hindsight_figures(pulls, sure=2.0)["f1"] == 1.0


def test_who_never_names_anybody_has_nothing_in_hindsight() -> None:
    assert hindsight_figures([MISSED, QUIET])["f1"] == 0.0


def test_chance_by_arithmetic() -> None:
    found = random_figures([RIGHT, WRONG, QUIET])
    assert found["precision"] == pytest.approx((1 / 4 + 1 / 8) / 3)
    assert found["recall"] == pytest.approx((1 / 4 + 1 / 8) / 2)
