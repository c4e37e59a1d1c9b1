"""Invalid and malicious input: one line on stderr, exit code 2, nothing written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.records.record_table import FeatureKinds, RecordsError
from forewarn.features.time_units import HOUR
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.ingest.cmdb import read_cmdb
from forewarn.pipelines.storage.records import parquet_files
from forewarn.pipelines.storage.records.parquet_files import ParquetSource, read_parquet
from forewarn.pipelines.storage.records.record_store import RecordStore

AT = "2025-01-03"
Said = Callable[..., str]


def frame_of(n_gpus: int = 3, n_hours: int = 48) -> pd.DataFrame:
    hours = pd.date_range("2025-01-01", periods=n_hours, freq="h", tz="UTC")
    frames = [
        pd.DataFrame(
            {
                "gpu_serial": f"{7_550_000_000_000 + gpu}",
                "machine_id": f"{12 + gpu}",
                "timestamp": hours,
                "failure": 0,
                "temperature_gpu": 50.0 + np.arange(n_hours) % 5,
                "xid": np.where(np.arange(n_hours) == 40, 79, 0),
            }
        )
        for gpu in range(n_gpus)
    ]
    return pd.concat(frames, ignore_index=True)


CONFIG = """
[records]
interval = "1h"
[windows]
length = 6
horizon = 24
step = 2
[features]
float = ["temperature_gpu"]
code = ["xid"]
history = []
peers = []
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(CONFIG)
    return path


def write(frame: pd.DataFrame, folder: Path) -> Path:
    for date, rows in frame.groupby(frame["timestamp"].dt.date):
        (folder / f"date={date}").mkdir(parents=True)
        rows.to_parquet(folder / f"date={date}" / "part-0.parquet", index=False)
    return folder


def score(records: Path, config: Path) -> list[str]:
    """Return the arguments for a list by the built-in rules."""
    out = records.parent / "lists"
    files = ["--records", str(records), "--config", str(config), "--out", str(out)]
    return ["score", *files, "--model", "builtin:rules", "--at", AT]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return `said(arguments)`: the error line of a rejected command."""

    def run(arguments: list[str]) -> str:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(str(left.code))
        line = capsys.readouterr().err
        assert code == 2
        assert line.count("\n") == 1
        assert len(line) < 1_000
        return line

    return run


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write(frame_of(), tmp_path / "records")


def part(records: Path) -> Path:
    return records / "date=2025-01-02" / "part-0.parquet"


def store(records: Path) -> RecordStore:
    return RecordStore(records, FeatureKinds(float=("temperature_gpu",)), HOUR)


# --- serials stored as numbers --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float64", "Int64", "object", "category"])
def test_numeric_serials_become_digits(tmp_path: Path, kind: str) -> None:
    frame = frame_of()
    for name in ("gpu_serial", "machine_id"):
        stored: Any = "float64" if kind == "category" else kind
        frame[name] = frame[name].astype("int64").astype(stored)
        frame[name] = frame[name].astype("category") if kind == "category" else frame[name]
    found = store(write(frame, tmp_path / "records")).read()
    assert found.serials == ("7550000000000", "7550000000001", "7550000000002")
    assert set(found.texts["machine_id"].texts) == {"12", "13", "14"}


def test_list_and_review_agree_on_float_serials(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = frame_of().astype({"gpu_serial": "float64", "machine_id": "float64"})
    frame.loc[frame["gpu_serial"] == 7.55e12, "xid"] = 63  # a reason to be on the list
    assert main(score(write(frame, tmp_path / "records"), config)) == 0
    listed = pd.read_parquet(tmp_path / "lists" / f"date={AT}" / "at_risk.parquet")
    assert listed["gpu_serial"].iloc[0].startswith("755000000000")
    assert listed["machine_id"].tolist() == ["12", "13", "14"]
    failures = tmp_path / "failures.parquet"
    failed = pd.DataFrame({"gpu_serial": [7.55e12], "failed_at": [pd.Timestamp(f"{AT}T06:00Z")]})
    failed.to_parquet(failures)
    capsys.readouterr()
    arguments = ["review", "--at-risk", str(tmp_path / "lists"), "--failures", str(failures)]
    assert main([*arguments, "--until", "2025-01-05"]) == 0
    assert "1 of 1 failures were caught" in capsys.readouterr().out


def test_failures_table_with_float_serials_matches(records: Path) -> None:
    failed = pd.DataFrame(
        {"gpu_serial": [7.550000000001e12], "failed_at": [pd.Timestamp("2025-01-02T06:00Z")]}
    )
    failed.to_parquet(records / "failures.parquet")
    _, failures = store(records).read_known()
    assert failures.gpu.tolist() == [1]


def test_cmdb_with_float_serials_matches(tmp_path: Path) -> None:
    path = tmp_path / "cmdb.parquet"
    pd.DataFrame({"gpu_serial": [7.55e12, np.nan], "slot": [3.0, 4.0]}).to_parquet(path)
    assert read_cmdb(path).attributes.to_pylist() == [{"gpu_serial": "7550000000000", "slot": "3"}]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("gpu_serial", 7.5, "7.5"),
        ("machine_id", 0.25, "0.25"),
        ("gpu_serial", 1e17, "1e+17"),
        ("gpu_serial", float("inf"), "inf"),
    ],
)
def test_fractional_serial_is_rejected(
    tmp_path: Path, config: Path, said: Said, name: str, value: float, shown: str
) -> None:
    frame = frame_of().astype({name: "float64"})
    frame.loc[30, name] = value
    line = said(score(write(frame, tmp_path / "records"), config))
    assert f"column `{name}` is double, expected text" in line
    assert shown in line
    assert not (tmp_path / "lists").exists()


def test_imprecise_float_serial_is_rejected(tmp_path: Path, config: Path, said: Said) -> None:
    frame = frame_of().astype({"gpu_serial": "float32"})
    line = said(score(write(frame, tmp_path / "records"), config))
    assert "column `gpu_serial` is float, expected text" in line


# --- Parquet files --------------------------------------------------------------------------------


def test_rows_beyond_memory_are_rejected(
    records: Path, config: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "forewarn.pipelines.storage.records.parquet_files._memory_bytes", lambda: 5_000
    )
    assert "records: claims 144 rows, which need" in said(score(records, config))
    monkeypatch.setattr(
        "forewarn.pipelines.storage.records.parquet_files._memory_bytes", lambda: 2_000
    )
    assert "part-0.parquet: claims 72 rows" in said(score(records, config))


def test_wrong_row_count_in_footer_is_rejected(records: Path, config: Path, said: Said) -> None:
    path = part(records)
    table = pq.read_table(path, partitioning=None)
    pq.write_table(pa.concat_tables([table] * 2).slice(0, 100), path)
    whole = path.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    # A count is a varint of its double, after the byte that says "the next field, 64 bits": 100
    # becomes 120.
    footer = whole[start:].replace(b"\x16\xc8\x01", b"\x16\xf0\x01")
    path.write_bytes(whole[:start] + footer)
    assert pq.ParquetFile(path).metadata.num_rows == 120
    assert "is not a complete Parquet file" in said(score(records, config))


def test_truncation_during_read_is_an_error(
    records: Path, config: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = part(records), pq.ParquetFile
    table = pq.read_table(path, partitioning=None)
    # The bytes to read are many memory pages after the new end.
    padding = pa.array([os.urandom(1_000) for _ in range(len(table))])
    pq.write_table(table.add_column(0, "padding", padding), path)

    def cut_after_opening(source: Path, **more: object) -> pq.ParquetFile:
        file = opened(source, **more)
        if source == path and more.get("metadata") is not None:
            os.truncate(path, 100)
        return file

    monkeypatch.setattr(pq, "ParquetFile", cut_after_opening)
    assert "part-0.parquet: is not a complete Parquet file" in said(score(records, config))


def test_pipe_among_records_is_rejected(records: Path, config: Path, said: Said) -> None:
    os.mkfifo(records / "date=2025-01-02" / "part-1.parquet")
    assert "part-1.parquet: is not a regular file" in said(score(records, config))
    assert "is not a regular file" in said(["doctor", str(records), "--config", str(config)])


def test_pipe_as_failures_table_is_rejected(records: Path, config: Path, said: Said) -> None:
    os.mkfifo(records / "failures.parquet")
    assert "failures.parquet: is not a regular file" in said(score(records, config))


def test_duplicate_parquet_column_is_rejected(records: Path, config: Path, said: Said) -> None:
    table = pq.read_table(part(records), partitioning=None)
    doubled = table.append_column("temperature_gpu", pa.array(np.zeros(len(table))))
    pq.write_table(doubled, part(records))
    line = said(score(records, config))
    assert "part-0.parquet: column `temperature_gpu` occurs twice" in line


def test_parquet_text_must_be_utf_8(records: Path, config: Path, said: Said) -> None:
    table = pq.read_table(part(records), partitioning=None)
    wrong = pa.array([b"\xff\xfe"] * len(table)).view(pa.string())
    names = table.column_names
    pq.write_table(table.set_column(names.index("gpu_serial"), "gpu_serial", wrong), part(records))
    assert "column `gpu_serial`" in said(score(records, config))
    failed = pa.table(
        {"gpu_serial": wrong.slice(0, 1), "failed_at": pa.array([0], pa.timestamp("ns", "UTC"))}
    )
    write(frame_of(), records.parent / "good")
    pq.write_table(failed, records.parent / "good" / "failures.parquet")
    assert "failures.parquet: " in said(score(records.parent / "good", config))


# --- text files -----------------------------------------------------------------------------------


@pytest.fixture
def lists(records: Path, config: Path) -> Path:
    assert main(score(records, config)) == 0
    return records.parent / "lists"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"gpu_serial,failed_at,gpu_serial\nA,2025-01-01,B\n", "column `gpu_serial` occurs twice"),
        (b"gpu_serial,failed_at\n\xff\xfeA,2025-01-01\n", "text that is not UTF-8"),
        (b"gpu_s\xff,failed_at\nA,2025-01-01\n", "text that is not UTF-8"),
        (b"", "is not a CSV file"),
        (b"gpu_serial,failed_at\nA,2025-03-01/2025-03-02\n", "expected a timestamp"),
    ],
)
def test_invalid_failures_csv_is_rejected(
    lists: Path, tmp_path: Path, said: Said, text: bytes, expected: str
) -> None:
    failures = tmp_path / "failures.csv"
    failures.write_bytes(text)
    line = said(["review", "--at-risk", str(lists), "--failures", str(failures)])
    assert f"{failures}: " in line
    assert expected in line


@pytest.mark.parametrize("option", ["--cmdb", "--repairs"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"gpu_serial,rack,rack\nA,1,2\n", "column `rack` occurs twice"),
        (b"gpu_serial,rack\nA,\xff\n", "holds text that is not UTF-8"),
    ],
)
def test_invalid_site_csv_is_rejected(
    tmp_path: Path, said: Said, option: str, text: bytes, expected: str
) -> None:
    path = tmp_path / "site.csv"
    path.write_bytes(text)
    (tmp_path / "raw").mkdir()
    arguments = ["ingest", "--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "out")]
    line = said([*arguments, option, str(path)])
    assert f"{path}: {expected}" in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[list]\nshare = 0.1 # \xff\n", "is not a TOML file"),
        (b"a = " + b"[" * 5_000, "is nested too deeply"),
        (b"a = " + b"{a = " * 5_000, "is nested too deeply"),
        (b"[training]\nseed = " + b"9" * 5_000, "is not a TOML file"),
        (b"[training]\nseed = 0x" + b"f" * 5_000, "key `training.seed`"),
        (b"[detection]\nseed = " + b"9" * 40, "key `detection.seed`"),
        (b"a = " + b"[" * 90 + b"]" * 90, "unknown key `a`"),
    ],
)
def test_invalid_configuration_is_rejected(
    records: Path, tmp_path: Path, said: Said, text: bytes, expected: str
) -> None:
    config = tmp_path / "broken.toml"
    config.write_bytes(text)
    line = said(score(records, config))
    assert f"{config}: " in line
    assert expected in line


# --- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment",
    [
        "2025-03-01/2025-03-02", "2025-03-01 22", "2025-3-1", "2025-03", "2025-W09", "2025-03-01T",
        "2025-03-01T25:00", "2025-03-01T06:00+99:00", "2025-03-01 6pm", "2025-03-01,",
        "2025-03-01\n", "9" * 5_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "--records", "r", "--model", "m", "--out", "o", "--at"],
        ["train", "--records", "r", "--model", "m", "--at"],
        ["retrain", "--records", "r", "--at"],
        ["backtest", "--records", "r", "--out", "o", "--start"],
        ["backtest", "--records", "r", "--out", "o", "--end"],
        ["review", "--at-risk", "l", "--failures", "f", "--until"],
        ["ingest", "--out", "o", "--prometheus", "http://localhost", "--start"],
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-1]}",
)
def test_time_must_be_iso_8601(said: Said, arguments: list[str], moment: str) -> None:
    assert f"argument {arguments[-1]}: found" in said([*arguments, moment])


@pytest.mark.parametrize("seed", ["9" * 5_000, "9" * 4_000, str(2**31), "-1", "1.5"])
@pytest.mark.parametrize("command", [["simulate", "fleet"], ["demo"], ["simulate", "incidents"]])
def test_huge_seed_is_rejected(said: Said, tmp_path: Path, command: list[str], seed: str) -> None:
    line = said([*command, "--out", str(tmp_path / "out"), "--seed", seed])
    assert "argument --seed: found" in line
    assert not (tmp_path / "out").exists()


def test_flipped_schema_bit_is_reported_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"failure": [0, 1]}), path)
    before, lines = path.read_bytes(), []
    for at in range(before.index(b"ARROW:schema"), len(before) - 8):
        damaged = bytearray(before)
        damaged[at] ^= 0x08  # of a width: integers of 128 bits
        path.write_bytes(bytes(damaged))
        for read in (read_parquet, lambda file: ParquetSource(file).schema):
            try:
                read(path)
            except RecordsError as error:
                lines.append(str(error))
    assert any("Integers with more than 64 bits" in line for line in lines)
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in lines)


@pytest.mark.parametrize("claims", [(-5, 125), (60, 61)])
def test_inconsistent_row_groups_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: tuple[int, ...]
) -> None:
    path = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({"value": range(120)}), path, row_group_size=60)
    assert ParquetSource(path).rows_of_groups == (60, 60)
    monkeypatch.setattr(parquet_files, "rows_of_each_group", lambda _: claims)
    with pytest.raises(RecordsError, match=r"part-0.parquet: is not a complete Parquet file"):
        _ = ParquetSource(path).n_rows


def test_extension_types_use_storage_type(tmp_path: Path) -> None:
    path, texts = tmp_path / "part-0.parquet", pa.array(['{"a": 1}'] * 3)
    table = pa.table({"note": texts.cast(pa.json_()), "value": [1, 2, 3]})
    pq.write_table(table, path, store_schema=False)
    source = ParquetSource(path)
    assert source.schema.field("note").type == pa.string()
    with source.columns() as columns:
        assert columns["note"].to_pylist() == texts.to_pylist()
