from __future__ import annotations

from typing import Any

import numpy as np

from forewarn.evaluation.simulation.fleet.counters import COUNTERS, CounterDay
from forewarn.evaluation.simulation.fleet.defects import MECHANISMS, Symptoms
from forewarn.evaluation.simulation.fleet.fault_process import SimulatedFailure
from forewarn.evaluation.simulation.fleet.fleet_hardware import make_layout
from forewarn.evaluation.simulation.fleet.job_schedule import Interruption, JobSchedule, WorkDay
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.evaluation.simulation.fleet.xids import XIDS, Xids

N = 320
SHAPE = (N, RECORDS_PER_DAY)
NONE = Symptoms(np.array([], np.int64), np.zeros((0, RECORDS_PER_DAY), "f4"), np.zeros(0, "f4"))
APPLICATION = [13, 31, 43, 45]


def counted(**increases: tuple[int, int, int]) -> CounterDay:
    added = {name: np.zeros(SHAPE, np.int64) for name in COUNTERS}
    for name, (position, record, count) in increases.items():
        added[name][position, record] = count
    return CounterDay({}, added, np.full(SHAPE, 16))


def xids(day: int = 0, **given: Any) -> np.ndarray:
    arguments: dict[str, Any] = {
        "counters": counted(),
        "symptoms": {"link": NONE, "power": NONE},
        "runs": (),
        "failures": (),
        "working": np.ones(SHAPE, bool),
        "timeout_factor": np.ones(SHAPE, np.float32),
    }
    return Xids(N, seed=0).advance(day, **(arguments | given))


def failure(position: int, at: int, mechanism: str) -> SimulatedFailure:
    number = MECHANISMS.index(mechanism)
    return SimulatedFailure(position, position, at, number, at + 9, at + 9, at + 1, blind=False)


def work(interruptions: list[Interruption]) -> WorkDay:
    schedule = JobSchedule(make_layout(N, 0), 0, np.datetime64("2025-01-01"))
    return schedule.advance(0, interruptions, np.ones(SHAPE, bool))


def test_counter_events_raise_xids() -> None:
    found = xids(
        counters=counted(
            rows_remapped=(1, 10, 1), ecc_uncorrected=(2, 20, 1), ecc_corrected=(3, 30, 900)
        )
    )
    assert found[1, 10] == 63
    assert found[2, 20] in (48, 94, 95)
    assert found[3, 30] == 92


def test_most_severe_xid_is_kept() -> None:
    found = xids(counters=counted(rows_remapped=(1, 10, 1), ecc_uncorrected=(1, 10, 1)))
    assert found[1, 10] in (48, 94, 95)


def test_failure_raises_xid_of_mechanism() -> None:
    seen: dict[str, set[int]] = {name: set() for name in MECHANISMS}
    for day in range(30):
        at = day * RECORDS_PER_DAY + 50
        failures = tuple(failure(i, at, name) for i, name in enumerate(MECHANISMS))
        found = xids(day, failures=failures)
        for position, name in enumerate(MECHANISMS):
            seen[name].add(int(found[position, 50]))
    assert {48, 95} < seen["memory"] <= {48, 95, 64, 0}
    assert {79, 74} <= seen["link"] <= {79, 74, 0}
    assert 79 in seen["sudden"]
    assert 0 in seen["thermal"]


def test_down_gpu_raises_no_xid() -> None:
    working = np.ones(SHAPE, bool)
    working[4, 60:] = False
    everything = CounterDay(
        {}, {name: np.ones(SHAPE, np.int64) for name in COUNTERS}, np.ones(SHAPE, np.int64)
    )
    found = xids(counters=everything, working=working, failures=(failure(4, 60, "link"),))
    assert (found[4, :60] > 0).all()
    assert (found[4, 61:] == 0).all()


def test_link_and_power_defects_raise_xids() -> None:
    level = np.full((N, RECORDS_PER_DAY), 1.0, np.float32)
    ill = Symptoms(np.arange(N), level, np.full(N, 0.5, np.float32))
    link = xids(symptoms={"link": ill, "power": NONE})
    power = xids(symptoms={"link": NONE, "power": ill})
    well = xids()
    assert (link == 74).sum() > 100 > 10 > (well == 74).sum()
    assert (power == 62).sum() > 50 > 10 > (well == 62).sum()
    assert (power == 54).sum() > 5


def test_ended_jobs_raise_application_xids() -> None:
    day = work([Interruption(machine, 70, 80) for machine in range(0, 40, 3)])
    found = xids(runs=day.runs)
    assert set(np.unique(found[found > 0])) & set(APPLICATION)
    killed = [run for run in day.runs if run.interrupted and run.start < run.end == 70]
    assert killed
    codes = np.concatenate([found[run.positions, 70] for run in killed])
    assert (codes == 45).mean() > 0.4
    assert (found[:, 69] > 0).mean() < 0.1


def test_timeout_factor_raises_timeouts() -> None:
    days = range(40)
    factor = np.full(SHAPE, 2.5, np.float32)
    often = sum((xids(day, timeout_factor=factor) == 119).sum() for day in days)
    seldom = sum((xids(day, timeout_factor=factor / 25) == 119).sum() for day in days)
    assert often > 3 * max(seldom, 1)


def test_only_known_xids_occur() -> None:
    assert len(set(XIDS)) == len(XIDS)
    assert set(np.unique(xids(runs=work([]).runs))) <= set(XIDS)
