from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forewarn.pipelines.at_risk.list_headline import Headline, ListFigures, headline


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
    ("probabilities", "expectation"),
    [
        ([0.02, 0.1, 0.1], "Most likely none of these 3 will fail by noon (expected number: 0.2)."),
        ([0.3, 0.3, 0.3], "Expect about 1 of these 3 to fail by noon."),
        ([0.5, 0.5, 0.5], "Expect 1 or 2 of these 3 to fail by noon."),
        ([0.9, 0.9, 0.9], "Expect 2 or 3 of these 3 to fail by noon."),
        ([0.99] * 30, "Expect about 30 of these 30 to fail by noon."),
        ([0.3, 0.8, None], "Expect about 1 of the 2 with a probability to fail by noon."),
        ([0.3, None], "The GPU with a known probability fails by noon with probability 30 %."),
        ([1.0], "It fails by noon with probability over 99 %."),
    ],
)
def test_expected_failures_sum_probabilities(
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
def test_urgency_follows_probabilities(probabilities: list[float | None], level: str) -> None:
    assert words(probabilities).level == level


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
