from __future__ import annotations

import datetime as dt
import fcntl
import io
import json
import shutil
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.records.fleet_slices import assign_slices
from forewarn.features.records.record_table import FeatureKinds, Records
from forewarn.features.time_units import HOUR
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.storage.files.file_lock import landing_locked
from forewarn.pipelines.storage.records import date_merge
from forewarn.pipelines.storage.records.compaction import CompactedDate, compact_date
from forewarn.pipelines.storage.records.compaction_metadata import (
    COMPACTED_NAME,
    CompactionMetadata,
)
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.records.spill_partitions import SpillPartitions

DAY = dt.date(2025, 1, 1)
MIDNIGHT = dt.datetime(2025, 1, 1)
SERIALS = [f"G{number:02}" for number in range(40)]


def rows_of(hours: list[int], serials: list[str] = SERIALS, xid: int = 0) -> pa.Table:
    """Return hourly records of one machine."""
    keys = [(serial, hour) for hour in hours for serial in serials]
    n = len(keys)
    columns = {
        "gpu_serial": [serial for serial, _ in keys],
        "timestamp": pa.array([MIDNIGHT + dt.timedelta(hours=h) for _, h in keys]),
        "failure": pa.array([0] * n, pa.int8()),
        "machine_id": pa.array(["m"] * n).dictionary_encode(),
        "temperature": pa.array([50.0 + h for _, h in keys], pa.float32()),
        "xid": pa.array([xid] * n, pa.int64()),
    }
    return pa.table(columns)


def write(folder: Path, name: str, table: pa.Table, date: dt.date = DAY) -> Path:
    path = folder / f"date={date}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def collected(folder: Path, n_hours: int = 3) -> Path:
    """Write a date as a collector does: one file per hour."""
    for hour in range(n_hours):
        write(folder, f"collected-{hour:02}.parquet", rows_of([hour]))
    return folder


def read(folder: Path) -> Records:
    kinds = FeatureKinds(float=("temperature",), code=("xid",))
    return RecordStore(folder, kinds, HOUR, ("machine_id",)).read()


def cells(records: Records) -> list[Any]:
    """Return all rows, sorted by GPU and time."""
    rows = np.arange(len(records))
    return [
        records.serials,
        records.gpu.tolist(),
        records.time.tolist(),
        records.failed.tolist(),
        records.numbers("temperature", rows).tolist(),
        records.numbers("xid", rows).tolist(),
        records.codes("machine_id", rows).tolist(),
    ]


def names_in(folder: Path, date: dt.date = DAY) -> list[str]:
    """Return the names of the files of records and of temporary files."""
    names = sorted(path.name for path in (folder / f"date={date}").iterdir())
    return list(names)


def form_of(folder: Path) -> CompactionMetadata:
    form = CompactionMetadata.from_metadata(
        pq.read_metadata(folder / f"date={DAY}" / COMPACTED_NAME).metadata
    )
    assert form is not None
    return form


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in ("compact", *arguments)])
    output = capsys.readouterr()
    return code, output.out, output.err


# --- format -------------------------------------------------------------------------------------


def test_compacted_date_reads_the_same(tmp_path: Path) -> None:
    before = cells(read(collected(tmp_path)))
    outcome = compact_date(tmp_path, DAY)
    assert (outcome.files, outcome.counts) == (3, date_merge.MergeCounts(120, 0, 1))
    assert names_in(tmp_path) == [COMPACTED_NAME]
    assert cells(read(tmp_path)) == before


def test_row_groups_hold_whole_sorted_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(date_merge, "_MIN_ROWS_PER_GROUP", 15)
    compact_date(collected(tmp_path), DAY)
    form, path = form_of(tmp_path), tmp_path / f"date={DAY}" / COMPACTED_NAME
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(n).to_pydict() for n in range(file.num_row_groups)]
    assert len(groups) == len(form.slices) == 8
    for (first, last), group in zip(form.slices, groups, strict=True):
        slices = assign_slices(group["gpu_serial"]).tolist()
        assert first <= min(slices) <= max(slices) < last
        keys = list(zip(slices, group["gpu_serial"], group["timestamp"], strict=True))
        assert keys == sorted(keys)
    wanted = [
        s for s, number in zip(SERIALS, assign_slices(SERIALS, 4), strict=True) if number == 2
    ]
    taken = [groups[number] for number in form.row_groups(32, 48)]
    assert sorted({serial for group in taken for serial in group["gpu_serial"]}) == wanted


def test_merge_beyond_memory_is_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(date_merge, "_MIN_ROWS_PER_GROUP", 15)
    keyless = rows_of([0], ["A"]).set_column(0, "gpu_serial", pa.array([None], pa.string()))
    for folder in (tmp_path / "once", tmp_path / "parts"):
        write(collected(folder), "collected-03.parquet", pa.concat_tables([rows_of([1]), keyless]))
    compact_date(tmp_path / "once", DAY)
    monkeypatch.setattr(date_merge, "_MAX_CELLS_IN_MEMORY", 240)
    monkeypatch.setattr(date_merge, "_ROWS_PER_GROUP", 7)
    parts = compact_date(tmp_path / "parts", DAY)
    assert parts.counts is not None
    assert parts.counts.doubled == 40
    once, again = (pq.read_table(tmp_path / n / f"date={DAY}") for n in ("once", "parts"))
    assert again.equals(once)
    slices = form_of(tmp_path / "parts").slices
    assert list(slices) == sorted(slices)
    assert len(slices) == parts.counts.row_groups > 15


def moved(table: pa.Table, machines: list[str]) -> pa.Table:
    """Return records of other machines, whose texts have another order."""
    names = pa.array([machines[row % len(machines)] for row in range(len(table))])
    return table.set_column(3, "machine_id", names.dictionary_encode())


def test_spilled_merge_gives_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(date_merge, "_MIN_ROWS_PER_GROUP", 1)  # 64 ranges in every case
    hours = enumerate((["m1", "m0"], ["m2"], ["m1", "m3"], ["m0"]))
    tables = [moved(rows_of([hour % 3]), machines) for hour, machines in hours]
    paths = [write(tmp_path, f"part-{n}.parquet", table) for n, table in enumerate(tables)]
    sources, merged = [ParquetSource(path) for path in paths], set()
    for cells in (10**6, 300, 100, 1):  # one part, four, sixteen, 64
        monkeypatch.setattr(date_merge, "_MAX_CELLS_IN_MEMORY", cells)
        assert date_merge.merge_date(sources, tmp_path / "out").doubled == 40
        merged.add((tmp_path / "out").read_bytes())
    assert len(merged) == 1


def test_only_late_files_are_partitioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(date_merge, "_MIN_ROWS_PER_GROUP", 8)
    compact_date(collected(tmp_path), DAY)
    write(tmp_path, "late.parquet", rows_of([1, 4], xid=79))
    paths = sorted((tmp_path / f"date={DAY}").glob("*.parquet"))
    sources, divided = [ParquetSource(path) for path in paths], []
    date_merge.merge_date(sources, tmp_path / "once")
    add = SpillPartitions.add

    def counting(self: SpillPartitions, table: pa.Table, number: Any) -> None:
        divided.append(len(table))
        add(self, table, number)

    monkeypatch.setattr(SpillPartitions, "add", counting)
    monkeypatch.setattr(date_merge, "_MAX_CELLS_IN_MEMORY", 240)
    assert date_merge.merge_date(sources, tmp_path / "parts").doubled == 40
    assert sum(divided) == 80  # rows of the late file only
    assert pq.read_table(tmp_path / "parts").equals(pq.read_table(tmp_path / "once"))


# Kills itself after half of a date was sorted.
KILLED_HALF_WAY = """
import datetime as dt, os, signal, sys
from pathlib import Path
from forewarn.pipelines.storage.records import date_merge
from forewarn.pipelines.storage.records.compaction import compact_date

class Killing(date_merge.SpillPartitions):
    def rows(self, which):
        if which == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().rows(which)

date_merge.SpillPartitions, date_merge._MAX_CELLS_IN_MEMORY = Killing, 240
compact_date(Path(sys.argv[1]), dt.date(2025, 1, 1))
"""


def test_killed_spill_leaves_one_file(
    tmp_path: Path,
) -> None:
    before = names_in(collected(tmp_path))
    done = subprocess.run([sys.executable, "-c", KILLED_HALF_WAY, str(tmp_path)], check=False)
    assert done.returncode == -9
    (begun,) = set(names_in(tmp_path)) - set(before)
    assert begun.startswith(f".{COMPACTED_NAME}.")
    compact_date(tmp_path, DAY)
    assert names_in(tmp_path) == [COMPACTED_NAME]


def test_full_disk_during_spill_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = names_in(collected(tmp_path))

    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(date_merge, "_MAX_CELLS_IN_MEMORY", 240)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    assert said(capsys, "--records", tmp_path, "--date", DAY)[0] == 2
    assert names_in(tmp_path) == before


@pytest.mark.parametrize("cells", [10**6, 1], ids=["at once", "divided"])
def test_columns_keep_type_and_nulls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    monkeypatch.setattr(date_merge, "_MAX_CELLS_IN_MEMORY", cells)
    kinds: dict[str, tuple[list[Any], pa.DataType]] = {
        "gpu_serial": (["b", "a", None], pa.large_string()),
        "timestamp": ([MIDNIGHT, None, MIDNIGHT], pa.timestamp("us")),
        "text": (["x", None, "é"], pa.string()),
        "code": (["x", None, "y"], pa.dictionary(pa.int8(), pa.string())),
        "taken": ([dt.timedelta(1), None, dt.timedelta(2)], pa.duration("s")),
        "price": ([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(9, 2)),
        "links": ([[1, 2], None, []], pa.list_(pa.int16())),
        "place": ([{"row": 1}, None, {"row": None}], pa.struct([("row", pa.uint8())])),
        "raw": ([b"\x00", None, b""], pa.binary()),
        "up": ([True, None, False], pa.bool_()),
        "nothing": ([None, None, None], pa.null()),
    }
    table = pa.table({name: pa.array(*column) for name, column in kinds.items()})
    table = table.replace_schema_metadata({"made by": "a site"})
    path = write(tmp_path, "part-0.parquet", table)
    before = pq.read_table(path, partitioning=None)
    compact_date(tmp_path, DAY)
    after = pq.read_table(path.with_name(COMPACTED_NAME), partitioning=None)
    assert after.schema.equals(before.schema, check_metadata=True)
    key = str  # rows by their content
    assert sorted(after.to_pylist(), key=key) == sorted(before.to_pylist(), key=key)


def test_list_and_doctor_ignore_compaction(
    records: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compacted = shutil.copytree(records, tmp_path / "compacted")
    assert said(capsys, "--records", compacted, "--end", "2025-02-01")[0] == 0
    assert len(list(compacted.glob(f"date=*/{COMPACTED_NAME}"))) == 20
    lists, reports = [], []
    for folder in (records, compacted):
        out = tmp_path / f"list-{folder.name}"
        options = ["--records", str(folder), "--config", str(config), "--at", "2025-01-20"]
        assert main(["score", *options, "--model", "builtin:rules", "--out", str(out)]) == 0
        capsys.readouterr()
        lists += [(path / "at_risk.parquet").read_bytes() for path in out.iterdir()]
        assert main(["doctor", str(folder), "--config", str(config), "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
        reports[-1].pop("layout")
    assert lists[0] == lists[1]
    assert reports[0] == reports[1]


# --- duplicate rows -----------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "C", None]), st.sampled_from([None, 0, 1, 2]), st.integers(0, 9)
    ),
    max_size=8,
)


def table_of(rows: list[tuple[str | None, int | None, int]]) -> pa.Table:
    serials, hours, values = zip(*rows, strict=True) if rows else ((), (), ())
    times = [None if hour is None else MIDNIGHT + dt.timedelta(hours=hour) for hour in hours]
    columns = {
        "gpu_serial": pa.array(serials, pa.string()),
        "timestamp": pa.array(times, pa.timestamp("ns")),
        "value": pa.array(values, pa.int64()),
    }
    return pa.table(columns)


def resolved(tables: list[pa.Table]) -> tuple[dict[Any, int], list[Any]]:
    """Return the last value of each key, and the rows without one."""
    values, keyless = {}, []
    for row in (row for table in tables for row in table.to_pylist()):
        key = row["gpu_serial"], row["timestamp"]
        if None in key:
            keyless.append((*map(str, key), row["value"]))
        else:
            values[key] = row["value"]
    return values, sorted(keyless)


@settings(max_examples=40)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_the_resolved_rows_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Any]]
) -> None:
    folder = tmp_path_factory.mktemp("records")
    tables = [table_of(rows) for rows in files]
    for number, table in enumerate(tables):
        write(folder, f"part-{number}.parquet", table)
    outcome = compact_date(folder, DAY)
    (path,) = (folder / f"date={DAY}").glob("*.parquet")
    merged = pq.read_table(path, partitioning=None)
    assert resolved([merged]) == resolved(tables)
    assert outcome.counts is not None
    assert len(merged) == outcome.counts.rows == sum(map(len, resolved(tables)))
    assert outcome.counts.doubled == sum(map(len, files)) - len(merged)


def test_late_batch_joins_next_compaction(tmp_path: Path) -> None:
    collected(tmp_path)
    compact_date(tmp_path, DAY)
    # The collector rebuilds the records of the hour with a late Xid.
    write(tmp_path, "collected-01.parquet", rows_of([1], xid=79))
    late = read(tmp_path)
    xids = late.numbers("xid", np.arange(len(late))).reshape(len(SERIALS), 3)
    assert xids.tolist() == [[0, 79, 0]] * len(SERIALS)
    outcome = compact_date(tmp_path, DAY)
    assert outcome.counts == date_merge.MergeCounts(120, 40, 1)
    assert names_in(tmp_path) == [COMPACTED_NAME]
    assert cells(read(tmp_path)) == cells(late)


# --- concurrent processes -----------------------------------------------------------------------

# Kills itself before or after its nth operation on the disk.
KILLED = """
import datetime as dt, os, shutil, signal, sys
import pandas  # pyarrow would load it in each child
from pathlib import Path
import pyarrow.parquet as pq
from forewarn.pipelines.storage.records.compaction import compact_date

records, work = map(Path, sys.argv[1:])
n_done, n_kill = 0, 0

def killing(owner, name):
    act = getattr(owner, name)
    def acting(*arguments, **options):
        global n_done
        n_done += 2
        if n_done - 1 == n_kill:
            os.kill(os.getpid(), signal.SIGKILL)
        done = act(*arguments, **options)
        if n_done == n_kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(owner, name, acting)

for owner, name in (
    (pq.ParquetWriter, "write_table"), (pq.ParquetWriter, "close"), (Path, "replace"),
    (Path, "unlink"),
):
    killing(owner, name)
status = 1
while status:
    n_kill += 1
    copy = shutil.copytree(records, work / str(n_kill))
    child = os.fork()
    if not child:
        compact_date(copy, dt.date(2025, 1, 1))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
print(n_kill)
"""


def test_kill_loses_and_duplicates_no_record(tmp_path: Path) -> None:
    records = collected(tmp_path / "records", 2)  # "late" is the last of three
    keyless = rows_of([2], ["G00"]).set_column(0, "gpu_serial", pa.array([None], pa.string()))
    write(records, "late.parquet", pa.concat_tables([rows_of([1], ["G00"], xid=79), keyless]))
    before = cells(read(records))
    (tmp_path / "killed").mkdir()
    command = [sys.executable, "-c", KILLED, str(records), str(tmp_path / "killed")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    copies = sorted((tmp_path / "killed").iterdir(), key=lambda path: int(path.name))
    assert len(copies) == int(done.stdout) > 12
    ends = set()
    for copy in copies:
        assert cells(read(copy)) == before
        compact_date(copy, DAY)
        assert names_in(copy) == [COMPACTED_NAME]
        rows = pq.read_table(copy / f"date={DAY}", partitioning=None).to_pylist()
        ends.add(str(rows))
    assert len(ends) == 1
    assert cells(read(copies[0])) == before
    assert len(rows) == 81  # including the row without a serial


def test_replaced_file_is_merged_in_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected(tmp_path)
    merge, tries = date_merge.merge_date, []

    def slow(*arguments: Any) -> Any:
        counts = merge(*arguments)
        tries.append(counts)
        if len(tries) == 1:
            write(tmp_path, "collected-02.parquet", rows_of([2, 3]))
        return counts

    monkeypatch.setattr("forewarn.pipelines.storage.records.compaction.merge_date", slow)
    compact_date(tmp_path, DAY)
    assert [counts.rows for counts in tries] == [120, 160]
    assert len(read(tmp_path)) == 160
    assert names_in(tmp_path) == [COMPACTED_NAME]


def test_reader_lists_again_after_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cells(read(collected(tmp_path)))
    listed = RecordStore.files

    def late(store: RecordStore) -> Any:
        files = listed(store)
        monkeypatch.setattr(RecordStore, "files", listed)
        compact_date(tmp_path, DAY)
        return files

    monkeypatch.setattr(RecordStore, "files", late)
    assert cells(read(tmp_path)) == before


def test_no_row_lands_while_files_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected(tmp_path)
    with landing_locked(tmp_path):
        pass
    unlink, free = Path.unlink, []

    def tried(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("collected-"):
            with (tmp_path / "_state" / "lock").open() as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    free.append(path)
                except BlockingIOError:
                    pass
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", tried)
    compact_date(tmp_path, DAY)
    assert names_in(tmp_path) == [COMPACTED_NAME]
    assert free == []


# --- dates that are left unchanged --------------------------------------------------------------


def left(folder: Path) -> CompactedDate:
    before = names_in(folder)
    outcome = compact_date(folder, DAY)
    assert outcome.state == "left"
    assert names_in(folder) == before
    return outcome


def test_files_with_different_columns_are_left(tmp_path: Path) -> None:
    write(collected(tmp_path), "late.parquet", rows_of([4]).drop_columns(["xid"]))
    assert left(tmp_path).why.endswith(
        "late.parquet: has different columns than collected-00.parquet (`xid` is in one of them), "
        "expected the same in all files of a date."
    )


def test_missing_optional_column_is_null(tmp_path: Path) -> None:
    table = rows_of([4])
    energy = pa.array([float(row) for row in range(len(table))])
    write(collected(tmp_path), "late.parquet", table.append_column("energy_consumption", energy))
    outcome = compact_date(tmp_path, DAY)
    assert outcome.state == "compacted"
    (path,) = tmp_path.rglob(COMPACTED_NAME)
    column = pq.read_table(path, partitioning=None)["energy_consumption"]
    assert len(column) > column.null_count > 0
    assert sorted(column.drop_null().to_pylist()) == energy.to_pylist()


def test_unrepresentable_values_prevent_merging(tmp_path: Path) -> None:
    table = rows_of([4])
    for column, why in (
        (pa.array(["7"] * 40), "late.parquet: column `xid` is string, and int64 in collected-00"),
        (pa.array([0.5] * 40), ""),
    ):
        write(collected(tmp_path), "late.parquet", table.set_column(5, "xid", column))
        if why:
            assert why in left(tmp_path).why
    write(tmp_path, "collected-00.parquet", rows_of([0], xid=2**53 + 1))
    assert "cannot be combined with the other files" in left(tmp_path).why


@pytest.fixture
def two_dates(tmp_path: Path) -> Path:
    write(collected(tmp_path), "part.parquet", rows_of([24]), DAY + dt.timedelta(1))
    return tmp_path


def test_command_leaves_newest_and_compact_dates(
    two_dates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, "--records", two_dates)
    first, second = out.splitlines()
    assert code == 0
    assert first.startswith("2025-01-01 120 records of 3 files in 1 row groups, ")
    assert second == "2025-01-02 is the newest date (select it with --date 2025-01-02)"
    assert said(capsys, "--records", two_dates)[1].startswith("2025-01-01 is already compact\n")
    assert said(capsys, "--records", two_dates, "--date", "2025-01-02", "--json")[0] == 0
    assert names_in(two_dates, DAY + dt.timedelta(1)) == [COMPACTED_NAME]
    assert names_in(two_dates) == [COMPACTED_NAME]
    assert not list(two_dates.glob(".*"))


def test_command_prints_one_object_per_date(
    two_dates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(capsys, "--records", two_dates, "--json")
    first, second = map(json.loads, out.splitlines())
    assert first["bytes_before"] > first["bytes_after"] > 0
    shown = ("date", "state", "files", "records", "doubled", "row_groups")
    assert [first[name] for name in shown] == ["2025-01-01", "compacted", 3, 120, 0, 1]
    assert (second["date"], second["state"]) == ("2025-01-02", "left")


def test_unfinished_named_date_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    today = dt.datetime.now(dt.UTC).date() + dt.timedelta(1)
    write(tmp_path, "part.parquet", rows_of([0]), today)
    _, out, _ = said(capsys, "--records", tmp_path, "--date", today)
    assert out == f"{today} is not over\n"
    assert names_in(tmp_path, today) == ["part.parquet"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--start", "2026-01-01"), "no records of the requested dates, expected dates from"),
        (("--date", "2025-01-01", "--end", "2025-01-02"), "expected one or the other"),
        (("--date", "today"), "found 'today', expected a date such as 2025-03-01"),
    ],
)
def test_bad_options_are_one_line(
    two_dates: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    try:
        code, _, err = said(capsys, "--records", two_dates, *arguments)
    except SystemExit as exit_:
        code, err = int(exit_.code or 0), capsys.readouterr().err
    assert code == 2
    assert line in err
    assert err.count("\n") == 1
    assert len(names_in(two_dates)) == 3


def test_invalid_file_is_named_and_kept(
    two_dates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (two_dates / f"date={DAY}" / "collected-01.parquet").write_text("no")
    code, _, err = said(capsys, "--records", two_dates)
    assert code == 2
    assert "collected-01.parquet: is not a complete Parquet file" in err
    assert len(names_in(two_dates)) == 3


def test_full_disk_is_reported_with_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    collected(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")  # pyarrow's message names no file

    monkeypatch.setattr("forewarn.pipelines.storage.records.compaction.merge_date", full)
    assert main(["compact", "--records", str(tmp_path), "--date", str(DAY)]) == 2
    assert f"{tmp_path}/date={DAY}/{COMPACTED_NAME}: No space left" in capsys.readouterr().err
