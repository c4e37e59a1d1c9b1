from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.records.failures import Failures
from forewarn.features.records.key_runs import KeyRuns
from forewarn.features.records.table import FeatureKinds, Records, RecordsError
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.storage import date_merge
from forewarn.pipelines.storage.compacted_form import COMPACTED, is_runs_name
from forewarn.pipelines.storage.compaction import compact_date
from forewarn.pipelines.storage.parquet_files import ParquetSource, read_runs
from forewarn.pipelines.storage.record_store import RecordStore

FIRST = dt.date(2025, 1, 1)
MIDNIGHT = dt.datetime(2025, 1, 1)
KINDS = FeatureKinds(categorical=("kind",), float=("value",), date=("until",))
SERIALS = [f"G{number}" for number in range(12)]
MANY = [f"G{number}" for number in range(48)]  # runs pay though some GPUs are not steady
Row = dict[str, Any]


def row(serial: str | None, hour: float | None, **others: Any) -> Row:
    moment = None if hour is None else MIDNIGHT + dt.timedelta(hours=hour)
    usual = {"failure": 0, "kind": "a", "until": "2026-01-01", "machine_id": "m", "value": 1.0}
    return {"gpu_serial": serial, "timestamp": moment} | usual | others


def write(folder: Path, name: str, rows: list[Row], date: dt.date = FIRST) -> None:
    path = folder / f"date={date}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def runs_in(folder: Path) -> list[Path]:
    paths = (folder / f"date={FIRST}").iterdir()
    return [path for path in paths if is_runs_name(path.name)]


def runs_of(folder: Path) -> KeyRuns | None:
    return ParquetSource(folder / f"date={FIRST}" / COMPACTED).runs()


def known(folder: Path, start: int | None = None) -> tuple[Records, Failures]:
    store = RecordStore(folder, KINDS, Nanoseconds(HOUR), ("machine_id",))
    return store.read_known(start)


def cells(of_all: tuple[Records, Failures]) -> list[Any]:
    """Return everything that is read, by GPU and time, and all failures."""
    records, failures = of_all
    rows = np.arange(len(records))
    return [
        records.serials,
        records.gpu.tolist(),
        records.time.tolist(),
        records.failed.tolist(),
        records.filled.tolist(),
        [records.texts[n].texts for n in ("kind", "machine_id")],
        [records.codes(n, rows).tolist() for n in ("kind", "machine_id")],
        records.numbers("until", rows).astype(str).tolist(),
        dict(records.seen.nulls),
        records.seen.notes(),
        *([array.tolist() for array in (failures.gpu, failures.failed_at, failures.repaired_at)]),
    ]


def without_runs(folder: Path, start: int | None = None) -> list[Any]:
    """Read the same records without looking at runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetSource, "runs", lambda *_, **_kinds: None)
        return cells(known(folder, start))


ROWS = st.lists(
    st.builds(
        row,
        st.sampled_from(SERIALS[:4]),
        st.sampled_from([*range(24), 3.7, 11.2]),
        failure=st.sampled_from([0, 0, 0, 1, None]),
        kind=st.sampled_from(["a", "a", "b", None]),
        until=st.sampled_from(["2026-01-01", "2027-05-05", "", None]),
        machine_id=st.sampled_from(["m", "n"]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS, ROWS, st.sampled_from([None, 0, 5, 30]))
def test_records_are_the_same_with_runs_and_without(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Row],
    second: list[Row],
    late: list[Row],
    start: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("records")
    steady = [row(serial, hour) for serial in MANY for hour in range(24)]
    write(folder, "part-0.parquet", steady + first)
    tomorrow = FIRST + dt.timedelta(1)
    later = [entry | {"timestamp": (entry["timestamp"] + dt.timedelta(1))} for entry in second]
    steady = [row(serial, 24 + hour) for serial in MANY for hour in range(24)]
    write(folder, "part-0.parquet", steady + later, tomorrow)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(date_merge, "_FEWEST_PER_GROUP", 40)  # several row groups
        compact_date(folder, FIRST)
        compact_date(folder, tomorrow)
    begin = None if start is None else 20089 * DAY + start * HOUR
    assert runs_of(folder) is not None
    assert cells(known(folder, begin)) == without_runs(folder, begin)
    write(folder, "late.parquet", late)
    assert cells(known(folder, begin)) == without_runs(folder, begin)


def test_texts_that_change_where_times_are_uneven_are_all_read(tmp_path: Path) -> None:
    listed = [
        row(serial, hour + hour % 3 / 10, machine_id="n" if serial == "G3" and hour == 4 else "m")
        for serial in MANY
        for hour in range(24)
    ]
    write(tmp_path, "part-0.parquet", listed)
    compact_date(tmp_path, FIRST)
    runs = runs_of(tmp_path)
    assert runs is not None
    assert runs.step is None
    assert cells(known(tmp_path)) == without_runs(tmp_path)


def steady(folder: Path, **others: Any) -> Path:
    """Write a date of GPUs that report each hour, and compact it."""
    write(folder, "part.parquet", [row(s, hour, **others) for s in SERIALS for hour in range(24)])
    compact_date(folder, FIRST)
    return folder


def test_a_steady_gpu_is_one_run_a_date(tmp_path: Path) -> None:
    runs = runs_of(steady(tmp_path))
    assert runs is not None
    assert runs.step is not None
    assert runs.n_rows.tolist() == [24] * 12
    assert set(runs.step.tolist()) == {HOUR}
    assert set(runs.texts) == {"kind", "until", "machine_id"}


@pytest.mark.parametrize(
    "odd",
    [row(None, 3), row("G0", None), row("G0", 3.2, failure=2)],
    ids=["no serial", "no time", "state"],
)
def test_rows_that_runs_cannot_stand_for_leave_an_empty_file(tmp_path: Path, odd: Row) -> None:
    write(tmp_path, "odd.parquet", [odd])
    steady(tmp_path)
    assert len(runs_in(tmp_path)) == 1
    assert runs_of(tmp_path) is None
    assert cells(known(tmp_path)) == without_runs(tmp_path)


def test_a_text_that_changes_at_each_row_is_left_out(tmp_path: Path) -> None:
    rows = [row(s, hour, kind=f"{s}-{hour}") for s in SERIALS for hour in range(24)]
    write(tmp_path, "part.parquet", rows)
    compact_date(tmp_path, FIRST)
    runs = runs_of(tmp_path)
    assert runs is not None
    assert set(runs.texts) == {"until", "machine_id"}
    assert cells(known(tmp_path)) == without_runs(tmp_path)


def test_times_without_a_beat_are_read_from_the_records(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = [row(s, hour + random.uniform(0, 0.4)) for s in SERIALS for hour in range(24)]
    write(tmp_path, "part.parquet", rows)
    compact_date(tmp_path, FIRST)
    runs = runs_of(tmp_path)
    assert runs is not None
    assert runs.step is None
    assert cells(known(tmp_path)) == without_runs(tmp_path)


def test_a_late_batch_has_its_runs_after_the_next_compacting(tmp_path: Path) -> None:
    (before,) = runs_in(steady(tmp_path))
    write(tmp_path, "late.parquet", [row("G0", 5, kind="b"), row("NEW", 5)])
    assert cells(known(tmp_path)) == without_runs(tmp_path)
    compact_date(tmp_path, FIRST)
    (after,) = runs_in(tmp_path)
    assert before != after
    assert "NEW" in known(tmp_path)[0].serials
    assert cells(known(tmp_path)) == without_runs(tmp_path)


def test_runs_that_are_missing_are_made_by_the_next_compacting(tmp_path: Path) -> None:
    (path,) = runs_in(steady(tmp_path))
    before = path.read_bytes()
    path.unlink()
    assert compact_date(tmp_path, FIRST).state == "compact"
    assert path.read_bytes() == before


@pytest.mark.parametrize("state", ["compact", "compacted"])
def test_numbers_of_a_version_before_are_not_read_and_removed_by_the_next_compacting(
    tmp_path: Path, state: str
) -> None:
    (runs,) = runs_in(steady(tmp_path))
    numbers = runs.with_suffix(".numbers")
    numbers.write_bytes(b"whatever they hold")
    if state == "compacted":
        write(tmp_path, "late.parquet", [row("G0", 5, kind="b")])
    before = cells(known(tmp_path))
    assert before == without_runs(tmp_path)
    assert compact_date(tmp_path, FIRST).state == state
    assert not numbers.exists()
    assert len(runs_in(tmp_path)) == 1
    assert cells(known(tmp_path))[:4] == before[:4]


@pytest.mark.parametrize("damage", ["cut", "page", "empty"])
def test_damaged_runs_are_named_and_made_anew_by_the_next_compacting(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = runs_in(steady(tmp_path))
    before = path.read_bytes()
    damaged = bytearray(before)
    damaged[60] ^= 0xFF  # within the first page
    path.write_bytes({"cut": before[:200], "page": bytes(damaged), "empty": b""}[damage])
    source = ParquetSource(path.parent / COMPACTED)
    with pytest.raises(RecordsError, match=rf"{path.name}: [^\n]+`forewarn compact` [^\n]+$"):
        source.runs()
    assert compact_date(tmp_path, FIRST).state == "compact"
    assert str(path) in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_flipped_bit_at_the_end_of_runs_is_said_in_a_line_or_harmless(tmp_path: Path) -> None:
    (path,) = runs_in(steady(tmp_path))
    before = path.read_bytes()
    footer = len(before) - 8 - int.from_bytes(before[-8:-4], "little")
    lines = []
    for at in range(footer, len(before), 3):
        damaged = bytearray(before)
        damaged[at] ^= 0x80
        path.write_bytes(bytes(damaged))
        source = ParquetSource(path.parent / COMPACTED)
        try:
            source.runs()
        except RecordsError as error:
            lines.append(str(error))
    assert len(lines) > 100
    assert all(f"{path.name}: " in line and "Delete it: " in line for line in lines)
    assert not any("\n" in line for line in lines)


def test_runs_of_another_file_of_that_name_are_not_read(tmp_path: Path) -> None:
    steady(tmp_path)
    path = tmp_path / f"date={FIRST}" / COMPACTED
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.slice(0, 24), path, store_schema=False)
    assert runs_of(tmp_path) is None
    assert len(known(tmp_path)[0].serials) == 1


def test_files_that_are_read_together_have_the_same_texts(tmp_path: Path) -> None:
    serials = [SERIALS[:7], SERIALS[5:]]
    dates = [FIRST, FIRST + dt.timedelta(days=1)]
    for date, some in zip(dates, serials, strict=True):
        kind = "a" if date == FIRST else "b"
        rows = [row(s, (date - FIRST).days * 24 + h, kind=kind) for h in range(24) for s in some]
        write(tmp_path, "00.parquet", rows, date)
        compact_date(tmp_path, date)
    together = [ParquetSource(tmp_path / f"date={date}" / COMPACTED) for date in dates]
    read_runs(together)
    each = [source.runs() for source in together]
    alone = [ParquetSource(source.path).runs() for source in together]
    assert each[0] is not None
    assert each[0].first.serial.texts == tuple(sorted(SERIALS))
    for runs, own in zip(each, alone, strict=True):
        assert runs is not None
        assert own is not None
        assert runs.first.serial.texts is each[0].first.serial.texts
        assert runs.first.time.tolist() == own.first.time.tolist()
        columns = [(runs.first.serial, own.first.serial), (runs.texts["kind"], own.texts["kind"])]
        for ours, theirs in columns:
            texts = [[c.texts[code] for code in c.codes.tolist()] for c in (ours, theirs)]
            assert texts[0] == texts[1]


@pytest.mark.parametrize("change", ["cut", "rows", "groups", "texts"])
def test_runs_that_are_broken_are_said_in_a_line(tmp_path: Path, change: str) -> None:
    (path,) = runs_in(steady(tmp_path))
    table = pq.read_table(path)
    if change == "cut":
        path.write_bytes(path.read_bytes()[:200])
    elif change == "rows":
        rows = table["forewarn.rows"].to_numpy().copy()
        rows[:2] = [60, -12]
        pq.write_table(table.set_column(3, "forewarn.rows", pa.array(rows)), path)
    elif change == "texts":
        kind = table["kind"].cast(pa.string())
        pq.write_table(table.set_column(table.column_names.index("kind"), "kind", kind), path)
    else:
        pq.write_table(table.replace_schema_metadata({"forewarn.runs": "[0, 1, 12]"}), path)
    with pytest.raises(RecordsError, match=rf"{path.name}: [^\n]+$"):
        known(tmp_path)
