from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.drivers import DriverDay, Drivers
from forewarn.evaluation.simulation.fleet.fleet_hardware import FleetLayout, make_layout
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY


@pytest.fixture(scope="module")
def layout() -> FleetLayout:
    return make_layout(640, seed=0)


@pytest.fixture(scope="module")
def days(layout: FleetLayout) -> list[DriverDay]:
    drivers = Drivers(layout, seed=0)
    return [drivers.advance(day) for day in range(60)]


def test_versions_increase_and_reach_whole_fleet(
    layout: FleetLayout, days: list[DriverDay]
) -> None:
    version = np.concatenate([day.version for day in days], axis=1)
    steps = np.diff(version, axis=1)
    assert (steps >= 0).all()
    assert len(days[-1].names) == len(set(days[-1].names)) >= 4
    for number in range(2, len(days[-1].names) - 1):
        reached = (version >= number).argmax(axis=1)
        assert (version[:, -1] >= number).all()
        spread = (reached.max() - reached.min()) / RECORDS_PER_DAY
        assert 0.5 < spread < 8  # the rollout takes days
        for rack in range(len(layout.rack_names)):
            assert len(set(reached[layout.rack == rack])) == 1


def test_upgrade_reboots_its_machines(layout: FleetLayout, days: list[DriverDay]) -> None:
    reboots = {(reboot.machine, reboot.at) for day in days for reboot in day.reboots}
    version = np.concatenate([day.version for day in days], axis=1)
    upgrades = np.argwhere(np.diff(version, axis=1) > 0)
    assert len(upgrades) > 640
    assert {(int(layout.machine[p]), int(at) + 1) for p, at in upgrades} <= reboots
    assert len(reboots) > len(upgrades) / 8  # some reboots have other reasons


def test_versions_report_different_values(days: list[DriverDay]) -> None:
    day = days[-1]
    for trait in ("power", "bandwidth", "ecc", "replays", "timeouts"):
        factors = day.factor(trait)
        assert factors.shape == (640, RECORDS_PER_DAY)
        assert (factors > 0).all()
        first = days[0].factor(trait)
        assert not np.allclose(first, factors)
    assert day.factor("power") == pytest.approx(1, abs=0.1)
