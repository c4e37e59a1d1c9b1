from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from forewarn.evaluation.prediction.metrics.backtest_metrics import ChampionComparison
from forewarn.evaluation.prediction.metrics.promotion_gate import GateDecision, decide_promotion

SOUND = np.array([0.1, 0.4, 0.9])


def compared(challenger: float, champion: float, *, by_rules: bool = False) -> ChampionComparison:
    difference = challenger - champion
    interval = (difference - 0.05, difference + 0.05)
    return ChampionComparison(challenger, champion, difference, interval, (None, None), 3, by_rules)


def gate(
    comparison: ChampionComparison | None = None,
    scores: npt.NDArray[np.float64] = SOUND,
    probability: npt.NDArray[np.float64] = SOUND,
    champion: npt.NDArray[np.float64] | None = None,
    broken: Mapping[str, str] | None = None,
    first: bool = False,
) -> GateDecision:
    return decide_promotion(
        comparison,
        margin=0.25,
        scores=scores,
        probability=probability,
        champion=champion,
        broken=broken or {},
        first=first,
    )


@pytest.mark.parametrize(
    ("challenger", "promoted"), [(0.41, True), (0.4, True), (0.39, False), (0.0, False)]
)
def test_first_predictor_is_not_below_the_rules(challenger: float, promoted: bool) -> None:
    decision = gate(compared(challenger, 0.4, by_rules=True), first=True)
    assert decision.promoted == promoted
    if not promoted:
        (reason,) = decision.reasons
        assert "below the built-in rules' 0.4000" in reason
        assert f"(difference {challenger - 0.45:+.4f} to {challenger - 0.35:+.4f})" in reason


def test_first_predictor_needs_a_finished_window() -> None:
    (reason,) = gate(first=True).reasons
    assert "no finished window with a failure" in reason
    assert gate().promoted  # the champion has other columns and cannot be compared


@pytest.mark.parametrize(
    ("challenger", "promoted"),
    [(0.5, True), (0.4, True), (0.31, True), (0.29, False), (0.0, False)],
)
def test_loss_within_margin_is_tolerated(challenger: float, promoted: bool) -> None:
    found = gate(compared(challenger, 0.4))
    assert found.promoted == promoted
    assert bool(found.reasons) != promoted


def test_champion_without_hits_can_be_replaced() -> None:
    assert gate(compared(0.0, 0.0)).promoted


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ([0.2, 0.2, 0.2], "are all 0.2"),
        ([0.2, 1.2, 0.1], "outside 0 to 1"),
        ([0.2, -0.1, 0.1], "outside 0 to 1"),
        ([0.2, np.nan, 0.1], "outside 0 to 1"),
        ([], "no GPU has an instance"),
    ],
)
def test_constant_scores_are_refused(scores: list[float], why: str) -> None:
    values = np.array(scores)
    for found in (gate(scores=values), gate(probability=values)):
        (reason,) = found.reasons
        assert why in reason


def test_probabilities_far_from_champions_are_refused() -> None:
    assert gate(champion=SOUND / 10).promoted
    (reason,) = gate(champion=SOUND / 100).reasons
    assert "100 times the champion's" in reason


def test_broken_inputs_are_named() -> None:
    found = gate(broken={"power_draw": "constant", "clock_sm": "empty"})
    assert found.reasons == ("input `clock_sm` became empty", "input `power_draw` became constant")
