from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.detection.verdict_evaluation import (
    PullOutcome,
    evaluate_best_thresholds,
    evaluate_random_guess,
    evaluate_verdicts,
)

RIGHT = PullOutcome("a", "a", "ecc error", 4, 250.0)
MISSED = PullOutcome("a", None, "ecc error", 4)
WRONG = PullOutcome("a", "b", "aoc error", 8)
QUIET = PullOutcome(None, None, "", 4)
FALSE = PullOutcome(None, "c", "", 4)


def test_only_faulty_machine_counts_as_hit() -> None:
    found = evaluate_verdicts([RIGHT, RIGHT, MISSED, WRONG, QUIET, FALSE])
    assert found["precision"] == 2 / 4
    assert found["recall"] == 2 / 4
    assert found["f1"] == 0.5
    assert (found["false_alarms"], found["wrong"]) == (1, 1)
    assert (found["pulls"], found["faulty"]) == (6, 4)
    assert found["delay_seconds"] == {"p10": 250.0, "p50": 250.0, "p90": 250.0}
    low, high = found["f1_interval"]
    assert 0.0 <= low < 0.5 < high <= 1.0


def test_undefined_metrics_are_null() -> None:
    found = evaluate_verdicts([MISSED, QUIET])
    assert found["precision"] is None
    assert found["recall"] == 0.0
    assert found["delay_seconds"]["p50"] is None
    assert evaluate_verdicts([QUIET])["recall"] is None


def test_best_threshold_maximizes_f1() -> None:
    pulls = [
        PullOutcome("a", None, "ecc error", 4, strongest=(("x", 0.2), ("a", 0.9))),
        PullOutcome(None, None, "", 4, strongest=(("b", 0.5), ("c", 0.1))),
        PullOutcome("d", None, "ecc error", 4, strongest=(("d", 0.3), ("d", -np.inf))),
    ]
    # At 0.3 all three pulls have a reported machine, two of them the right one. At 0.2 the first
    # metric of the first pull reports another machine; at 0.5 the last pull is missed.
    found = evaluate_best_thresholds(pulls)
    assert found == pytest.approx({"f1": 0.8, "precision": 2 / 3, "recall": 1.0, "scale": 0.3})


def test_weak_finding_yields_to_other_metrics() -> None:
    pulls = [
        PullOutcome("a", None, "ecc error", 4, strongest=(("b", 1.1), ("a", 1.9))),
        PullOutcome("c", None, "ecc error", 4, strongest=(("c", 1.1),)),
    ]
    assert evaluate_best_thresholds(pulls)["f1"] == pytest.approx(2 / 3)
    assert evaluate_best_thresholds(pulls, sure=2.0)["f1"] == 1.0


def test_method_without_alarms_scores_zero() -> None:
    assert evaluate_best_thresholds([MISSED, QUIET])["f1"] == 0.0


def test_random_guess_matches_expectation() -> None:
    found = evaluate_random_guess([RIGHT, WRONG, QUIET])
    assert found["precision"] == pytest.approx((1 / 4 + 1 / 8) / 3)
    assert found["recall"] == pytest.approx((1 / 4 + 1 / 8) / 2)
