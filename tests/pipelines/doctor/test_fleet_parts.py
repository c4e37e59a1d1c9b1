"""The output of doctor does not depend on the source or on the number of parts."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.features.records.fleet_slices import assign_slices
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.doctor import examination, file_survey, fleet_parts
from forewarn.pipelines.doctor.file_keys import FleetNumbers, read_rows
from forewarn.pipelines.doctor.fleet_partition import FleetPartition
from forewarn.pipelines.doctor.fleet_parts import FleetParts
from forewarn.pipelines.storage.records import date_merge
from forewarn.pipelines.storage.records.compaction import compact_date
from forewarn.pipelines.storage.records.file_slice import FileSlice
from forewarn.pipelines.storage.records.parquet_files import ParquetSource

CONFIG = """
[records]
interval = "1h"
[windows]
length = 3
horizon = 6
step = 3
[features]
float = ["temp"]
counter = ["errors"]
history = []
peers = []
residuals = []
"""
DATES = [dt.date(2025, 1, 30) + dt.timedelta(number) for number in range(4)]
SERIALS = [f"G{number:02}" for number in range(40)]


def records() -> pd.DataFrame:
    """Return four days of 40 GPUs that report hourly: regular first, then with many anomalies."""
    times = pd.date_range(DATES[0].isoformat(), periods=96, freq="1h", tz="UTC")
    frame = pd.DataFrame(
        {
            "gpu_serial": np.repeat(SERIALS, 96),
            "timestamp": np.tile(times, 40),
            "failure": 0,
            "machine_id": np.repeat([f"m{number // 8}" for number in range(40)], 96),
            "temp": np.tile(np.arange(96.0), 40),
            "errors": np.tile(np.arange(96), 40),
        }
    )
    late = frame["machine_id"].isin(["m1", "m3"])  # clock offsets of two machines
    frame.loc[late, "timestamp"] += pd.Timedelta("10min")
    frame.loc[(frame.index % 96 > 70) & (frame["gpu_serial"] == "G05"), "failure"] = 1
    frame.loc[(frame.index % 96 > 50) & (frame["gpu_serial"] == "G06"), "machine_id"] = "m4"
    frame.loc[(frame.index % 96 > 90) & (frame["gpu_serial"] == "G07"), "errors"] = 3
    gap = (frame.index % 96 > 20) & (frame.index % 96 < 33) & (frame["gpu_serial"] == "G08")
    return frame[~gap]


def uneven(frame: pd.DataFrame) -> pd.DataFrame:
    """Return records with irregular times."""
    seconds = (frame.index.to_numpy() * 7919) % 97
    return frame.assign(timestamp=frame["timestamp"] + pd.to_timedelta(seconds, unit="s"))


def often_moved(frame: pd.DataFrame) -> pd.DataFrame:
    """Return records whose machine changes at each row except on the last day."""
    names = np.array([f"m{row % 5}" for row in frame.index])
    last = frame["timestamp"] >= pd.Timestamp(DATES[-1], tz="UTC")
    return frame.assign(machine_id=np.where(last, "m0", names))


def without_machine(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns="machine_id")


def odd(frame: pd.DataFrame) -> pd.DataFrame:
    """Return records with invalid states, and rows without keys."""
    frame = frame.astype({"failure": "float64"})
    labels = frame.index
    frame.loc[labels[5:9], "failure"] = [2.0, 0.5, -1.0, np.nan]
    frame.loc[labels[40:43], "gpu_serial"] = None
    frame.loc[labels[400:403], "timestamp"] = pd.NaT
    return frame


def write(frame: pd.DataFrame, folder: Path, name: str = "part-0.parquet") -> Path:
    day = frame["timestamp"].dt.strftime("%Y-%m-%d").fillna(DATES[0].isoformat())
    for date, rows in frame.groupby(day):
        path = folder / f"date={date}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(path, index=False)
    return folder


def compacted(folder: Path, dates: list[dt.date] = DATES) -> Path:
    """Compact dates into files of several row groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(date_merge, "_MIN_ROWS_PER_GROUP", 40)
        for date in dates:
            compact_date(folder, date)
    return folder


@pytest.fixture
def reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Path, int], bytes]:
    """Return `reported(folder, rows)`: the output of doctor, reading that many rows at once."""
    (tmp_path / "c.toml").write_text(CONFIG)

    def report(folder: Path, rows: int) -> bytes:
        arguments = ["doctor", str(folder), "--config", str(tmp_path / "c.toml")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(examination, "MAX_PART_ROWS", rows)
            patch.setattr(file_survey, "_MAX_PART_ROWS", rows)
            assert main([*arguments, "--json", "--out", str(tmp_path / "out")]) == 0
        capsys.readouterr()
        return b"".join((tmp_path / "out" / f"doctor.{kind}").read_bytes() for kind in KINDS)

    return report


KINDS = ("json", "html")
ROWS = (10**6, 1500, 300, 30)  # one part, a few, as many as slices, some of each slice


@pytest.mark.parametrize(
    "change",
    [pd.DataFrame.copy, uneven, often_moved, without_machine, odd],
    ids=lambda c: c.__name__,
)
def test_report_does_not_depend_on_parts(
    tmp_path: Path,
    reported: Callable[[Path, int], bytes],
    change: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    folder = tmp_path / "records"
    write(change(records()), folder)
    plain = [reported(folder, rows) for rows in ROWS]
    assert plain == plain[:1] * len(ROWS)
    compacted(folder, DATES[:-1])
    doubled = records().iloc[100:400:3].assign(machine_id="m0", failure=1)
    write(change(doubled), folder, "late.parquet")
    late = [reported(folder, rows) for rows in ROWS]
    assert late == late[:1] * len(ROWS)


def test_compaction_does_not_change_report(
    tmp_path: Path, reported: Callable[[Path, int], bytes]
) -> None:
    folder = tmp_path / "records"
    write(records(), folder)
    before, _ = json.JSONDecoder().raw_decode(reported(folder, 300).decode())
    compacted(folder)
    after, _ = json.JSONDecoder().raw_decode(reported(folder, 300).decode())
    assert after == before
    assert before["clocks_off_seconds"] == {"m1": 582.0, "m3": 582.0}
    assert before["serials_moved"] == 1


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the number of rows of each read."""
    numbers: list[int] = []

    def counting(source: ParquetSource, slices: tuple[int, int], fleet: FleetNumbers) -> object:
        numbers.append(FileSlice.for_slices(source, slices).n_rows)
        return read_rows(source, slices, fleet)

    monkeypatch.setattr(fleet_parts, "read_rows", counting)
    return numbers


def parts_of(folder: Path, rows_at_once: int) -> FleetParts:
    paths = sorted(folder.glob("date=*/*.parquet"))
    files = [(path, ParquetSource(path).n_rows) for path in paths]
    gpus = {serial: number for number, serial in enumerate(SERIALS)}
    return FleetParts(files, gpus, {f"m{n}": n for n in range(5)}, rows_at_once)


@pytest.mark.parametrize("n_compacted", [0, 2, 4])
def test_rows_are_read_once(tmp_path: Path, rows_read: list[int], n_compacted: int) -> None:
    """Reading rows once per part makes the time quadratic in the fleet size."""
    frame = records()
    folder = compacted(write(frame, tmp_path), DATES[:n_compacted])
    parts = list(parts_of(folder, 500))
    assert len(parts) > 7
    assert sum(len(part.rows.time) for part in parts) == len(frame) == sum(rows_read)


def test_file_replaced_between_parts_is_read(tmp_path: Path) -> None:
    folder = write(records(), tmp_path)
    parts = iter(parts_of(folder, 500))
    first = next(parts)
    for path in folder.glob("date=*/*.parquet"):
        shutil.copy(path, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)
    assert len(first.rows.time) + sum(len(part.rows.time) for part in parts) == len(records())


def test_parts_cover_slice_ranges() -> None:
    slices = assign_slices(SERIALS)
    for n_parts, n_ranges in ((1, 1), (3, 4), (64, 64), (130, 64)):
        partition = FleetPartition.from_serials(SERIALS, n_parts)
        assert partition.n_ranges == n_ranges
        assert partition.n_parts >= n_parts
        numbers = [partition.gpus(part) for part in range(partition.n_parts)]
        assert sorted(np.concatenate(numbers).tolist()) == list(range(40))
        for part, gpus in enumerate(numbers):
            first, last = partition.slices(part)
            assert ((slices[gpus] >= first) & (slices[gpus] < last)).all()
            assert partition.position[gpus].tolist() == list(range(len(gpus)))
