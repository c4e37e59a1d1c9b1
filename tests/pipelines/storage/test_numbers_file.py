"""The runs of numbers beside a compacted date: what they hold, and when they are not read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.records.number_runs import NumberRuns
from forewarn.features.records.table import RecordsError
from forewarn.pipelines.storage import compaction, date_merge
from forewarn.pipelines.storage.compacted_form import COMPACTED, NUMBERS, is_runs_name
from forewarn.pipelines.storage.compaction import compact_date
from forewarn.pipelines.storage.file_slice import FileSlice
from forewarn.pipelines.storage.parquet_files import ParquetSource
from forewarn.pipelines.storage.runs_file import keep_runs

FIRST = dt.date(2025, 1, 1)
N_GPUS, N_HOURS = 12, 24
SLOWLY = np.repeat(np.arange(N_GPUS * N_HOURS // 12), 12)  # 12 rows hold the same value


def table(**columns: object) -> pa.Table:
    gpu, hour = np.repeat(np.arange(N_GPUS), N_HOURS), np.tile(np.arange(N_HOURS), N_GPUS)
    time = np.datetime64("2025-01-01", "ns") + hour * np.timedelta64(1, "h")
    keys = {"gpu_serial": [f"G{g:02d}" for g in gpu], "timestamp": time, "failure": gpu * 0}
    return pa.table(keys | columns)


def write(folder: Path, rows: pa.Table, name: str = "part.parquet") -> Path:
    path = folder / f"date={FIRST}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return path


def compacted(folder: Path, **columns: object) -> ParquetSource:
    write(folder, table(**columns))
    compact_date(folder, FIRST)
    return ParquetSource(folder / f"date={FIRST}" / COMPACTED)


def numbers_in(folder: Path) -> list[Path]:
    paths = (folder / f"date={FIRST}").iterdir()
    return [path for path in paths if is_runs_name(path.name) and path.suffix == NUMBERS]


def values_of(runs: NumberRuns) -> list[float]:
    return np.repeat(runs.value, runs.n_rows).tolist()


@pytest.mark.parametrize("per_group", [40, 1 << 15])
def test_columns_that_hardly_change_lie_beside_in_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_group: int
) -> None:
    monkeypatch.setattr(date_merge, "_FEWEST_PER_GROUP", per_group)
    holes = pa.array([None if v % 3 == 0 else int(v) for v in SLOWLY], pa.int16())
    source = compacted(tmp_path, whole=holes, tenths=SLOWLY / 10, noise=np.arange(len(SLOWLY)))
    every = source.number_runs()
    assert set(every) == {"whole", "tenths"}
    rows = pq.read_table(source.path, partitioning=None).to_pandas()
    for name, runs in every.items():
        np.testing.assert_array_equal(values_of(runs), rows[name].to_numpy())
    halves = [FileSlice.of(source, half).number_runs() for half in ((0, 32), (32, 64))]
    assert len(source.rows_of_groups) == (4 if per_group == 40 else 1)
    if per_group == 40:
        joined = [v for half in halves for v in values_of(half["tenths"])]
        assert joined == values_of(every["tenths"])
    assert FileSlice(source, []).number_runs() == {}


def test_a_file_without_such_a_column_is_empty(tmp_path: Path) -> None:
    source = compacted(tmp_path, noise=np.arange(N_GPUS * N_HOURS))
    assert len(numbers_in(tmp_path)) == 1
    assert source.number_runs() == {}


def test_a_column_that_is_quiet_in_the_first_row_group_alone_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(date_merge, "_FEWEST_PER_GROUP", 40)
    rows = compacted(tmp_path / "plain", steady=SLOWLY * 0).path
    serials = pq.ParquetFile(rows).read_row_group(0).column("gpu_serial").to_pylist()
    quiet = np.isin(np.array(table()["gpu_serial"].to_pylist()), serials)
    later = np.where(quiet, 0, np.arange(len(SLOWLY)))
    assert set(compacted(tmp_path / "later", steady=SLOWLY, later=later).number_runs()) == {
        "steady"
    }


def test_runs_of_a_date_that_was_replaced_meanwhile_are_made_of_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, table(value=SLOWLY))
    keep = keep_runs

    def compacted_by_another(path: Path, made: object) -> None:
        monkeypatch.setattr(compaction, "keep_runs", keep)
        write(tmp_path, table(value=SLOWLY + 1), "late.parquet")
        compact_date(tmp_path, FIRST)
        for numbers in numbers_in(tmp_path):
            numbers.unlink()
        keep(path, made)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "keep_runs", compacted_by_another)
    compact_date(tmp_path, FIRST)
    source = ParquetSource(tmp_path / f"date={FIRST}" / COMPACTED)
    assert sorted(values_of(source.number_runs()["value"])) == (SLOWLY + 1).tolist()


def test_runs_that_are_gone_are_not_missed(tmp_path: Path) -> None:
    source = compacted(tmp_path, value=SLOWLY)
    assert set(source.number_runs()) == {"value"}
    numbers_in(tmp_path)[0].unlink()
    assert source.number_runs() == {}


def _fewer_rows(rows: pa.Table) -> pa.Table:
    n_rows = rows["forewarn.rows"].to_numpy().copy()
    n_rows[:2] = [30, -6]
    return rows.set_column(1, "forewarn.rows", pa.array(n_rows))


@pytest.mark.parametrize(
    "change",
    [
        _fewer_rows,
        lambda rows: rows.slice(1),
        lambda rows: rows.replace_schema_metadata({}),
        lambda rows: rows.replace_schema_metadata(
            {"forewarn.columns": '{"names": ["value"], "begin": [[0, 99]]}'}
        ),
        lambda rows: rows.replace_schema_metadata(
            {"forewarn.columns": '{"names": ["value"], "begin": [[0], [0]]}'}
        ),
        lambda rows: rows.select(["forewarn.rows", "forewarn.value"]),
        lambda rows: rows.select(["forewarn.value"]),
    ],
    ids=["rows", "fewer", "no index", "runs", "groups", "order", "one column"],
)
def test_runs_of_other_rows_are_said_in_a_line(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table]
) -> None:
    source = compacted(tmp_path, value=SLOWLY)
    (path,) = numbers_in(tmp_path)
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(RecordsError, match=rf"{path.name}: holds other runs than [^\n]+$"):
        source.number_runs()


def test_a_file_that_is_cut_is_said_in_a_line(tmp_path: Path) -> None:
    source = compacted(tmp_path, value=SLOWLY)
    (path,) = numbers_in(tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RecordsError, match=rf"{path.name}: is no whole Parquet file [^\n]+$"):
        source.number_runs()
