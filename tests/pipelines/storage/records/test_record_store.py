from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.fleet_slices import assign_slices
from forewarn.features.records.record_table import (
    FeatureKinds,
    NoRecordsError,
    Records,
    RecordsError,
)
from forewarn.features.time_units import HOUR
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.records.parquet_files import open_parquet
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.records.table_columns import read_times

START = pd.Timestamp("2025-01-01", tz="UTC")
KINDS = FeatureKinds(
    categorical=("gpu_type",), float=("temperature",), counter=("errors",), code=("xid",)
)
SERIALS = ("A", "B", "C")


def at(hour: float) -> int:
    return int((START + pd.Timedelta(hour, unit="h")).value)


def hours(moments: npt.ArrayLike) -> list[float]:
    """Return times in hours after the start; inf is never."""
    return [
        float("inf") if moment == NEVER else (moment - START.value) / HOUR
        for moment in np.asarray(moments).tolist()
    ]


def frame_of(n_hours: int = 72, serials: tuple[str, ...] = SERIALS, **columns: Any) -> pd.DataFrame:
    """Return hourly records; B is failed from hour 30 to 40, C from hour 60."""
    rng = np.random.default_rng(3)
    frames = []
    for serial in serials:
        hour = np.arange(n_hours)
        failed = {"B": (hour >= 30) & (hour < 40), "C": hour >= 60}.get(serial, hour < 0)
        frames.append(
            pd.DataFrame(
                {
                    "gpu_serial": serial,
                    "timestamp": START + pd.to_timedelta(hour, unit="h"),
                    "failure": failed.astype("int8"),
                    "machine_id": f"m-{serial}",
                    "slot": 1,
                    "gpu_type": "A100",
                    "temperature": rng.normal(60, 3, n_hours),
                    "errors": np.cumsum(rng.poisson(0.5, n_hours)),
                    "xid": rng.choice([0, 0, 0, 13], n_hours),
                }
            )
        )
    return pd.concat(frames, ignore_index=True).assign(**columns)


def write(frame: pd.DataFrame, folder: Path, name: str = "part-0.parquet") -> Path:
    """Write one file per date."""
    for date, rows in frame.groupby(frame["timestamp"].dt.date):
        partition = folder / f"date={date}"
        partition.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(partition / name, index=False)
    return folder


def store_of(folder: Path, **other: Any) -> RecordStore:
    values: dict[str, Any] = {"kinds": KINDS, "interval": HOUR, "groups": ("machine_id",)}
    return RecordStore(folder, **(values | other))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(frame_of(), tmp_path / "records")


def refused(store: RecordStore, *arguments: int | None) -> str:
    """Return the error line of a rejected read."""
    with pytest.raises(RecordsError) as caught:
        store.read(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- atomic writes -----------------------------------------------------------------------------


def test_file_appears_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "report.json"
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert [one.name for one in path.parent.iterdir()] == ["report.json"]


def test_old_file_stays_until_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("problem", [RuntimeError, KeyboardInterrupt])
def test_failed_write_keeps_old_file(tmp_path: Path, problem: type[BaseException]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("old")

    def fail(path: Path) -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise problem

    for path in (old, new):
        with pytest.raises(problem):
            fail(path)
    assert [one.name for one in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "old"


def test_failed_write_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), replacing(tmp_path / "new" / "deep" / "report.json"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_temporary_file_is_not_read(folder: Path) -> None:
    with replacing(folder / "date=2025-01-01" / "part-1.parquet") as temporary:
        temporary.write_bytes(b"half a file")
        assert len(store_of(folder).files()) == 3


# --- selection of files ------------------------------------------------------------------------


def test_files_come_by_date_and_name(folder: Path) -> None:
    first = folder / "date=2025-01-01"
    (first / "part-0.parquet").rename(first / "z.parquet")
    frame_of(3).to_parquet(first / "a.parquet", index=False)
    found = [(date, path.name) for date, path in store_of(folder).files()]
    assert found == [
        (dt.date(2025, 1, 1), "a.parquet"),
        (dt.date(2025, 1, 1), "z.parquet"),
        (dt.date(2025, 1, 2), "part-0.parquet"),
        (dt.date(2025, 1, 3), "part-0.parquet"),
    ]


@pytest.mark.parametrize("name", [".part.parquet", "_part.parquet", "part.csv", "part.parquet.crc"])
def test_hidden_and_other_files_are_ignored(folder: Path, name: str) -> None:
    (folder / "date=2025-01-02" / name).write_bytes(b"no records")
    (folder / "notes.txt").write_text("no records")
    (folder / "_SUCCESS").write_text("")
    (folder / "_old").mkdir()
    assert len(store_of(folder).files()) == 3
    assert len(store_of(folder).read()) == 3 * 72


@pytest.mark.parametrize(
    "name", ["date=today", "date=2025-13-01", "date=", "date=2025-01", "date=20250101"]
)
def test_invalid_partition_date_is_named(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    message = refused(store_of(folder))
    assert f"{folder / name}: found `{name}`, expected `date=YYYY-MM-DD`" in message


def test_no_records_are_named(tmp_path: Path) -> None:
    assert refused(store_of(tmp_path / "none")).startswith(f"{tmp_path / 'none'}: no such folder")
    assert f"{tmp_path}: holds no records" in refused(store_of(tmp_path))
    (tmp_path / "date=2025-01-01").mkdir()
    assert f"{tmp_path}: holds no records" in refused(store_of(tmp_path))


def test_columns_are_those_of_every_file(folder: Path) -> None:
    frame_of(3).drop(columns="slot").to_parquet(folder / "date=2025-01-01" / "b.parquet")
    columns = store_of(folder).columns()
    assert {"gpu_serial", "timestamp", "failure", "machine_id", "temperature"} <= columns
    assert "slot" not in columns


# --- reading -----------------------------------------------------------------------------------


def numbers(records: Records, name: str) -> npt.NDArray[np.float32]:
    return records.numbers(name, np.arange(len(records)))


def test_reads_what_was_written(folder: Path) -> None:
    records = store_of(folder).read()
    frame = frame_of().sort_values(["gpu_serial", "timestamp"])
    assert records.serials == SERIALS
    assert [SERIALS[i] for i in records.gpu] == frame["gpu_serial"].tolist()
    assert hours(records.time) == list(range(72)) * 3
    assert numbers(records, "temperature").tolist() == frame["temperature"].astype("f4").tolist()
    assert numbers(records, "xid").tolist() == frame["xid"].tolist()
    assert records.failed.tolist() == (frame["failure"] == 1).tolist()
    gained = frame.groupby("gpu_serial")["errors"].diff()
    assert np.array_equal(numbers(records, "errors"), gained.to_numpy("f4"), equal_nan=True)
    machine = records.texts["machine_id"]
    assert machine.texts == ("m-A", "m-B", "m-C")
    assert records.texts["slot"].texts == ("1",)
    assert records.seen.notes() == []


def test_only_partitions_of_the_span_are_opened(folder: Path) -> None:
    (folder / "date=2025-01-01" / "part-0.parquet").write_bytes(b"no Parquet")
    (folder / "date=2025-01-03" / "part-0.parquet").write_bytes(b"no Parquet")
    store = store_of(folder)
    assert set(hours(store.read(at(24), at(47.5)).time)) == set(range(24, 48))
    assert "part-0.parquet: is not a complete Parquet file" in refused(store, at(23), at(48))
    assert "part-0.parquet: is not a complete Parquet file" in refused(store, at(24), at(49))


def test_partition_starting_at_end_is_skipped(folder: Path) -> None:
    # Scoring as of a midnight must not depend on records of the next day.
    (folder / "date=2025-01-02" / "part-0.parquet").write_bytes(b"no Parquet")
    store = store_of(folder)
    records, known = store.read_known(None, at(24))
    assert set(hours(records.time)) == set(range(24))
    assert len(known) == 0


def test_a_span_is_open_at_its_end(folder: Path) -> None:
    records = store_of(folder).read(at(10), at(20))
    assert sorted(set(hours(records.time))) == list(range(10, 20))
    assert sorted(set(hours(store_of(folder).read(at(70)).time))) == [70, 71]
    assert sorted(set(hours(store_of(folder).read(None, at(2)).time))) == [0, 1]


def test_a_span_without_records_is_refused(folder: Path) -> None:
    assert f"{folder}: no records from 2025-02-01" in refused(store_of(folder), at(31 * 24), None)
    assert f"{folder}: there is no row" in refused(store_of(folder), at(71.5), at(72))


def test_two_halves_are_the_whole(folder: Path) -> None:
    store = store_of(folder)
    whole, first, second = store.read(), store.read(None, at(37)), store.read(at(37))
    for early, late, part in ((None, 37, first), (37, None, second)):
        low = 0 if early is None else at(early)
        rows = whole.rows_between(low, NEVER if late is None else at(late))
        assert part.serials == whole.serials
        assert np.array_equal(part.gpu, whole.gpu[rows])
        assert np.array_equal(part.time, whole.time[rows])
        assert np.array_equal(part.failed, whole.failed[rows])
        for name in ("temperature", "xid"):
            assert np.array_equal(numbers(part, name), whole.numbers(name, rows))
        for name in ("machine_id", "gpu_type", "slot"):
            assert part.texts[name].texts == whole.texts[name].texts
            assert np.array_equal(part.codes(name, np.arange(len(part))), whole.codes(name, rows))
        known = np.isfinite(numbers(part, "errors"))
        assert np.array_equal(numbers(part, "errors")[known], whole.numbers("errors", rows)[known])
        # The increase before the first record of a span is unknown.
        assert (~known).sum() == len(SERIALS)


def test_number_of_files_changes_nothing(folder: Path, tmp_path: Path) -> None:
    frame = frame_of().sample(frac=1.0, random_state=2)
    split = tmp_path / "split"
    for i, part in enumerate((frame[::3], frame[1::3], frame[2::3])):
        write(part, split, f"{i}.parquet")
    one, (two, known) = store_of(folder).read(), store_of(split).read_known()
    assert np.array_equal(one.time, two.time)
    for name in ("temperature", "errors", "xid"):
        assert np.array_equal(numbers(one, name), numbers(two, name), equal_nan=True)
    assert known.gpu.tolist() == [1, 2]


def test_later_file_wins_for_duplicates(folder: Path) -> None:
    doubled = frame_of(2, ("A",), temperature=1.0)
    doubled = pd.concat([doubled, doubled.assign(temperature=[7.0, 8.0])])
    doubled.to_parquet(folder / "date=2025-01-01" / "part-1.parquet", index=False)
    frame_of(2, ("A",), temperature=3.0).to_parquet(
        folder / "date=2025-01-01" / "a.parquet", index=False
    )
    records = store_of(folder).read()
    assert len(records) == 3 * 72
    assert numbers(records, "temperature")[:2].tolist() == [7.0, 8.0]
    assert records.seen.doubled == 6


def as_types(frame: pd.DataFrame) -> pa.Table:
    """Return the same records in other types."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    casts = {
        "timestamp": pa.timestamp("us"),
        "failure": pa.bool_(),
        "temperature": pa.float64(),
        "errors": pa.int32(),
        "xid": pa.uint16(),
        "slot": pa.int8(),
    }
    for name, kind in casts.items():
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    for name in ("gpu_serial", "machine_id", "gpu_type"):
        values = table[name].cast(pa.large_string()).dictionary_encode()
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def test_other_types_give_the_same_records(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "date=2025-01-01"
    other.mkdir(parents=True)
    pq.write_table(as_types(frame_of()), other / "all.parquet")
    one, two = store_of(folder).read(), store_of(other.parent).read()
    assert np.array_equal(one.time, two.time)
    assert np.array_equal(one.failed, two.failed)
    for name in ("temperature", "errors", "xid"):
        assert np.array_equal(numbers(one, name), numbers(two, name), equal_nan=True)
    assert two.texts["machine_id"].texts == one.texts["machine_id"].texts
    assert two.seen.naive_time
    assert "timestamps without a zone were read as UTC" in two.seen.notes()


def test_group_missing_in_file_is_null(folder: Path) -> None:
    path = folder / "date=2025-01-02" / "part-0.parquet"
    pd.read_parquet(path).drop(columns=["machine_id", "slot"]).to_parquet(path, index=False)
    records = store_of(folder).read()
    unknown = records.codes("machine_id", np.arange(len(records))) < 0
    assert set(hours(records.time[unknown])) == set(range(24, 48))


def test_missing_feature_is_named(folder: Path) -> None:
    path = folder / "date=2025-01-02" / "part-0.parquet"
    pd.read_parquet(path).drop(columns="errors").to_parquet(path, index=False)
    assert f"{path}: column `errors` is missing" in refused(store_of(folder))
    assert len(store_of(folder).read(None, at(23))) == 3 * 23


def test_non_numeric_feature_is_named(folder: Path) -> None:
    path = folder / "date=2025-01-02" / "part-0.parquet"
    pd.read_parquet(path).assign(temperature="warm").to_parquet(path, index=False)
    message = refused(store_of(folder))
    assert f"{path}: column `temperature` is" in message
    assert "expected a number" in message


def test_truncated_file_is_named(folder: Path) -> None:
    path = folder / "date=2025-01-02" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert f"{path}: is not a complete Parquet file" in refused(store_of(folder))
    path.write_bytes(b"")
    assert f"{path}: is not a complete Parquet file" in refused(store_of(folder))


def test_other_interval_is_rejected_by_folder(folder: Path) -> None:
    message = refused(store_of(folder, interval=HOUR // 6))
    assert message.startswith(f"{folder}: records are 1 h apart")


# --- failures in the records -------------------------------------------------------------------


def told(failures: Failures, records: Records) -> list[tuple[str, float, float, float]]:
    """Return serial, failed, repaired and known in hours, sorted."""
    columns = (failures.failed_at, failures.repaired_at, failures.known_at)
    rows = zip(failures.gpu.tolist(), *(hours(column) for column in columns), strict=True)
    return sorted((records.serials[gpu], *moments) for gpu, *moments in rows)


RECORDED = [("B", 30.0, 40.0, 30.0), ("C", 60.0, float("inf"), 60.0)]


def test_failures_of_the_records(folder: Path) -> None:
    store = store_of(folder)
    assert store.has_failures()
    for end in (None, at(72)):
        records, known = store.read_known(None, end)
        assert told(known, records) == RECORDED


def test_failures_are_as_known_at_end(folder: Path) -> None:
    store = store_of(folder)
    for end, expected in (
        (30.0, []),
        (30.5, [("B", 30.0, float("inf"), 30.0)]),
        (40.0, [("B", 30.0, float("inf"), 30.0)]),
        (41.0, [("B", 30.0, 40.0, 30.0)]),
        (60.0, [("B", 30.0, 40.0, 30.0)]),
        (61.0, RECORDED),
    ):
        records, known = store.read_known(None, at(end))
        assert told(known, records) == expected


def test_failures_before_the_span_are_known(folder: Path) -> None:
    store = store_of(folder)
    records, known = store.read_known(at(50), at(72))
    assert told(known, records) == RECORDED


def test_failures_of_absent_gpus_are_dropped(tmp_path: Path) -> None:
    frame = frame_of()
    gone = (frame["gpu_serial"] == "B") & (frame["timestamp"] >= START + pd.Timedelta("45h"))
    store = store_of(write(frame[~gone], tmp_path / "records"))
    records, known = store.read_known(at(50), at(72))
    assert records.serials == ("A", "C")
    assert told(known, records) == RECORDED[1:]


@pytest.mark.parametrize("serials", [{"A", "C"}, {"B"}, {"C", "unknown"}])
def test_chosen_gpus_are_read_as_with_all_others(folder: Path, serials: set[str]) -> None:
    store = store_of(folder)
    everything, all_failures = store.read_known(at(20), at(72))
    chosen, failures = store.read_known(at(20), at(72), serials=serials)
    assert chosen.serials == tuple(sorted(serials & {*SERIALS}))
    rows = np.isin(np.array(everything.serials)[everything.gpu], sorted(serials))
    np.testing.assert_array_equal(chosen.time, everything.time[rows])
    np.testing.assert_array_equal(chosen.failed, everything.failed[rows])
    expected = [row for row in told(all_failures, everything) if row[0] in serials]
    assert told(failures, chosen) == expected


def test_chosen_gpus_without_records_are_no_records(folder: Path) -> None:
    with pytest.raises(NoRecordsError, match="no row"):
        store_of(folder).read_known(at(20), at(72), serials={"unknown"})


def test_failure_keeps_start_before_span(folder: Path) -> None:
    store = store_of(folder)
    records, known = store.read_known(at(35), at(50))
    assert told(known, records) == RECORDED[:1]


def test_failure_column_in_some_files_is_rejected(folder: Path) -> None:
    path = folder / "date=2025-01-02" / "part-0.parquet"
    pd.read_parquet(path).drop(columns="failure").to_parquet(path, index=False)
    assert f"{path}: column `failure` is missing, but other files have it" in refused(
        store_of(folder)
    )
    assert not store_of(folder).has_failures()


def test_older_files_may_lack_failure_column(folder: Path) -> None:
    # Either all failures are known, or the data set is rejected; failures are never silently lost.
    path = folder / "date=2025-01-01" / "part-0.parquet"
    pd.read_parquet(path).drop(columns="failure").to_parquet(path, index=False)
    store = store_of(folder)
    try:
        records, known = store.read_known(at(24), at(72))
        found = told(known, records)
    except RecordsError as error:
        found = RECORDED if "`failure`" in str(error) else []
    assert found == RECORDED


def test_records_without_the_column_have_no_failures(tmp_path: Path) -> None:
    store = store_of(write(frame_of().drop(columns="failure"), tmp_path / "records"))
    assert not store.has_failures()
    for end in (None, at(72)):
        records, known = store.read_known(at(30), end)
        assert not records.failed.any()
        assert len(known) == 0


# --- the table of failures ---------------------------------------------------------------------


def moments(*values: float | None, zone: str | None = "UTC", unit: str = "ns") -> pa.Array:
    """Return hours after the start as timestamps."""
    stamps = [None if value is None else pd.Timestamp(at(value)) for value in values]
    return pa.array(stamps, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))


def with_table(tmp_path: Path, columns: dict[str, Any], *, recorded: bool = False) -> RecordStore:
    """Return a store with `failures.parquet`."""
    frame = frame_of() if recorded else frame_of().drop(columns="failure")
    folder = write(frame, tmp_path / "records")
    pq.write_table(pa.table(columns), folder / "failures.parquet")
    return store_of(folder)


def test_null_times_of_failures_table(tmp_path: Path) -> None:
    columns = {
        "gpu_serial": ["A", "B", "C"],
        "failed_at": moments(10, 20, 30),
        "repaired_at": moments(15, None, None),
        "known_at": moments(12, None, 31),
        "cause": ["ecc", None, ""],
    }
    store = with_table(tmp_path, columns)
    records, known = store.read_known()
    assert store.has_failures()
    assert told(known, records) == [
        ("A", 10.0, 15.0, 12.0),
        ("B", 20.0, float("inf"), 20.0),
        ("C", 30.0, float("inf"), 31.0),
    ]


def test_known_time_decides_not_failure_time(tmp_path: Path) -> None:
    columns = {
        "gpu_serial": ["A", "B", "C"],
        "failed_at": moments(10, 11, 12),
        "repaired_at": moments(15, 60, None),
        "known_at": moments(50, 49.9, None),
    }
    store = with_table(tmp_path, columns)
    records, known = store.read_known(None, at(50))
    assert told(known, records) == [
        ("B", 11.0, float("inf"), 49.9),
        ("C", 12.0, float("inf"), 12.0),
    ]


def test_two_columns_are_enough(tmp_path: Path) -> None:
    store = with_table(tmp_path, {"gpu_serial": ["B"], "failed_at": moments(20)})
    records, known = store.read_known()
    assert told(known, records) == [("B", 20.0, float("inf"), 20.0)]


def test_null_columns_equal_missing_columns(tmp_path: Path) -> None:
    nulls = pa.nulls(1)
    columns = {"gpu_serial": ["B"], "failed_at": moments(20), "repaired_at": nulls}
    store = with_table(tmp_path, columns | {"known_at": nulls})
    records, known = store.read_known()
    assert told(known, records) == [("B", 20.0, float("inf"), 20.0)]


def test_unknown_serials_are_dropped(tmp_path: Path) -> None:
    columns = {
        "gpu_serial": ["Z", None, "B", "A"],
        "failed_at": moments(20, 21, None, 22),
    }
    store = with_table(tmp_path, columns)
    records, known = store.read_known()
    assert told(known, records) == [("A", 22.0, float("inf"), 22.0)]


def test_empty_table_has_no_failures(tmp_path: Path) -> None:
    columns = {"gpu_serial": pa.array([], pa.string()), "failed_at": moments()}
    store = with_table(tmp_path, columns)
    assert store.has_failures()
    assert len(store.read_known()[1]) == 0


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Shanghai"])
def test_time_without_zone_is_utc(tmp_path: Path, zone: str | None, unit: str) -> None:
    columns = {"gpu_serial": ["A"], "failed_at": moments(10, zone=zone, unit=unit)}
    columns["known_at"] = moments(12, zone=None, unit=unit)
    store = with_table(tmp_path, columns)
    records, known = store.read_known()
    assert told(known, records) == [("A", 10.0, float("inf"), 12.0)]


@pytest.mark.parametrize(
    "text", ["2025-01-01T10:00:00Z", "2025-01-01 10:00:00", "2025-01-01 18:00:00+08:00"]
)
def test_time_may_be_text(tmp_path: Path, text: str) -> None:
    store = with_table(tmp_path, {"gpu_serial": ["A"], "failed_at": [text]})
    records, known = store.read_known()
    assert told(known, records) == [("A", 10.0, float("inf"), 10.0)]


def test_serials_may_be_a_dictionary(tmp_path: Path) -> None:
    serials = pa.array(["B", "A", "B"]).dictionary_encode()
    store = with_table(tmp_path, {"gpu_serial": serials, "failed_at": moments(10, 20, 30)})
    records, known = store.read_known()
    found = told(known, records)
    assert [(serial, failed) for serial, failed, _, _ in found] == [("A", 20), ("B", 10), ("B", 30)]


def test_both_sources_count(tmp_path: Path) -> None:
    columns = {"gpu_serial": ["A", "B"], "failed_at": moments(5, 29)}
    store = with_table(tmp_path, columns, recorded=True)
    table = [("A", 5.0, float("inf"), 5.0), ("B", 29.0, float("inf"), 29.0)]
    for end in (None, at(72)):
        records, known = store.read_known(None, end)
        assert told(known, records) == sorted([*RECORDED, *table])


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"gpu_serial": ["A"]}, "column `failed_at` is missing"),
        ({"failed_at": moments(1)}, "column `gpu_serial` is missing"),
        ({"gpu_serial": ["A"], "failed_at": [7]}, "column `failed_at` is int64, expected a time"),
        ({"gpu_serial": ["A"], "failed_at": ["soon"]}, "column `failed_at` is string, expected"),
        (
            {"gpu_serial": ["A"], "failed_at": moments(1), "known_at": [1.5]},
            "column `known_at` is double, expected a timestamp",
        ),
    ],
)
def test_unreadable_table_is_named(tmp_path: Path, columns: dict[str, Any], problem: str) -> None:
    store = with_table(tmp_path, columns)
    with pytest.raises(RecordsError) as caught:
        store.read_known()
    assert str(caught.value).startswith(f"{store.folder / 'failures.parquet'}: {problem}")
    assert "\n" not in str(caught.value)


def test_invalid_parquet_table_is_named(folder: Path) -> None:
    (folder / "failures.parquet").write_bytes(b"PAR1")
    store = store_of(folder)
    with pytest.raises(RecordsError, match=r"failures.parquet: is not a complete Parquet file"):
        store.read_known()


# --- single files ------------------------------------------------------------------------------


def test_invalid_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no")
    reasons = {"text": "is not a complete Parquet file", "none": "cannot be read \\(No such file"}
    for name, reason in reasons.items():
        path = tmp_path / f"{name}.parquet"
        with pytest.raises(RecordsError, match=f"{path}: {reason}"):
            open_parquet(path)


def test_times_of_missing_column_are_null() -> None:
    table = pa.table({"failed_at": moments(1, None)})
    path = Path("failures.parquet")
    assert read_times(table, "failed_at", path).to_pylist() == [at(1), None]
    assert read_times(table, "known_at", path).to_pylist() == [None, None]


def collected(path: Path, n_rows: int) -> None:
    """Write a file as a collector does, which rewrites the current hour every few seconds."""
    path.parent.mkdir(exist_ok=True)
    times = pd.date_range(START, periods=n_rows, freq="h")
    frame = pd.DataFrame({"gpu_serial": "A", "timestamp": times, "temp": np.arange(n_rows) + 0.5})
    with replacing(path) as temporary:
        frame.to_parquet(temporary)


@pytest.fixture
def hourly(tmp_path: Path) -> Path:
    path = tmp_path / "date=2025-01-01" / "collected-00.parquet"
    collected(path, 2)
    return path


def temp_store(folder: Path) -> RecordStore:
    return RecordStore(folder, FeatureKinds(float=("temp",)), HOUR)


def test_file_replaced_during_read_is_reread(
    hourly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, open_file = [], pq.ParquetFile

    def replaced(*arguments: Any, **options: Any) -> Any:
        opened.append(arguments)
        if len(opened) == 2:  # the metadata were read from the previous file
            collected(hourly, 5)
        return open_file(*arguments, **options)

    monkeypatch.setattr(pq, "ParquetFile", replaced)
    records = temp_store(tmp_path).read()
    assert numbers(records, "temp").tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    # Metadata and keys are read twice; everything else uses the open file.
    assert len(opened) == 4


@pytest.mark.parametrize("gone", [False, True], ids=["replaced", "removed"])
def test_columns_match_keys_after_replacement(gone: bool, hourly: Path, tmp_path: Path) -> None:
    records = temp_store(tmp_path).read()
    collected(hourly, 5)
    if gone:
        hourly.unlink()
    assert numbers(records, "temp").tolist() == [0.5, 1.5]


def test_replaced_closed_file_is_named(
    hourly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.pipelines.storage.records.record_store._MAX_OPEN_FILES", 0)
    records = temp_store(tmp_path).read()
    assert numbers(records, "temp").tolist() == [0.5, 1.5]
    collected(hourly, 5)
    whole = temp_store(tmp_path).read()
    collected(hourly, 2)
    with pytest.raises(RecordsError, match=r"collected-00.parquet: was replaced while it was read"):
        numbers(whole, "temp")


def test_pinned_files_ignore_later_changes(hourly: Path, tmp_path: Path) -> None:
    pinned = temp_store(tmp_path).pinned(None, at(24))
    collected(hourly, 5)
    collected(tmp_path / "date=2025-01-01" / "late.parquet", 9)
    collected(tmp_path / "date=2025-01-02" / "collected-00.parquet", 3)
    for _ in range(2):
        assert numbers(pinned.read(None, at(24)), "temp").tolist() == [0.5, 1.5]
    assert pinned.rows_by_date() == {dt.date(2025, 1, 1): 2}
    assert [path for _, path in pinned.files()] == [hourly]
    hourly.unlink()
    assert pinned.columns() == {"gpu_serial", "timestamp", "temp"}
    assert len(pinned.read_known(None, at(24))[0]) == 2


def test_replaced_unpinned_file_is_rejected(
    hourly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.pipelines.storage.records.record_store._MAX_OPEN_FILES", 0)
    pinned = temp_store(tmp_path).pinned(None, at(24))
    assert len(pinned.read(None, at(24))) == 2
    collected(hourly, 5)
    assert "collected-00.parquet: was replaced during each attempt to read it" in refused(
        pinned, None, at(24)
    )


@pytest.mark.parametrize(("most_rows", "share"), [(720, 1.0), (360, 0.5), (90, 0.125), (1, 1 / 64)])
def test_part_has_all_records_of_gpus(tmp_path: Path, most_rows: int, share: float) -> None:
    serials = tuple(f"S{number:03}" for number in range(100))
    store = store_of(write(frame_of(9, serials).head(720), tmp_path / "records"))
    part = store.read_part(at(0), at(8), most_rows)
    assert set(np.bincount(part.gpu)) <= {8}
    hashed = assign_slices([*part.serials])
    assert hashed.max() < max(1, 64 * share)
    assert len(part.serials) == (assign_slices([*serials[:80]]) < 64 * share).sum()


def test_part_is_never_empty(folder: Path) -> None:
    part = store_of(folder).read_part(at(0), at(72), 1)
    assert 1 <= len(part.serials) < len(SERIALS)
    with pytest.raises(RecordsError, match="there is no row"):
        store_of(folder).read_part(at(71.5), at(72), 1)


def test_modified_file_is_named(hourly: Path, tmp_path: Path) -> None:
    records = temp_store(tmp_path).read()
    with hourly.open("r+b") as file:
        file.write(b"PAR1 and no more")
    with pytest.raises(RecordsError, match=r"collected-00.parquet: "):
        numbers(records, "temp")


# --- failures from incidents -------------------------------------------------------------------


def _with_absences(folder: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), folder / "out_of_service.parquet")


def spans_of(records: Records) -> list[tuple[str, float, float]]:
    spans = records.out_of_service
    names = [records.serials[gpu] for gpu in spans.gpu]
    return sorted(zip(names, hours(spans.start), hours(spans.end), strict=True))


def test_out_of_service_spans_are_read(tmp_path: Path) -> None:
    folder = write(frame_of(), tmp_path / "records")
    columns = {
        "machine_id": ["m-A", "m-B", "m-Z", None],
        "gpu_serial": pa.array([None, "C", None, None], pa.string()),
        "start": moments(10, 20, 30, 40),
        "end": moments(15, None, None, None),
    }
    _with_absences(folder, columns)
    records, _ = store_of(folder).read_known()
    # A machine stands for its GPUs, a serial for one GPU; m-Z has no GPU.
    assert spans_of(records) == [("A", 10.0, 15.0), ("C", 20.0, float("inf"))]
    assert spans_of(store_of(folder).read(at(5), at(9))) == spans_of(records)


def test_reversed_span_is_ignored(tmp_path: Path) -> None:
    folder = write(frame_of(), tmp_path / "records")
    _with_absences(folder, {"machine_id": ["m-A"], "start": moments(10), "end": moments(10)})
    assert spans_of(store_of(folder).read()) == []


@pytest.mark.parametrize("column", ["machine_id", "start"])
def test_spans_table_without_column_is_named(tmp_path: Path, column: str) -> None:
    folder = write(frame_of(), tmp_path / "records")
    columns = {"machine_id": ["m-A"], "start": moments(10)}
    _with_absences(folder, {name: values for name, values in columns.items() if name != column})
    with pytest.raises(RecordsError, match=rf"out_of_service\.parquet: column `{column}`"):
        store_of(folder).read()


def test_incident_failures_count_once(tmp_path: Path) -> None:
    reported = {"gpu_serial": ["B"], "failed_at": moments(20), "repaired_at": moments(25)}
    store = with_table(tmp_path, reported)
    incidents = {
        "gpu_serial": ["B", "A"],
        "failed_at": moments(21, 30),
        "repaired_at": moments(24, 33),
        "known_at": moments(22, 31),
    }
    pq.write_table(pa.table(incidents), store.folder / "incident_failures.parquet")
    records, known = store.read_known()
    assert told(known.episodes(), records) == [("A", 30.0, 33.0, 31.0), ("B", 20.0, 25.0, 20.0)]


def test_incident_failures_suffice_for_training(tmp_path: Path) -> None:
    folder = write(frame_of().drop(columns="failure"), tmp_path / "records")
    assert not store_of(folder).has_failures()
    incidents = {"gpu_serial": ["A"], "failed_at": moments(30)}
    pq.write_table(pa.table(incidents), folder / "incident_failures.parquet")
    assert store_of(folder).has_failures()
