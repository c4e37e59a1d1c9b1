from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.counters import COUNTERS, CounterDay, Counters
from forewarn.evaluation.simulation.fleet.defects import Symptoms
from forewarn.evaluation.simulation.fleet.fleet_hardware import Devices, make_layout
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY
from forewarn.features.array_types import BoolArray

N = 400
NONE = Symptoms(np.array([], np.int64), np.zeros((0, RECORDS_PER_DAY), "f4"), np.zeros(0, "f4"))


def defects(positions: list[int], lean: float, level: float = 1.0) -> Symptoms:
    shape = (len(positions), RECORDS_PER_DAY)
    return Symptoms(np.array(positions), np.full(shape, level, "f4"), np.full(shape[0], lean, "f4"))


def marks(*cells: tuple[int, int]) -> BoolArray:
    marked = np.zeros((N, RECORDS_PER_DAY), bool)
    for position, record in cells:
        marked[position, record] = True
    return marked


class Counting:
    def __init__(self) -> None:
        self.traits = Devices(make_layout(N, 0), 0, np.datetime64("2025-01-01")).traits
        self.counters = Counters(self.traits, seed=0)
        self.day = -1

    def advance(self, **given: Any) -> CounterDay:
        self.day += 1
        everywhere = np.ones((N, RECORDS_PER_DAY), np.float32)
        arguments: dict[str, Any] = {
            "symptoms": {"memory": NONE, "link": NONE},
            "traffic": 0.4 * everywhere,
            "counting": everywhere > 0,
            "reboots": marks(),
            "repairs": marks(),
            "ecc_factor": everywhere,
            "replay_factor": everywhere,
        }
        return self.counters.advance(self.day, self.traits, **(arguments | given))


def test_totals_accumulate_over_days() -> None:
    counting = Counting()
    first, second = counting.advance(), counting.advance()
    for name in COUNTERS:
        joined = np.concatenate([first.totals[name], second.totals[name]], axis=1)
        added = np.concatenate([first.increases[name], second.increases[name]], axis=1)
        assert (np.diff(joined, axis=1) == added[:, 1:]).all()
        assert (joined >= 0).all()


def test_reboot_keeps_row_remaps_repair_resets_all() -> None:
    counting = Counting()
    everywhere = [(position, 70) for position in range(N)]
    before = counting.advance().totals
    rebooted = counting.advance(reboots=marks(*everywhere))
    repaired = counting.advance(repairs=marks(*everywhere))
    for day, cleared in ((rebooted, set(COUNTERS) - {"rows_remapped"}), (repaired, set(COUNTERS))):
        for name in cleared:
            assert (day.totals[name][:, 70] == day.increases[name][:, 70]).all()
    kept = rebooted.totals["rows_remapped"]
    assert (np.diff(kept, axis=1) >= 0).all()
    assert (kept[:, 0] >= before["rows_remapped"][:, -1]).all()
    assert repaired.totals["rows_remapped"][:, 69].sum() > 0


def test_two_resets_in_a_day() -> None:
    counting = Counting()
    day = counting.advance(reboots=marks((0, 30), (0, 90)), ecc_factor=np.float32(1e5))
    totals, added = day.totals["ecc_corrected"][0], day.increases["ecc_corrected"][0]
    assert (totals[30:90] == np.cumsum(added[30:90])).all()
    assert (totals[90:] == np.cumsum(added[90:])).all()


def test_memory_defect_increases_errors_or_remaps() -> None:
    one, other = list(range(50)), list(range(50, 100))
    for lean, name in ((1.0, "ecc_corrected"), (0.0, "rows_remapped")):
        memory = {"memory": defects(one, lean), "link": NONE}
        added = Counting().advance(symptoms=memory).increases
        ill, well = np.median(added[name][one].sum(1)), np.median(added[name][other].sum(1))
        assert ill >= well + 2


def test_link_defect_increases_replays_or_narrows_link() -> None:
    positions = list(range(50))
    replays = Counting().advance(symptoms={"memory": NONE, "link": defects(positions, 1.0)})
    narrow = Counting().advance(symptoms={"memory": NONE, "link": defects(positions, 0.0)})
    assert np.median(replays.increases["pcie_replays"][positions].sum(1)) > 100
    assert (narrow.link_width[positions] == 8).all()
    assert (narrow.link_width[50:] == 16).mean() > 0.95
    assert (replays.link_width[positions] == 16).mean() > 0.9


def test_errors_follow_traffic_and_stop_when_down() -> None:
    still = np.zeros((N, RECORDS_PER_DAY), np.float32)
    busy = Counting().advance(traffic=still + 0.6)
    idle = Counting().advance(traffic=still)
    down = Counting().advance(counting=still > 0)
    name = "pcie_replays"
    assert busy.increases[name].sum() > 2 * idle.increases[name].sum()
    assert sum(int(down.increases[name].sum()) for name in COUNTERS) == 0


def test_healthy_boards_have_short_bursts() -> None:
    counting = Counting()
    days = [counting.advance().increases["pcie_replays"].sum(axis=1) for _ in range(40)]
    quiet = counting.traits.replays_per_day < 1
    daily = np.array(days)[:, quiet]
    assert (daily > 20).any()
    burst = daily.max(axis=0) > 20
    assert 0.005 < burst.mean() < 0.3
    assert np.median(daily[:, burst], axis=0) == pytest.approx(0, abs=2)
