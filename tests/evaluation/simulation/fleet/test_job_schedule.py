from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout, make_layout
from forewarn.evaluation.simulation.fleet.job_schedule import Interruption, JobSchedule, WorkDay
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.features.array_types import BoolArray

START = np.datetime64("2025-01-01")
N_GPUS = 640


@pytest.fixture(scope="module")
def layout() -> FleetLayout:
    return make_layout(N_GPUS, seed=4)


def everywhere() -> BoolArray:
    return np.ones((N_GPUS, RECORDS_PER_DAY), bool)


def works(layout: FleetLayout, days: dict[int, list[Interruption]], n_days: int) -> list[WorkDay]:
    schedule = JobSchedule(layout, 4, START)
    return [schedule.advance(day, days.get(day, []), everywhere()) for day in range(n_days)]


def test_gpu_runs_one_job_at_a_time(layout: FleetLayout) -> None:
    stop = [Interruption(3, RECORDS_PER_DAY + 30, RECORDS_PER_DAY + 90)]
    for day, work in enumerate(works(layout, {1: stop}, 3)):
        taken = np.zeros((N_GPUS, RECORDS_PER_DAY), int)
        begin = day * RECORDS_PER_DAY
        for run in work.runs:
            taken[run.positions, max(run.start - begin, 0) : max(run.end - begin, 0)] += 1
        assert taken.max() == 1
        assert ((taken == 1) == work.load.busy).all()


def test_machines_of_a_job_are_synchronous(layout: FleetLayout) -> None:
    (work,) = works(layout, {}, 1)
    long = [run for run in work.runs if run.demand.machines > 1 and run.start < 0]
    assert long
    for run in long:
        together = work.load.utilization[run.positions][:, : min(run.end, RECORDS_PER_DAY)]
        assert (together == together[0]).all()
        assert len(set(layout.model[run.positions])) == 1


def test_failure_ends_job_on_all_machines(layout: FleetLayout) -> None:
    (before,) = works(layout, {}, 1)
    long = [r for r in before.runs if len(r.units) > 1 and r.start < 50 and r.end > 140]
    machine = int(layout.machine[long[0].positions[0]])
    (after,) = works(layout, {0: [Interruption(machine, 100, 130)]}, 1)
    positions = long[0].positions
    assert (
        after.load.utilization[positions, :100] == before.load.utilization[positions, :100]
    ).all()
    assert not after.load.busy[positions, 100].any()
    assert not after.load.busy[layout.machine_positions(machine), 100:130].any()


def test_past_does_not_depend_on_future(layout: FleetLayout) -> None:
    stops = [Interruption(machine, 100, 120) for machine in range(0, 80, 2)]
    (before,) = works(layout, {}, 1)
    (after,) = works(layout, {0: stops}, 1)
    busy = before.load.busy[:, :100] & after.load.busy[:, :100]
    assert busy.mean() > 0.8 * before.load.busy[:, :100].mean()
    share = [day.load.busy[::16, :100].mean() for day in (before, after)]
    assert share[0] == pytest.approx(share[1], abs=0.05)


def test_cordon_lasts_over_days(layout: FleetLayout) -> None:
    until = 2 * RECORDS_PER_DAY + 60
    days = works(layout, {0: [Interruption(7, 20, until)]}, 4)
    positions = layout.machine_positions(7)
    assert not days[0].load.busy[positions, 20:].any()
    assert not days[1].load.busy[positions].any()
    assert not days[2].load.busy[positions, :60].any()
    assert days[3].load.busy[positions].any()


def test_cordoned_machine_does_not_block_others(layout: FleetLayout) -> None:
    stops = [Interruption(machine, 0, 3 * RECORDS_PER_DAY) for machine in range(0, 80, 3)]
    free, held = works(layout, {}, 3), works(layout, {0: stops}, 3)
    others = layout.machine % 3 != 0
    share = [np.mean([d.load.busy[others].mean() for d in days[1:]]) for days in (free, held)]
    assert share[1] > 0.93 * share[0]
    begun = [r for day in held for r in day.runs if r.pool.whole and 0 < r.start < r.end]
    assert np.mean([len(run.units) > 1 for run in begun]) > 0.2


def test_down_gpu_has_no_load(layout: FleetLayout) -> None:
    up = everywhere()
    up[5, 40:] = False
    load = JobSchedule(layout, 4, START).advance(0, [], up).load
    assert not load.busy[5, 40:].any()
    assert (load.utilization[5, 40:] == 0).all()
    assert (load.memory[5, 40:] == 0).all()


def test_fleet_is_less_busy_on_weekends(layout: FleetLayout) -> None:
    busy = np.array([work.load.busy.mean() for work in works(layout, {}, 28)])
    assert 0.6 < busy.mean() < 0.97
    weekday = (np.arange(28) + 2) % 7  # 1 January 2025 was a Wednesday
    assert busy[weekday >= 5].mean() < busy[weekday < 5].mean()
