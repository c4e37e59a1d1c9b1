from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.pipelines.at_risk.list_headline import Headline, ListFigures, headline
from forewarn.pipelines.rendering.templates import chance_text


def words(probabilities: Sequence[float | None], **changed: Any) -> Headline:
    figures: dict[str, Any] = {
        "n_scored": 800,
        "n_unscored": 0,
        "n_without_data": 0,
        "n_machines": 2,
        "n_on_machines": 16,
        "probabilities": probabilities,
        "deadline": "noon",
    }
    return headline(ListFigures(**(figures | changed)))


@pytest.mark.parametrize(
    ("probabilities", "which", "chance", "expected"),
    [
        ([0.02, 0.1, 0.1], "these 3", "21 %", "0.2"),  # 1 - 0.98 x 0.9 x 0.9 = 0.206
        ([0.3, 0.3, 0.3], "these 3", "66 %", "0.9"),  # 1 - 0.7^3 = 0.657
        ([0.99] * 30, "these 30", "over 99 %", "29.7"),
        ([0.3, 0.8, None], "the 2 with a probability", "86 %", "1.1"),  # 1 - 0.7 x 0.2
    ],
)
def test_expectation_is_derived_from_probabilities(
    probabilities: list[float | None], which: str, chance: str, expected: str
) -> None:
    assert words(probabilities).expectation == (
        f"At least one of {which} fails by noon with probability {chance}; "
        f"expected number: {expected}."
    )


def test_single_probability_is_given_as_it_is() -> None:
    of_one = "The GPU with a known probability fails by noon with probability 30 %."
    assert words([0.3, None]).expectation == of_one
    assert words([1.0]).expectation == "It fails by noon with probability over 99 %."


@pytest.mark.parametrize(
    ("probabilities", "level"),
    [
        ([0.5, 0.1], "urgent"),
        ([0.49, 0.4], "soon"),
        ([0.1, 0.1], "calm"),
        ([0.05] * 10, "calm"),  # 0.5 failures are expected; none with probability 60 %
        ([0.07] * 10, "soon"),  # 0.7 failures; none with probability 48 %
        ([None, None], "rules"),
        ([], "empty"),
    ],
)
def test_urgency_follows_probabilities(probabilities: list[float | None], level: str) -> None:
    assert words(probabilities).level == level


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=20))
def test_sentences_agree_with_the_chance(probabilities: list[float]) -> None:
    none_fails = 1.0
    for probability in probabilities:
        none_fails *= 1.0 - probability
    shown = words(probabilities)
    assert f"with probability {chance_text(1.0 - none_fails)};" in shown.expectation
    assert ("more likely than not" in shown.advice) == (
        max(probabilities) >= 0.5 or 1.0 - none_fails >= 0.5
    )


def test_empty_list_warns_about_missing_data() -> None:
    found = words([], n_unscored=3, n_without_data=3)
    assert found.level == "soon"
    assert "sent no data" in found.advice


def test_blocked_flags_are_explained() -> None:
    blocked = words([], n_blocked=8)
    assert blocked.level == "soon"
    assert blocked.title == "No GPU is flagged: recent probabilities were not calibrated"
    assert blocked.expectation.startswith("The first 8 GPUs of the ranking would have been")
    assert "Nothing to drain" not in blocked.advice
    assert words([0.2], n_blocked=8).level == "calm"


def test_missing_data_is_in_headline() -> None:
    warning = words([0.9], n_scored=900, n_unscored=100, n_without_data=100).warning
    assert warning == (
        "100 GPUs (10 % of the fleet) sent no usable records and could not be scored."
    )
    assert words([0.9], n_scored=960, n_unscored=40, n_without_data=40).warning == ""


def test_drain_cost_counts_all_machine_gpus() -> None:
    assert words([0.5, 0.4]).cost.startswith(
        "Draining both machines takes 16 GPUs out of service, "
    )
    assert words([None], n_machines=1).cost == "Draining the machine takes 16 GPUs out of service."
    assert words([0.5], n_machines=0).cost == ""
