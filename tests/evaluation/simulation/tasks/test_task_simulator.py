from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from forewarn.evaluation.simulation.tasks.metric_profiles import METRIC_PROFILES
from forewarn.evaluation.simulation.tasks.site_conditions import draw_conditions
from forewarn.evaluation.simulation.tasks.task_faults import TASK_FAULTS, draw_fault
from forewarn.evaluation.simulation.tasks.task_simulator import (
    SimulatedTask,
    draw_machine_count,
    faulty_task,
    healthy_task,
)
from forewarn.evaluation.simulation.tasks.varied_tasks import draw_varied_count, varied_task
from forewarn.pipelines.config.settings import DetectionTable


def task(seed: int, n: int = 24, n_faulty: int = 0, seconds: int = 900) -> SimulatedTask:
    generator = np.random.default_rng(seed)
    if n_faulty:
        return faulty_task(generator, n, seconds, n_faulty)
    return healthy_task(generator, n, seconds)


def test_same_seed_gives_same_task() -> None:
    one, two = task(3, n_faulty=1), task(3, n_faulty=1)
    assert one.faults == two.faults
    for name, values in one.samples.items():
        assert np.array_equal(values, two.samples[name], equal_nan=True)
    other = task(4, n_faulty=1)
    assert not np.array_equal(other.samples["cpu_usage"], one.samples["cpu_usage"])


@pytest.mark.parametrize("n", [4, 33])
def test_metrics_stay_in_range(n: int) -> None:
    found = task(1, n)
    assert len(found.machines) == len(found.group) == n
    assert list(found.samples) == [one.name for one in METRIC_PROFILES]
    for profile in METRIC_PROFILES:
        values = found.samples[profile.name]
        assert values.shape == (n, 900)
        there = values[np.isfinite(values)]
        assert there.min() >= 0.0
        assert there.max() <= profile.top
        assert np.isnan(values).mean() < 0.25


def test_fault_kinds_match_paper_frequencies() -> None:
    generator = np.random.default_rng(0)
    counts = Counter(draw_fault(generator, 0, 0.0).kind for _ in range(20_000))
    total = sum(kind.share for kind in TASK_FAULTS)
    for kind in TASK_FAULTS:
        assert counts[kind.name] / 20_000 == pytest.approx(kind.share / total, abs=0.01)


def test_fault_shows_in_its_families_only() -> None:
    changed: list[float] = []
    for seed in range(60):
        found = task(seed, n_faulty=1)
        (fault,) = found.faults
        if fault.end < 900 or fault.spread_after < np.inf:
            continue
        for profile in METRIC_PROFILES:
            strength = fault.strength.get(profile.family)
            values = found.samples[profile.name][fault.machine]
            before = np.nanmean(values[: int(fault.start)])
            after = np.nanmean(values[int(fault.start) :])
            if strength is not None and strength > 0.8 and profile.family in ("gpu", "link", "net"):
                changed.append(after / before)
    assert len(changed) > 5
    assert max(changed) < 0.7


def test_some_faults_show_nowhere() -> None:
    """A realistic benchmark contains undetectable faults."""
    generator = np.random.default_rng(1)
    silent = sum(not draw_fault(generator, 0, 0.0).strength for _ in range(2000))
    assert 0.01 < silent / 2000 < 0.2


def test_several_machines_share_the_fault() -> None:
    found = task(5, n=4, n_faulty=2)
    one, two = found.faults
    assert one.machine != two.machine
    assert (one.kind, one.start, one.strength) == (two.kind, two.start, two.strength)


def test_sizes_cover_the_scales() -> None:
    generator = np.random.default_rng(2)
    sizes = np.array([draw_machine_count(generator) for _ in range(3000)])
    assert sizes.min() == 4
    assert 1300 < sizes.max() <= 1500
    assert 0.3 < (sizes < 40).mean() < 0.5


def test_rank_zero_differs_and_samples_are_lost() -> None:
    found = task(7)
    cpu = np.nanmedian(found.samples["cpu_usage"], axis=1)
    assert cpu[0] > np.median(cpu)
    assert np.mean([np.isnan(v).mean() for v in found.samples.values()]) > 0.0005


def test_conditions_depend_on_seed() -> None:
    limits = [metric.limits for metric in DetectionTable().metrics]
    cadences = set()
    for seed in range(12):
        conditions = draw_conditions(np.random.default_rng(seed))
        cadences.add(conditions.seconds)
        n = draw_varied_count(np.random.default_rng(seed), conditions)
        assert conditions.sizes[0] <= n <= conditions.sizes[1]
        one, again = (
            varied_task(np.random.default_rng(seed), conditions, limits, n, faulty=True)
            for _ in range(2)
        )
        for limit, metric in zip(limits, conditions.metrics, strict=True):
            values = one.samples[limit.name]
            assert values.shape == (n, conditions.samples)
            np.testing.assert_array_equal(values, again.samples[limit.name])
            shares = limit.scale(values[np.isfinite(values)])
            assert -0.001 <= shares.min() <= shares.max() <= 1.001
            if metric.quantum:
                steps = shares / metric.quantum
                assert np.abs(steps - steps.round()).max() < 0.05
        assert one.faults[0].machine < n
    assert cadences == {1, 60, 300}
