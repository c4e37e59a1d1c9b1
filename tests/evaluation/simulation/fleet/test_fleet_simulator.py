from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forewarn.evaluation.simulation.fleet.collection_gaps import CollectionDay, CollectionGaps
from forewarn.evaluation.simulation.fleet.drivers import Reboot
from forewarn.evaluation.simulation.fleet.environment import DaySurroundings
from forewarn.evaluation.simulation.fleet.fault_process import FaultDay, FaultProcess
from forewarn.evaluation.simulation.fleet.fleet_hardware import GPU_MODELS, Traits
from forewarn.evaluation.simulation.fleet.fleet_simulator import simulate_fleet
from forewarn.evaluation.simulation.fleet.job_kinds import GpuLoad
from forewarn.evaluation.simulation.fleet.sensors import Readings, SensorSimulator
from forewarn.evaluation.simulation.fleet.simulated_records import RECORD_COLUMNS

SENSORS = [
    "temperature_gpu",
    "power_draw",
    "utilization_gpu",
    "utilization_memory",
    "memory_used",
    "clock_sm",
]
COUNTERS = ["ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays"]
DAY = pd.Timedelta(days=1)
INTERVAL = pd.Timedelta(minutes=10)


@dataclass(frozen=True)
class Simulated:
    records: pd.DataFrame
    truth: pd.DataFrame
    cmdb: pd.DataFrame

    def of(self, serial: str) -> pd.DataFrame:
        return self.records[self.records["gpu_serial"] == serial]


def plain(records: pd.DataFrame) -> pd.DataFrame:
    strings = records.select_dtypes("category").columns
    return records.astype(dict.fromkeys(strings, "str"))


def simulate(n_gpus: int, n_days: int, seed: int) -> Simulated:
    run = simulate_fleet(n_gpus=n_gpus, n_days=n_days, seed=seed)
    records = pd.concat([plain(day.records) for day in run], ignore_index=True)
    return Simulated(records, run.truth(), run.cmdb())


@pytest.fixture(scope="module")
def fleet() -> Simulated:
    return simulate(320, 24, seed=3)


def test_same_seed_gives_same_fleet() -> None:
    one, same, other = simulate(20, 3, 5), simulate(20, 3, 5), simulate(20, 3, 6)
    pd.testing.assert_frame_equal(one.records, same.records)
    pd.testing.assert_frame_equal(one.truth, same.truth)
    pd.testing.assert_frame_equal(one.cmdb, same.cmdb)
    assert not one.records["power_draw"].equals(other.records["power_draw"])


def test_first_days_do_not_depend_on_n_days(fleet: Simulated) -> None:
    short = simulate(320, 9, seed=3)
    head = fleet.records.iloc[: len(short.records)]
    pd.testing.assert_frame_equal(short.records, head)
    early = fleet.truth[fleet.truth["failed_at"] <= short.records["timestamp"].max()]
    pd.testing.assert_frame_equal(short.truth, early)
    assert set(short.cmdb["gpu_serial"]) <= set(fleet.cmdb["gpu_serial"])


def test_second_iteration_repeats_the_days() -> None:
    run = simulate_fleet(n_gpus=9, n_days=2, seed=1)
    first = [plain(day.records) for day in run]
    again = [plain(day.records) for day in run]
    assert len(run) == len(first) == 2
    for one, other in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_columns_and_types_match_contract() -> None:
    (day,) = simulate_fleet(n_gpus=30, n_days=1, seed=0)
    records = day.records
    assert records.columns.tolist() == [
        *("gpu_serial", "timestamp", "failure", "machine_id", "slot"),
        *SENSORS,
        *COUNTERS,
        *("pcie_link_width", "xid", "gpu_type", "driver_version", "rack", "data_center"),
        "expiration_date",
    ]
    assert records.columns.tolist() == list(RECORD_COLUMNS)
    assert str(records["timestamp"].dtype) == "datetime64[ns, UTC]"
    for name in ("failure", "slot", *COUNTERS, "pcie_link_width", "xid"):
        assert pd.api.types.is_integer_dtype(records[name].dtype)
    for name in SENSORS:
        assert pd.api.types.is_float_dtype(records[name].dtype)
    pd.to_datetime(records["expiration_date"].astype("str").dropna(), format="%Y-%m-%d")


def test_day_holds_records_of_utc_date() -> None:
    start = np.datetime64("2024-02-28")
    days = list(simulate_fleet(n_gpus=8, n_days=3, seed=0, start=start))
    assert [day.date for day in days] == ["2024-02-28", "2024-02-29", "2024-03-01"]
    for day in days:
        assert set(day.records["timestamp"].dt.strftime("%Y-%m-%d")) == {day.date}
        assert day.records["timestamp"].dt.minute.mod(10).eq(0).all()


def test_rows_are_sorted_and_unique(fleet: Simulated) -> None:
    keys = fleet.records[["timestamp", "gpu_serial"]]
    assert keys.equals(keys.sort_values(["timestamp", "gpu_serial"], ignore_index=True))
    assert not keys.duplicated().any()


def test_categories_reveal_no_other_days() -> None:
    for day in simulate_fleet(n_gpus=200, n_days=4, seed=2):
        for name in day.records.select_dtypes("category"):
            categories = day.records[name].cat.categories
            assert set(categories) == set(day.records[name].dropna())
            assert categories.is_monotonic_increasing


def test_failure_is_recorded_when_seen(fleet: Simulated) -> None:
    failed = fleet.records[fleet.records["failure"] == 1]
    first = {}
    for serial, rows in failed.groupby("gpu_serial"):
        mine = fleet.of(str(serial))
        before = mine["failure"].shift(fill_value=0)
        first[serial] = set(mine["timestamp"][(mine["failure"] == 1) & (before == 0)])
        assert len(rows) > 0
    truth = fleet.truth.groupby("gpu_serial")["failed_at"].agg(set)
    for serial, times in first.items():
        assert times <= truth[serial]
    seen = sum(len(times) for times in first.values())
    assert 10 < seen < len(fleet.truth)


def test_first_failed_record_is_never_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = CollectionGaps.advance

    def lose_all(self: CollectionGaps, day: int, reboots: Iterable[Reboot]) -> CollectionDay:
        collected = collect(self, day, reboots)
        collected.arrives[:] = False
        return collected

    monkeypatch.setattr(CollectionGaps, "advance", lose_all)
    fleet = simulate(320, 10, seed=3)
    assert len(fleet.records) > 3
    assert (fleet.records["failure"] == 1).all()
    arrived = set(zip(fleet.records["gpu_serial"], fleet.records["timestamp"], strict=True))
    assert arrived < set(zip(fleet.truth["gpu_serial"], fleet.truth["failed_at"], strict=True))


def test_new_board_keeps_earlier_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mornings: list[Traits] = []
    live = FaultProcess.advance
    used: list[Traits] = []
    read = SensorSimulator.read

    def watched_live(self: FaultProcess, day: int) -> FaultDay:
        mornings.append(self._devices.traits.copy())
        return live(self, day)

    def watched_read(
        self: SensorSimulator,
        day: int,
        load: GpuLoad,
        site: DaySurroundings,
        traits: Traits,
        *args: Any,
        **kwargs: Any,
    ) -> Readings:
        used.append(traits)
        return read(self, day, load, site, traits, *args, **kwargs)

    monkeypatch.setattr(FaultProcess, "advance", watched_live)
    monkeypatch.setattr(SensorSimulator, "read", watched_read)
    assert len(simulate(320, 12, seed=3).cmdb) > 320
    for morning, of_day in zip(mornings, used, strict=True):
        assert (morning.efficiency == of_day.efficiency).all()
        assert (morning.ecc_per_day == of_day.ecc_per_day).all()


def test_vanished_gpu_has_no_failed_record(fleet: Simulated) -> None:
    failed = fleet.records[fleet.records["failure"] == 1]
    seen = set(zip(failed["gpu_serial"], failed["timestamp"], strict=True))
    vanished = [
        row
        for row in fleet.truth.itertuples(index=False)
        if (row.gpu_serial, row.failed_at) not in seen
    ]
    assert vanished
    for row in vanished:
        times = fleet.of(str(row.gpu_serial))["timestamp"]
        assert times.empty or times.max() < row.failed_at


def test_failed_gpu_is_down_until_repair(fleet: Simulated) -> None:
    failed = fleet.records[fleet.records["failure"] == 1]
    assert failed["utilization_gpu"].dropna().eq(0).all()
    read = failed["power_draw"].notna()
    assert 0.1 < read.mean() < 0.9


def test_counters_start_at_zero_after_repair(fleet: Simulated) -> None:
    returns = 0
    for serial in fleet.truth["gpu_serial"].unique():
        mine = fleet.of(serial)
        back = (mine["failure"] == 0) & (mine["failure"].shift() == 1)
        back &= mine["timestamp"].diff() == INTERVAL  # the next record
        returns += int(back.sum())
        assert mine.loc[back, "rows_remapped"].dropna().le(1).all()
        assert mine.loc[back, "ecc_uncorrected"].dropna().le(1).all()
    assert returns > 3


def test_counters_fall_only_at_reboot_or_repair(fleet: Simulated) -> None:
    falls = 0
    for _, mine in fleet.records.groupby("gpu_serial"):
        gap = (mine["timestamp"].diff() > INTERVAL) | (mine["failure"].shift() == 1)
        # A null hides a record; the fall then shows in the next reading.
        hidden = mine[COUNTERS].isna().any(axis=1).shift(fill_value=False)
        for name in COUNTERS:
            fell = mine[name].ffill().diff().lt(0).fillna(False).astype(bool)
            falls += int(fell.sum())
            assert not (fell & ~gap & ~hidden).any()
            if name == "rows_remapped":
                assert not (fell & (mine["failure"].cummax() == 0)).any()
    assert falls > 20


def test_readings_are_physical(fleet: Simulated) -> None:
    records = fleet.records
    assert records["temperature_gpu"].dropna().between(18, 95).all()
    for name in ("utilization_gpu", "utilization_memory"):
        assert records[name].dropna().between(0, 100).all()
    assert records["slot"].between(0, 7).all()
    assert set(records["pcie_link_width"].dropna()) <= {8, 16}
    for model in GPU_MODELS:
        of_model = records[records["gpu_type"] == model.name]
        power = of_model["power_draw"].dropna()
        assert power.between(0.75 * model.idle_watts, 1.05 * model.limit_watts).all()
        assert of_model["clock_sm"].dropna().between(100, model.boost_mhz).all()
        assert of_model["memory_used"].dropna().between(0, model.memory_mib).all()


def test_records_and_values_are_missing(fleet: Simulated) -> None:
    healthy = fleet.records[fleet.records["failure"] == 0]
    for name in [*SENSORS, *COUNTERS, "pcie_link_width"]:
        assert 0.0005 < healthy[name].isna().mean() < 0.02
    steps = healthy.groupby("gpu_serial")["timestamp"].diff()
    assert 0.001 < (steps == 2 * INTERVAL).mean() < 0.02  # single missing records
    assert (steps > 6 * INTERVAL).any()
    assert 0.9 < len(fleet.records) / (320 * 24 * 144) < 1.0


def test_missing_values_do_not_predict_failures(fleet: Simulated) -> None:
    healthy = fleet.records[fleet.records["failure"] == 0]
    soon = np.zeros(len(healthy), bool)
    times = healthy["timestamp"]
    for serial, failed_at in zip(fleet.truth["gpu_serial"], fleet.truth["failed_at"], strict=True):
        before = (times < failed_at) & (times >= failed_at - 3 * DAY)
        soon |= ((healthy["gpu_serial"] == serial) & before).to_numpy()
    nulls = np.asarray(healthy[[*SENSORS, *COUNTERS]].isna().any(axis=1))
    share, expected = nulls[soon].mean(), nulls[~soon].mean()
    spread = np.sqrt(expected * (1 - expected) / soon.sum())
    assert soon.sum() > 5_000
    assert abs(share - expected) < 5 * spread


def test_records_agree_with_cmdb(fleet: Simulated) -> None:
    columns = ["gpu_serial", "machine_id", "slot", "gpu_type", "rack", "data_center"]
    seen = fleet.records[columns].drop_duplicates().sort_values("gpu_serial", ignore_index=True)
    known = fleet.cmdb[fleet.cmdb["gpu_serial"].isin(seen["gpu_serial"])]
    pd.testing.assert_frame_equal(seen, known[columns].reset_index(drop=True), check_dtype=False)


def test_fleet_has_confounders() -> None:
    fleet = simulate(320, 24, seed=4).records
    assert {13, 31, 43, 45, 63} <= set(fleet["xid"])
    versions = fleet.groupby("gpu_serial")["driver_version"].nunique()
    assert versions.gt(1).mean() > 0.5
    assert len(set(fleet["data_center"])) > 1
    assert fleet["gpu_type"].nunique() == len(GPU_MODELS)
    busy = fleet["utilization_gpu"].gt(0).groupby(fleet["timestamp"].dt.hour).mean()
    assert busy.max() - busy.min() > 0.02  # a daily cycle


@pytest.mark.parametrize(
    ("name", "value"), [("n_gpus", 0), ("n_gpus", -8), ("n_days", 0), ("seed", -1)]
)
def test_out_of_range_numbers_are_refused(name: str, value: int) -> None:
    numbers = {"n_gpus": 8, "n_days": 1, "seed": 0, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be at least .*, got {value}"):
        simulate_fleet(n_gpus=numbers["n_gpus"], n_days=numbers["n_days"], seed=numbers["seed"])


def test_start_within_a_day_is_refused() -> None:
    with pytest.raises(ValueError, match="`start` must be midnight UTC"):
        simulate_fleet(n_gpus=8, n_days=1, seed=0, start=np.datetime64("2025-01-01T06:00"))


@pytest.mark.parametrize("n_gpus", [1, 3, 11])
def test_small_and_uneven_fleets_work(n_gpus: int) -> None:
    (day,) = simulate_fleet(n_gpus=n_gpus, n_days=1, seed=0)
    assert day.records["gpu_serial"].nunique() == n_gpus
    assert day.records["machine_id"].nunique() == -(-n_gpus // 8)
