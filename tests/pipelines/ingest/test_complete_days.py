"""Complete days: each at-risk list is made once, after its day, for all GPUs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forewarn.features.time_units import MINUTE
from forewarn.pipelines.ingest.complete_days import complete_days
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.scheduled_tasks import missing_days

INTERVAL = 10 * MINUTE


def write(records: Path, rows: dict[str, list[str]]) -> None:
    """Write records of each GPU at some times."""
    frame = pd.DataFrame(
        [(gpu, pd.Timestamp(text, tz="UTC")) for gpu, texts in rows.items() for text in texts],
        columns=["gpu_serial", "timestamp"],
    )
    for date, some in frame.groupby(frame["timestamp"].dt.date):
        partition = records / f"date={date}"
        partition.mkdir(parents=True, exist_ok=True)
        some.to_parquet(partition / f"part-{len(list(partition.iterdir()))}.parquet", index=False)


def days(records: Path, now: str) -> list[str]:
    return complete_days(records, INTERVAL, parse_moment(now))


def test_fast_clock_does_not_complete_day(tmp_path: Path) -> None:
    write(tmp_path, {gpu: ["2025-03-01T23:50", "2025-03-02T13:00"] for gpu in "abcd"})
    write(tmp_path, {"ahead": ["2025-03-02T23:50", "2025-03-03T00:10"]})
    assert days(tmp_path, "2025-03-02T13:00:30") == ["2025-03-01"]


def test_day_needs_most_gpus(tmp_path: Path) -> None:
    write(tmp_path, {gpu: ["2025-03-01T12:00", "2025-03-01T20:00"] for gpu in "abcd"})
    write(tmp_path, {"e": ["2025-03-01T23:50"]})
    assert days(tmp_path, "2025-03-02T00:05") == []
    write(tmp_path, {gpu: ["2025-03-01T23:50"] for gpu in "ab"})
    assert days(tmp_path, "2025-03-02T00:05") == ["2025-03-01"]


def test_future_file_completes_no_day(tmp_path: Path) -> None:
    write(tmp_path, {gpu: ["2025-03-01T20:00"] for gpu in "abcd"})
    write(tmp_path, {gpu: ["2035-01-01T00:10"] for gpu in "abcd"})
    assert days(tmp_path, "2025-03-01T20:05") == []
    assert days(tmp_path, "2025-03-02T00:05") == []


def test_later_rows_complete_earlier_days(tmp_path: Path) -> None:
    write(tmp_path, {gpu: ["2025-03-01T20:00", "2025-03-02T03:00"] for gpu in "abcd"})
    assert days(tmp_path, "2025-03-02T03:05") == ["2025-03-01"]


def test_days_before_complete_day_are_complete(tmp_path: Path) -> None:
    write(tmp_path, {"off": ["2025-03-01T20:00"], "on": ["2025-03-02T23:50"]})
    assert days(tmp_path, "2025-03-02T12:00") == []
    assert days(tmp_path, "2025-03-03T00:01") == ["2025-03-01", "2025-03-02"]
    assert days(tmp_path / "none", "2025-03-03T00:01") == []


def test_missing_days_are_published_after_outage() -> None:
    found = ["2025-03-01", "2025-03-02", "2025-03-03", "2025-03-04"]
    assert missing_days(found, "2025-03-01", "2025-03-05") == found[1:]
    assert missing_days(found, "2025-03-04", "2025-03-05") == []
    assert missing_days(found, None, "2025-03-05") == ["2025-03-04"]
    assert missing_days([], None, "2025-03-05") == []


def test_published_future_day_blocks_no_list() -> None:
    assert missing_days(["2025-03-03", "2025-03-04"], "2035-01-01", "2025-03-05") == ["2025-03-04"]
