from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.features.errors import InputError
from forewarn.pipelines.storage.evidence.daily_lists import DailyLists


def write(folder: Path, date: str = "2026-03-01", **changes: Any) -> Path:
    day = folder / f"date={date}"
    day.mkdir(parents=True, exist_ok=True)
    columns = {"gpu_serial": ["b", "a"], "rank": [2, 1], "flagged": [False, True]} | changes
    pd.DataFrame(columns).to_parquet(day / "at_risk.parquet", index=False)
    return day


def test_rows_come_by_rank(tmp_path: Path) -> None:
    write(tmp_path)
    daily = DailyLists(tmp_path).read("2026-03-01")
    assert daily is not None
    assert [row["gpu_serial"] for row in daily.rows(0, 10)] == ["a", "b"]
    assert [row["gpu_serial"] for row in daily.rows(1, 10)] == ["b"]
    assert [row["gpu_serial"] for row in daily.rows(0, 10, flagged=True)] == ["a"]
    assert daily.row("c") is None
    assert daily.extract("a") == {}


def test_newest_list_is_first(tmp_path: Path) -> None:
    for date in ("2026-02-28", "2026-03-02", "2026-03-01"):
        write(tmp_path, date)
    lists = DailyLists(tmp_path)
    assert lists.dates() == ["2026-03-02", "2026-03-01", "2026-02-28"]
    newest = lists.newest()
    assert newest is not None
    assert newest.date == "2026-03-02"


def test_list_is_read_again_when_it_changes(tmp_path: Path) -> None:
    day, lists = write(tmp_path), DailyLists(tmp_path)
    first = lists.read("2026-03-01")
    assert lists.read("2026-03-01") is first
    write(tmp_path, gpu_serial=["c", "d"])
    os.utime(day / "at_risk.parquet", ns=(1, 1))
    again = lists.read("2026-03-01")
    assert again is not None
    assert again.row("c") is not None


def test_no_folder_and_no_list(tmp_path: Path) -> None:
    lists = DailyLists(tmp_path / "none")
    assert lists.dates() == []
    assert lists.newest() is None
    assert lists.read("2026-03-01\0") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": ["x", "y"]}, "`rank` has no whole numbers"),
        ({"flagged": [1, 0]}, "`flagged` is not true or false"),
    ],
)
def test_unusable_columns_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        DailyLists(tmp_path).read("2026-03-01")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_damaged_summary_counts_as_none(tmp_path: Path, text: str) -> None:
    (write(tmp_path) / "summary.json").write_text(text)
    daily = DailyLists(tmp_path).read("2026-03-01")
    assert daily is not None
    assert daily.summary == {}


def test_racks_of_machines(tmp_path: Path) -> None:
    day = write(tmp_path, machine_id=["m2", "m1"])
    extracts = {"gpu_serial": ["a", "b"], "rack": ["r1", ""], "events": ["[]", "[]"]}
    frame = pd.DataFrame(extracts | {"telemetry": ["", json.dumps({"start": 1})]})
    frame.to_parquet(day / "gpu_extracts.parquet", index=False)
    daily = DailyLists(tmp_path).read("2026-03-01")
    assert daily is not None
    assert daily.racks == {"m1": "r1", "m2": ""}
    assert daily.extract("b") == {"rack": None, "events": [], "telemetry": {"start": 1}}
