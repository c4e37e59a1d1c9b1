from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.defects import MECHANISMS, SUDDEN, VISIBLE
from forewarn.evaluation.simulation.fleet.failure_rates import FAILURES_PER_GPU_DAY
from forewarn.evaluation.simulation.fleet.fault_process import (
    BLIND_FAILED,
    SEEN_FAILED,
    SILENT_FAILED,
    FaultDay,
    FaultProcess,
    SimulatedFailure,
)
from forewarn.evaluation.simulation.fleet.fleet_hardware import Devices, FleetLayout, make_layout
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY

N_DAYS = 70


@dataclass(frozen=True)
class Lived:
    layout: FleetLayout
    days: list[FaultDay]

    @property
    def failures(self) -> list[SimulatedFailure]:
        return [failure for day in self.days for failure in day.failures]


def live(n_gpus: int, n_days: int, seed: int) -> Lived:
    layout = make_layout(n_gpus, seed)
    process = FaultProcess(layout, Devices(layout, seed, np.datetime64("2025-01-01")), seed)
    return Lived(layout, [process.advance(day) for day in range(n_days)])


@pytest.fixture(scope="module")
def lived() -> Lived:
    return live(6000, N_DAYS, seed=7)


def test_monthly_failure_rate_is_8_percent(lived: Lived) -> None:
    rate = len(lived.failures) / (6000 * N_DAYS)
    assert 0.7 < rate / FAILURES_PER_GPU_DAY < 1.3


def test_few_machines_have_most_failures(lived: Lived) -> None:
    machines = lived.layout.machine[[failure.position for failure in lived.failures]]
    counts = np.sort(np.bincount(machines, minlength=750))[::-1]
    by_chance = np.random.default_rng(0).poisson(counts.mean(), 750 * 20).reshape(20, 750)
    top = counts[:75].sum() / counts.sum()
    top_by_chance = np.sort(by_chance)[:, -75:].sum() / by_chance.sum()
    assert top > 1.2 * top_by_chance
    assert counts.var() > 1.5 * counts.mean()


def test_repaired_machines_often_relapse(lived: Lived) -> None:
    at = np.array([failure.at for failure in lived.failures])
    machine = lived.layout.machine[[failure.position for failure in lived.failures]]
    back = np.array([failure.down_until for failure in lived.failures])
    week = 7 * RECORDS_PER_DAY
    again = [
        ((machine == machine[i]) & (at >= back[i]) & (at < back[i] + week)).any()
        for i in np.flatnonzero(back < (N_DAYS - 7) * RECORDS_PER_DAY)
    ]
    assert 0.2 < np.mean(again) < 0.5  # 0.31 in the trace


def test_downtime_matches_trace(lived: Lived) -> None:
    days = [(failure.down_until - failure.at) / RECORDS_PER_DAY for failure in lived.failures]
    assert np.median(days) == pytest.approx(0.85, rel=0.25)
    assert np.quantile(days, 0.9) == pytest.approx(12.9, rel=0.3)


def test_all_mechanisms_occur_half_sudden(lived: Lived) -> None:
    counts = np.bincount([f.mechanism for f in lived.failures], minlength=len(MECHANISMS))
    assert counts.min() > 20
    assert 0.3 < counts[SUDDEN] / counts.sum() < 0.7


def test_vanished_gpus_never_return(lived: Lived) -> None:
    vanished = [failure for failure in lived.failures if failure.vanished]
    assert 0.04 < len(vanished) / len(lived.failures) < 0.25
    gone = {failure.device: failure.at for failure in vanished}
    assert len(gone) == len(vanished)
    for day in lived.days:
        for repair in day.repairs:
            assert repair.at < gone.get(repair.device, repair.at + 1)
        for failure in day.failures:
            assert failure.at <= gone.get(failure.device, failure.at)


def test_repairs_end_failures(lived: Lived) -> None:
    due = {(f.position, f.down_until): f.device for f in lived.failures}
    repairs = [repair for day in lived.days for repair in day.repairs]
    assert len(repairs) > 500
    assert all((repair.position, repair.at) in due for repair in repairs)
    same = [due[repair.position, repair.at] == repair.device for repair in repairs]
    assert 0.5 < np.mean(same) < 0.75  # the others got a new board


def test_status_shows_working_gpus(lived: Lived) -> None:
    status = np.concatenate([day.status for day in lived.days], axis=1)
    expected = np.zeros_like(status)
    for failure in lived.failures:
        shown = BLIND_FAILED if failure.blind else SEEN_FAILED
        expected[failure.position, failure.at : failure.shown_until] = shown
        expected[failure.position, failure.shown_until : failure.down_until] = SILENT_FAILED
    assert (status == expected).all()


def test_fleet_starts_working_with_defects(lived: Lived) -> None:
    down = set(np.flatnonzero(~lived.days[0].up[:, 0]).tolist())
    assert down <= {failure.position for failure in lived.failures if failure.at == 0}
    ill = sum((s.level[:, 0] > 0).sum() for s in lived.days[0].symptoms.values())
    assert ill > 10


def test_benign_defects_match_fatal_ones(lived: Lived) -> None:
    ill = {
        (mechanism, int(position))
        for day in lived.days[10:40]
        for mechanism, symptoms in day.symptoms.items()
        for position in symptoms.positions[symptoms.level.max(axis=1) > 0.3]
    }
    failed = {(MECHANISMS[f.mechanism], f.position) for f in lived.failures}
    assert 0.25 < len(ill - failed) / len(ill) < 0.75


def test_sudden_failure_has_no_symptoms(lived: Lived) -> None:
    assert set(lived.days[0].symptoms) == set(VISIBLE)
    sudden = [f for f in lived.failures if f.mechanism == SUDDEN]
    ill = [
        any(
            f.position in s.positions for s in lived.days[f.at // RECORDS_PER_DAY].symptoms.values()
        )
        for f in sudden
    ]
    assert np.mean(ill) < 0.1  # by chance, from another defect


def test_visible_failures_have_precursors(lived: Lived) -> None:
    showed = []
    for failure in lived.failures:
        day, record = divmod(failure.at, RECORDS_PER_DAY)
        if failure.mechanism != SUDDEN and record > 0:
            symptoms = lived.days[day].symptoms[MECHANISMS[failure.mechanism]]
            level = symptoms.level[symptoms.positions == failure.position]
            showed.append(bool((level[:, record - 1] > 0).any()))
            assert (level[:, record:] == 0).all()
    assert np.mean(showed) > 0.9  # except relapses on the day of the repair


def test_failure_mix_drifts() -> None:
    halves = np.zeros((2, len(MECHANISMS)))
    lived = live(20_000, 60, seed=1)
    for failure in lived.failures:
        halves[int(failure.at >= 30 * RECORDS_PER_DAY), failure.mechanism] += 1
    expected = halves.sum(axis=0) * halves.sum(axis=1, keepdims=True) / halves.sum()
    chi_square = ((halves - expected) ** 2 / expected).sum()
    assert chi_square > 23.5  # 4 degrees of freedom, p = 0.0001


def test_past_does_not_depend_on_future() -> None:
    short, long = live(800, 8, seed=2), live(800, 20, seed=2)
    assert [day.failures for day in short.days] == [day.failures for day in long.days[:8]]
