from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.defects import Symptoms
from forewarn.evaluation.simulation.fleet.environment import DaySurroundings
from forewarn.evaluation.simulation.fleet.fleet_hardware import GPU_MODELS, Devices, make_layout
from forewarn.evaluation.simulation.fleet.job_kinds import GpuLoad
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.evaluation.simulation.fleet.sensors import Readings, SensorSimulator

N = 96
SHAPE = (N, RECORDS_PER_DAY)
NONE = Symptoms(np.array([], np.int64), np.zeros((0, RECORDS_PER_DAY), "f4"), np.zeros(0, "f4"))
LAYOUT = make_layout(N, seed=0)
TRAITS = Devices(LAYOUT, 0, np.datetime64("2025-01-01")).traits
ILL = 20


def full(value: float) -> Any:
    return np.full(SHAPE, value, np.float32)


def load(utilization: float, intensity: float = 0.8) -> GpuLoad:
    busy = full(utilization) > 0
    return GpuLoad(busy, full(utilization), full(intensity), full(0.5), full(0.6) * busy)


def defect(lean: float, level: float = 1.0) -> Symptoms:
    return Symptoms(
        np.array([ILL]), np.full((1, RECORDS_PER_DAY), level, "f4"), np.array([lean], "f4")
    )


def read(
    asked: GpuLoad, *, inlet: float = 26, cap: float = 1, power_factor: float = 1, **ill: Symptoms
) -> Readings:
    symptoms = {"thermal": NONE, "power": NONE} | ill
    site = DaySurroundings(full(inlet), full(cap))
    return SensorSimulator(LAYOUT, seed=0).read(
        *(0, asked, site, TRAITS, symptoms),
        power_factor=full(power_factor),
        bandwidth_factor=full(1),
    )


def test_idle_boards_are_cool_and_empty() -> None:
    idle = read(load(0))
    assert (idle.utilization_gpu == 0).all()
    assert (idle.utilization_memory == 0).all()
    assert idle.memory_used.max() < 1000
    assert idle.temperature_gpu.max() < 55
    assert (idle.clock_sm[:, 0] == LAYOUT.model_values("idle_mhz")).all()
    assert idle.power_draw.mean(1) == pytest.approx(LAYOUT.model_values("idle_watts"), rel=0.15)


def test_busy_board_matches_data_sheet() -> None:
    busy = read(load(100, intensity=1.2))
    assert busy.power_draw.mean(1) == pytest.approx(LAYOUT.model_values("limit_watts"), rel=0.02)
    assert (busy.clock_sm <= LAYOUT.model_values("boost_mhz")[:, None]).all()
    for number, model in enumerate(GPU_MODELS):
        of_model = LAYOUT.model == number
        assert 50 < busy.temperature_gpu[of_model].mean() < 85
        used = busy.memory_used[of_model] / model.memory_mib
        assert used.max() < 0.65
    assert busy.utilization_memory.mean() == pytest.approx(49, abs=2)


def test_power_cap_lowers_clocks_and_temperature() -> None:
    free, capped = read(load(95, 1.0)), read(load(95, 1.0), cap=0.7)
    assert (capped.clock_sm.mean(1) < 0.95 * free.clock_sm.mean(1)).all()
    assert (capped.temperature_gpu.mean(1) < free.temperature_gpu.mean(1) - 3).all()
    limit = LAYOUT.model_values("limit_watts")[:, None]
    assert (capped.power_draw <= 0.7 * limit + 0.01).all()


def test_inlet_warms_boards_and_driver_shifts_power() -> None:
    cool, warm = read(load(60)), read(load(60), inlet=31)
    assert warm.temperature_gpu.mean() - cool.temperature_gpu.mean() == pytest.approx(5, abs=0.2)
    shifted = read(load(60), power_factor=1.05)
    assert shifted.power_draw.mean() / cool.power_draw.mean() == pytest.approx(1.05, abs=0.01)


def test_thermal_defect_heats_board_and_neighbours() -> None:
    well, ill = read(load(90)), read(load(90), thermal=defect(lean=1.0))
    warmer = ill.temperature_gpu.mean(1) - well.temperature_gpu.mean(1)
    machine = LAYOUT.machine == LAYOUT.machine[ILL]
    assert warmer[ILL] > 5
    assert warmer[machine].min() > 1.5
    assert abs(warmer[~machine]).max() < 0.5
    assert ill.power_draw[~machine] == pytest.approx(well.power_draw[~machine])


def test_hot_spot_throttles_at_normal_reading() -> None:
    well, ill = read(load(90)), read(load(90), thermal=defect(lean=0.0))
    assert ill.clock_sm[ILL].mean() < 0.93 * well.clock_sm[ILL].mean()
    assert ill.temperature_gpu[ILL].mean() <= well.temperature_gpu[ILL].mean()


def test_overheated_board_throttles() -> None:
    ill = read(load(100, 1.0), inlet=38, thermal=defect(lean=1.0, level=2.0))
    well = read(load(100, 1.0), inlet=26)
    assert ill.temperature_gpu[ILL].max() < 96
    assert ill.clock_sm[ILL].mean() < well.clock_sm[ILL].mean()
    assert ill.power_draw[ILL].mean() < well.power_draw[ILL].mean()


def test_power_defect_dips_or_oscillates() -> None:
    well = read(load(90)).power_draw[ILL]
    dips = read(load(90), power=defect(lean=1.0)).power_draw[ILL]
    swings = read(load(90), power=defect(lean=0.0)).power_draw[ILL]
    assert (dips < 0.85 * well).mean() > 0.3
    assert (swings < 0.85 * well).mean() < (dips < 0.85 * well).mean()
    assert swings.std() > 2 * well.std()


def test_readings_have_nvidia_smi_resolution() -> None:
    readings = read(load(70))
    for values in (readings.temperature_gpu, readings.utilization_gpu, readings.memory_used):
        assert (values == np.round(values)).all()
    assert (readings.clock_sm % 15 == 0).all()


def test_temperature_lags_over_midnight() -> None:
    telemetry = SensorSimulator(LAYOUT, seed=0)
    site = DaySurroundings(full(26), full(1))
    arguments = {"power_factor": full(1), "bandwidth_factor": full(1)}
    none = {"thermal": NONE, "power": NONE}
    telemetry.read(0, load(0), site, TRAITS, none, **arguments)
    after = telemetry.read(1, load(100, 1.0), site, TRAITS, none, **arguments).temperature_gpu
    assert after[:, 0].mean() < after[:, 1:10].mean() - 2
