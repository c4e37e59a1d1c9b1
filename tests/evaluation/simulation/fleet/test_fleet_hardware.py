from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.fleet_hardware import (
    GPU_MODELS,
    Devices,
    Traits,
    make_layout,
)

START = np.datetime64("2025-01-01")


def test_machine_has_8_gpus_rack_4_machines() -> None:
    layout = make_layout(70, seed=1)
    assert len(layout) == 70
    assert np.bincount(layout.machine).tolist() == [8] * 8 + [6]
    assert np.bincount(layout.rack).tolist() == [32, 32, 6]
    assert layout.slot.tolist() == [position % 8 for position in range(70)]
    assert layout.machine_positions(8).tolist() == [64, 65, 66, 67, 68, 69]


def test_rack_has_one_model_and_data_centre() -> None:
    layout = make_layout(3200, seed=1)
    for rack in range(len(layout.rack_names)):
        here = layout.rack == rack
        assert len(set(layout.model[here])) == 1
        (centre,) = set(layout.centre[here])
        assert layout.rack_names[rack].startswith(layout.centre_names[centre])


def test_models_follow_their_shares() -> None:
    layout = make_layout(3200, seed=2)
    shares = np.bincount(layout.model) / len(layout)
    assert shares == pytest.approx([model.share for model in GPU_MODELS], abs=0.011)
    assert layout.model_values("limit_watts")[0] == GPU_MODELS[layout.model[0]].limit_watts


def test_serials_are_unique_strings() -> None:
    devices = Devices(make_layout(5000, 0), 0, START)
    for position in range(500):
        devices.replace(position, day=position)
    assert len(set(devices.serials)) == 5500
    assert not any(serial.isdigit() for serial in devices.serials)


def test_new_board_changes_one_position() -> None:
    devices = Devices(make_layout(16, 0), 0, START)
    before, boards = devices.traits.copy(), devices.current.copy()
    number = devices.replace(5, day=3)
    assert number == 16
    assert devices.current[5] == 16
    assert (np.delete(devices.current, 5) == np.delete(boards, 5)).all()
    for field in fields(Traits):
        old, new = getattr(before, field.name), getattr(devices.traits, field.name)
        assert np.flatnonzero(old != new).tolist() == [5]


def test_some_boards_have_frequent_errors() -> None:
    traits = Devices(make_layout(4000, 0), 0, START).traits
    for rates in (traits.ecc_per_day, traits.replays_per_day):
        assert np.median(rates) < 0.2
        assert 0.02 < (rates > 5).mean() < 0.1
    assert traits.frailty.mean() == pytest.approx(1, abs=0.05)


def test_cmdb_lists_boards_with_warranty() -> None:
    devices = Devices(make_layout(400, 0), 0, START)
    devices.replace(9, day=31)
    table = devices.cmdb()
    assert len(table) == 401
    assert table["gpu_serial"].is_monotonic_increasing
    new = table[table["gpu_serial"] == devices.serials[400]].iloc[0]
    assert (new["machine_id"], new["slot"], new["installed"]) == ("node-00001", 1, "2025-02-01")
    expiry = devices.expirations[400]
    assert expiry is None or "2027-11" < expiry < "2028-02"
    assert 0 < table["expiration_date"].isna().mean() < 0.06
