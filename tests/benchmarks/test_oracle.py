"""The oracle's defects against the ground truth of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.defects import VISIBLE
from forewarn.evaluation.simulation.fleet.fleet_simulator import FIRST_DAY, simulate_fleet

SIZE: dict[str, int] = {"n_gpus": 160, "n_days": 12, "seed": 5}
INTERVAL = np.timedelta64(10, "m")


@pytest.fixture(scope="module")
def oracle(benchmark_module: Callable[[str], ModuleType]) -> Any:
    return benchmark_module("oracle")


def test_fatal_defects_end_at_simulated_failures(oracle: Any) -> None:
    fleet = simulate_fleet(n_gpus=SIZE["n_gpus"], n_days=SIZE["n_days"], seed=SIZE["seed"])
    for _ in fleet:
        pass
    truth = fleet.truth()
    seen = truth[truth["mechanism"] != "sudden"]
    times = seen["failed_at"].dt.tz_localize(None).to_numpy("datetime64[ns]").tolist()
    failures = set(zip(seen["gpu_serial"], seen["mechanism"], times, strict=True))
    defects = oracle.visible_defects(**SIZE)
    ends = {
        (d.serial, VISIBLE[d.mechanism], int((FIRST_DAY + d.end * INTERVAL).astype(np.int64)))
        for d in defects
        if d.kills and d.end < SIZE["n_days"] * 144
    }
    assert failures
    assert ends <= failures
    # The remaining failures happened before their defect was seen at the start of a day.
    assert len(failures - ends) <= 1
    assert any(not d.kills for d in defects)
    assert all(len(d.levels) == d.end - d.first for d in defects)
    assert all((d.levels > 0).all() for d in defects)


def test_defects_of_last_day_have_an_outcome(oracle: Any) -> None:
    days = SIZE["n_days"]
    defects = oracle.visible_defects(**SIZE)
    longer = oracle.visible_defects(**SIZE | {"n_days": 2 * days})
    known = {(d.serial, d.mechanism, d.first): d.kills for d in longer}
    later = [d for d in defects if d.end >= days * 144]
    assert {d.kills for d in later} == {True, False}
    assert all(known[d.serial, d.mechanism, d.first] == d.kills for d in later)
    assert all(d.first < days * 144 for d in defects)


def test_fatal_defect_is_certain_within_horizon(oracle: Any) -> None:
    share = np.full(oracle.N_GROUPS, 0.25)
    probabilities = oracle.DefectProbabilities(share / 2, share, horizon=144)
    record = np.array([100, 355, 356])
    killing = oracle.Defect("a", 1, 90, 500, True, np.ones(410, np.float32))
    day, which, every = probabilities.at(killing, record).values()
    assert day.tolist() == [0.0, 0.0, 1.0]
    assert which.tolist() == [0.25] * 3
    assert every.tolist() == [0.125] * 3
    harmless = probabilities.at(killing._replace(kills=False), record)
    assert [values.tolist() for values in harmless.values()] == [[0] * 3, [0] * 3, [0.125] * 3]


def test_fatal_defect_has_higher_probability(oracle: Any) -> None:
    probabilities = oracle.DefectProbabilities.estimate(144, n_gpus=1000)
    assert (probabilities.of_all <= probabilities.of_fatal).all()
    assert (probabilities.of_fatal <= 1).all()
    assert 0 < probabilities.of_all.mean() < probabilities.of_fatal.mean()
