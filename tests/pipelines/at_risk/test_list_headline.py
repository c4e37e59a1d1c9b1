from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forewarn.pipelines.at_risk.list_headline import Headline, ListFigures, headline


def words(probabilities: Sequence[float | None], **changed: Any) -> Headline:
    figures: dict[str, Any] = {
        "n_scored": 800,
        "n_unscored": 0,
        "n_blind": 0,
        "n_machines": 2,
        "n_on_machines": 16,
        "probabilities": probabilities,
        "deadline": "noon",
    }
    return headline(ListFigures(**(figures | changed)))


@pytest.mark.parametrize(
    ("probabilities", "expectation"),
    [
        ([0.02, 0.1, 0.1], "Most likely none of these 3 will fail by noon (expected number: 0.2)."),
        ([0.3, 0.3, 0.3], "Expect about 1 of these 3 to fail by noon."),
        ([0.5, 0.5, 0.5], "Expect 1 or 2 of these 3 to fail by noon."),
        ([0.9, 0.9, 0.9], "Expect 2 or 3 of these 3 to fail by noon."),
        ([0.99] * 30, "Expect about 30 of these 30 to fail by noon."),
        ([0.3, 0.8, None], "Expect about 1 of the 2 with a probability to fail by noon."),
        ([0.3, None], "The only known chance to fail by noon is 30 %."),
        ([1.0], "Its chance to fail by noon is over 99 %."),
    ],
)
def test_the_expectation_is_the_sum_of_the_probabilities(
    probabilities: list[float | None], expectation: str
) -> None:
    assert words(probabilities).expectation == expectation


@pytest.mark.parametrize(
    ("probabilities", "level"),
    [
        ([0.5, 0.1], "urgent"),
        ([0.49, 0.4], "soon"),
        ([0.1, 0.1], "calm"),
        ([None, None], "rules"),
        ([], "empty"),
    ],
)
def test_how_soon_to_act_follows_from_the_probabilities(
    probabilities: list[float | None], level: str
) -> None:
    assert words(probabilities).level == level


def test_a_quiet_list_is_no_good_news_while_gpus_are_silent() -> None:
    found = words([], n_unscored=3, n_blind=3)
    assert found.level == "soon"
    assert "silent" in found.advice


def test_held_back_flags_are_no_good_news() -> None:
    held_back = words([], n_held_back=8)
    assert held_back.level == "soon"
    assert held_back.title == "No GPU is flagged: the chances of past lists did not hold"
    assert held_back.expectation.startswith("The first 8 GPUs of the ranking would have been")
    assert "Nothing to drain" not in held_back.advice
    assert words([0.2], n_held_back=8).level == "calm"


def test_much_silence_is_part_of_the_headline() -> None:
    loud = words([0.9], n_scored=900, n_unscored=100, n_blind=100).warning
    assert loud == "100 GPUs (10 % of the fleet) sent no usable records: this list cannot see them."
    assert words([0.9], n_scored=960, n_unscored=40, n_blind=40).warning == ""


def test_the_cost_of_draining_counts_every_gpu_of_the_machines() -> None:
    assert words([0.5, 0.4]).cost.startswith("Draining both machines takes 16 GPUs out of work, ")
    assert words([None], n_machines=1).cost == "Draining the machine takes 16 GPUs out of work."
    assert words([0.5], n_machines=0).cost == ""
