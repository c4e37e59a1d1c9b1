"""A half-life is chosen by what was known: a worked fleet of twelve instances."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

LABELS = np.array([0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0], np.int8)
GOOD, BAD = np.array([0.1, 0.9, 0.2, 0.3]), np.array([0.9, 0.1, 0.8, 0.7])


class Labelled(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.label)


def study(labels: Any = LABELS, n_known: tuple[int, ...] = (0, 4, 7)) -> Any:
    """Return three windows of four instances; a retraining knows the labels of the first ones."""
    windows = [
        SimpleNamespace(
            tested=np.arange(4 * number, 4 * number + 4),
            known=np.arange(known),
            labels=labels[:known],
        )
        for number, known in enumerate(n_known)
    ]
    instances = Labelled(label=labels)
    return SimpleNamespace(windows=windows, instances=instances, machine=np.arange(12) % 3)


@pytest.fixture(scope="module")
def chosen(benchmark_module: Callable[[str], ModuleType]) -> Any:
    return benchmark_module("half_lives").chosen_half_lives


def test_the_best_so_far_is_chosen_and_before_that_the_default(chosen: Any) -> None:
    assert chosen(study(), {4: [BAD, BAD, BAD], 2: [GOOD, BAD, BAD]}) == [4, 2, 2]


def test_of_equal_ones_the_first_is_chosen(chosen: Any) -> None:
    assert chosen(study(), {4: [GOOD] * 3, 2: [GOOD] * 3}) == [4, 4, 4]


def test_the_last_window_with_a_known_failing_instance_can_decide_alone(chosen: Any) -> None:
    # In the second window instance 4 fails, which is known: there the default ranks it first.
    scores = {4: [BAD, np.array([0.9, 0.1, 0.2, 0.3]), BAD], 2: [GOOD, BAD[::-1], BAD]}
    assert chosen(study(), scores) == [4, 2, 2]
    assert chosen(study(), scores, last=True) == [4, 2, 4]
    nothing_fails = np.where(np.arange(12) == 4, 0, LABELS).astype(np.int8)
    assert chosen(study(nothing_fails), scores, last=True) == [4, 2, 2]


def test_nothing_known_fails_then_the_default_is_taken(chosen: Any) -> None:
    healthy = np.zeros(12, np.int8)
    assert chosen(study(healthy), {4: [BAD] * 3, 2: [GOOD] * 3}) == [4, 4, 4]


def test_labels_that_are_not_known_yet_change_no_choice(chosen: Any) -> None:
    scores = {4: [BAD, GOOD, GOOD], 2: [GOOD, BAD, BAD]}
    before = chosen(study(), scores)
    future = LABELS.copy()
    future[7:] = 1 - future[7:]
    other = study(future)
    assert chosen(other, scores) == before
