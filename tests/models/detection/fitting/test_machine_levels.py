from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.models.detection.fitting.machine_levels import machine_levels
from forewarn.models.detection.fitting.threshold_fitting import PeakScore, fit_thresholds

NAMES = ("a", "b", "c", "d")


def reached(levels: np.ndarray, names: tuple[str, ...] = NAMES) -> PeakScore:
    most = int(levels.argmax())
    highest = levels.astype(np.float32)
    return PeakScore(float(highest[most]), len(names), 0.01, names[most], False, names, highest)


def lognormal(generator: np.random.Generator, n: int, loud: float = 3.0) -> list[np.ndarray]:
    """Return the scores of four machines in n tasks; those of the first are multiplied."""
    factors = np.array([loud, 1.0, 1.0, 1.0])
    return [factors * generator.lognormal(0.0, 0.2, 4) for _ in range(n)]


@pytest.mark.parametrize(("tasks", "believed"), [(8, 1 / 17), (23, 0.5), (55, 0.75)])
def test_level_shrinks_with_few_tasks(tasks: int, believed: float) -> None:
    names = ("a", "b", "c", "d", "e", "f")
    levels = machine_levels([(names, np.array([8.0, 2.0, 2.0, 2.0, 2.0, 2.0], np.float32))] * tasks)
    # The upper fifth over all machines begins at 2; the first machine's is four times as high.
    assert levels["a"] == pytest.approx(believed * np.log(4.0))
    assert levels["b"] == pytest.approx(0.0, abs=1e-6)


def test_seven_tasks_give_no_level() -> None:
    assert machine_levels([(NAMES, np.array([9.0, 1.0, 1.0, 1.0], np.float32))] * 7) == {}


def test_missing_scores_are_ignored() -> None:
    levels = machine_levels([(NAMES, np.array([-np.inf, np.nan, 1.0, 1.0], np.float32))] * 20)
    assert set(levels) == {"c", "d"}


def test_thresholds_follow_machine_levels() -> None:
    tasks = {f"t{i}": reached(row) for i, row in enumerate(lognormal(np.random.default_rng(5), 60))}
    usual = fit_thresholds({"one": tasks}, 0.02)["one"]
    own = fit_thresholds({"one": tasks}, 0.02, stable_names=True)["one"]
    loud, quiet, stranger, _ = own.for_machines(("a", "b", "new", "d"))
    assert quiet < 0.7 * stranger
    assert stranger == usual.at(4) == own.at(4)
    assert loud > 1.5 * quiet
    assert usual.machines == {}


@settings(max_examples=40, deadline=None)
@given(
    logs=st.lists(st.lists(st.floats(-2.0, 3.0), min_size=4, max_size=4), min_size=1, max_size=30),
    days=st.sampled_from([0.001, 0.5]),
)
def test_threshold_exceeds_highest_score(logs: list[list[float]], days: float) -> None:
    tasks = {f"t{i}": reached(np.exp(np.array(row))) for i, row in enumerate(logs)}
    threshold = fit_thresholds({"one": tasks}, 0.02 / days / 100, stable_names=True)["one"]
    most = np.exp(np.max(np.array(logs), axis=0))
    known = np.array([name in threshold.machines for name in NAMES])
    assert (threshold.for_machines(NAMES)[known] >= most[known].astype(np.float32) * 0.999).all()
