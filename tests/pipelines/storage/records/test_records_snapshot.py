from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.storage.records.compaction import compact_date
from forewarn.pipelines.storage.records.records_snapshot import keep_snapshot

LAST = dt.date(2025, 1, 2)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Return three dates of two files, and a table of failures."""
    folder = tmp_path / "records"
    for day in (1, 2, 3):
        for number in range(2):
            path = folder / f"date=2025-01-0{day}" / f"part-{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            times = pd.date_range(f"2025-01-0{day}", periods=5, freq="10min", tz="UTC")
            frame = pd.DataFrame({"gpu_serial": f"g{number}", "timestamp": times, "load": 1.0})
            frame.to_parquet(path)
    (folder / "failures.parquet").write_bytes(b"reported by then")
    return folder


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in files
    }


def test_snapshot_ignores_landing_and_compaction(records: Path, tmp_path: Path) -> None:
    before = content(records)
    snapshot = tmp_path / "out" / ".records"
    keep_snapshot(records, snapshot, LAST)
    assert content(snapshot) == {n: v for n, v in before.items() if "2025-01-03" not in n}
    compact_date(records, dt.date(2025, 1, 1))
    other = tmp_path / "failures"
    other.write_bytes(b"reported since")
    other.replace(records / "failures.parquet")
    keep_snapshot(records, snapshot, LAST)  # as a retry does
    assert content(snapshot) == {n: v for n, v in before.items() if "2025-01-03" not in n}
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_compacted_file_is_listed_again(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def compact_first(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        compact_date(records, dt.date(2025, 1, 1))
        link(source, target)

    monkeypatch.setattr(os, "link", compact_first)
    keep_snapshot(records, tmp_path / "snapshot", LAST)
    names = [path.name for path in (tmp_path / "snapshot" / "date=2025-01-01").iterdir()]
    assert names == ["00-compacted.parquet"]


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_files_are_copied_without_links(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def refuse(*_: Any) -> None:
        raise error("no links")

    monkeypatch.setattr(os, "link", refuse)
    keep_snapshot(records, tmp_path / "snapshot", dt.date(2025, 1, 9))
    assert content(tmp_path / "snapshot") == content(records)


def test_no_records_is_one_error_line(records: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="holds no records up to 2024-12-31, expected some from"):
        keep_snapshot(records, tmp_path / "snapshot", dt.date(2024, 12, 31))
    assert not (tmp_path / "snapshot").exists()
