from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.evaluation.simulation.operations.month_plan import (
    Breakdown,
    ListQuality,
    MonthJob,
    MonthPlan,
    plan_month,
)
from forewarn.evaluation.simulation.operations.simulated_cluster import GPUS_PER_MACHINE, Cluster
from forewarn.features.time_units import DAY, HOUR, Nanoseconds

START = Nanoseconds(0)
REPAIRED = DAY


def _at(hours: float) -> Nanoseconds:
    return Nanoseconds(round(hours * HOUR))


def _plan(*, jobs: tuple[MonthJob, ...], breakdowns: tuple[Breakdown, ...] = ()) -> MonthPlan:
    return MonthPlan(2, START, Nanoseconds(2 * DAY), breakdowns, (), jobs)


def test_undisturbed_job_completes() -> None:
    cluster = Cluster(_plan(jobs=(MonthJob(1, _at(1), 2, 5.0),)))
    cluster.advance(_at(2))
    assert [cluster.job_on(machine) for machine in (0, 1)] == [1, 1]
    cluster.advance(_at(7))
    assert cluster.job_on(0) is None
    assert cluster.total.done == pytest.approx(5.0 * 2 * GPUS_PER_MACHINE)
    assert cluster.total.lost == cluster.total.killed == 0


def test_failure_loses_work_since_checkpoint() -> None:
    # Starts at 0, fails at 2.5 h: 2 h are saved, half an hour is lost. On the other machine the job
    # waits half an hour, works 3 h more and ends at 6.
    job, broken = MonthJob(1, START, 1, 5.0), Breakdown(0, _at(2.5), REPAIRED)
    cluster = Cluster(_plan(jobs=(job,), breakdowns=(broken,)))
    cluster.advance(_at(3))
    assert (cluster.job_on(0), cluster.job_on(1), cluster.down(0)) == (None, 1, True)
    assert cluster.total.killed == 1
    cluster.advance(_at(6.01))
    assert cluster.total.done == pytest.approx(5.0 * GPUS_PER_MACHINE)
    assert cluster.total.lost == pytest.approx(1.0 * GPUS_PER_MACHINE)


def test_drained_machine_fails_without_job() -> None:
    job, broken = MonthJob(1, _at(1), 1, 5.0), Breakdown(0, _at(2.5), REPAIRED)
    cluster = Cluster(_plan(jobs=(job,), breakdowns=(broken,)))
    cluster.drained.add(0)
    cluster.advance(_at(10))
    assert (cluster.total.killed, cluster.total.emptied, cluster.total.lost) == (0, 1, 0.0)
    assert cluster.total.isolated == pytest.approx(2.5 * GPUS_PER_MACHINE)  # until it failed


def test_requeued_job_saves_its_work() -> None:
    cluster = Cluster(_plan(jobs=(MonthJob(1, START, 1, 5.0),)))
    cluster.advance(_at(2.5))
    cluster.drained.add(0)
    cluster.requeue(0)
    cluster.advance(_at(10))
    assert cluster.total.stopped == 1
    assert cluster.total.done == pytest.approx(5.0 * GPUS_PER_MACHINE)
    assert cluster.total.lost == pytest.approx(GPUS_PER_MACHINE / 6)  # the planned restart


def test_avoided_machine_is_assigned_last() -> None:
    jobs = (MonthJob(1, _at(1), 1, 5.0), MonthJob(2, _at(2), 1, 5.0))
    cluster = Cluster(_plan(jobs=jobs))
    cluster.avoided.add(0)
    cluster.advance(_at(3))
    assert [cluster.job_on(machine) for machine in (0, 1)] == [2, 1]


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), drained=st.sets(st.integers(0, 9)))
def test_actions_do_not_change_failures(seed: int, drained: set[int]) -> None:
    plan = plan_month(10, 4, seed=seed, start=START)
    assert plan == plan_month(10, 4, seed=seed, start=START)
    seen = []
    for out in (set[int](), drained):
        cluster = Cluster(plan, drained=out)
        cluster.advance(_at(50))
        seen.append([cluster.down(machine) for machine in range(10)])
    assert seen[0] == seen[1]


def test_alerts_have_requested_quality() -> None:
    plan = plan_month(2000, 60, seed=3, start=START, odds=ListQuality(recall=0.5, precision=0.25))
    n_true = sum(alert.true for alert in plan.alerts)
    assert n_true / len(plan.breakdowns) == pytest.approx(0.5, abs=0.05)
    assert n_true / len(plan.alerts) == pytest.approx(0.25, abs=0.04)
    by_machine: dict[int, list[int]] = {}
    for breakdown in plan.breakdowns:
        by_machine.setdefault(breakdown.machine, []).append(breakdown.at)
    for alert in plan.alerts:
        soon = any(alert.at <= at < alert.at + DAY for at in by_machine.get(alert.machine, []))
        assert soon == alert.true


def test_useful_work_is_counted_completely() -> None:
    plan = plan_month(40, 10, seed=5, start=START)
    cluster = Cluster(replace(plan, breakdowns=()))
    cluster.advance(Nanoseconds(60 * DAY))
    assert cluster.total.done == pytest.approx(
        sum(j.machines * j.hours for j in plan.jobs) * GPUS_PER_MACHINE
    )
