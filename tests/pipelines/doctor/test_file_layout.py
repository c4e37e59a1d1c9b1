from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.storage.records.compaction import compact_date

DAYS = [dt.date(2025, 1, day) for day in (1, 2, 3)]


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    """Return three dates of one GPU, one file an hour."""
    folder = tmp_path / "my records"
    for day in DAYS:
        for hour in range(12):
            path = folder / f"date={day}" / f"collected-{hour:02}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            time = dt.datetime(day.year, day.month, day.day, hour)
            row = {"gpu_serial": ["A"], "timestamp": [time], "temperature": [50.0 + hour]}
            pq.write_table(pa.table(row), path)
    return folder


def test_many_small_files_should_be_compacted(
    collected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    features = '[features]\nfloat = ["temperature"]'
    config.write_text(f'[records]\ninterval = "1h"\n{features}\n[windows]\nlength = 4\n')
    assert main(["doctor", str(collected), "--config", str(config)]) == 0
    said = capsys.readouterr().out
    assert "2 dates in 24 files, not sorted by GPU" in said
    assert f"Run `forewarn compact --records '{collected}'`." in said
    for day in DAYS[:2]:
        compact_date(collected, day)
    assert main(["doctor", str(collected), "--config", str(config)]) == 0
    assert "compact" not in capsys.readouterr().out
