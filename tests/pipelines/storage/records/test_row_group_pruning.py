"""Row groups outside the requested span are not decoded, and results are unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.records.record_table import (
    FeatureKinds,
    NoRecordsError,
    Records,
    RecordsError,
)
from forewarn.features.time_units import HOUR, SECOND
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.records.row_group_pruning import matching_row_groups

START = 1_735_689_600 * SECOND  # 2025-01-01
N_ROUNDS, SERIALS = 24, ("A", "B", "C")
UTC = pa.timestamp("ns", "UTC")


def rounds(kind: pa.DataType = UTC) -> pa.Table:
    """Return a day of hourly rounds, as a collector writes them."""
    times = np.repeat(START + np.arange(N_ROUNDS) * HOUR, len(SERIALS))
    moments = pa.array(times).cast(UTC).cast(kind, safe=False)
    serials = pa.array([*SERIALS] * N_ROUNDS)
    heat = pa.array(np.arange(len(times), dtype=np.float32))
    columns = {"gpu_serial": serials, "timestamp": moments, "heat": heat, "count": heat}
    return pa.table({**columns, "xid": pa.array(np.arange(len(times)) % 5)})


def groups_of(table: pa.Table, path: Path, first: int, last: int, **options: Any) -> Any:
    """Return the row groups, of six rounds each, that can hold some rounds."""
    pq.write_table(table, path, row_group_size=6 * len(SERIALS), **options)
    metadata = pq.read_metadata(path)
    span = (START + hour * HOUR for hour in (first, last))
    return matching_row_groups(metadata, metadata.schema.to_arrow_schema(), *span)


@pytest.mark.parametrize(
    "kind",
    [
        UTC,
        pa.timestamp("us"),
        pa.timestamp("ms", "Europe/Berlin"),
        pa.timestamp("s", "UTC"),
    ],
)
def test_row_groups_outside_span_are_pruned(tmp_path: Path, kind: pa.DataType) -> None:
    table, path = rounds(kind), tmp_path / "rounds.parquet"
    assert groups_of(table, path, 0, 24) is None
    assert groups_of(table, path, 6, 24) == [1, 2, 3]
    assert groups_of(table, path, 5, 12) == [0, 1]
    assert groups_of(table, path, 5, 13) == [0, 1, 2]
    assert groups_of(table, path, 30, 40) == []
    metadata = pq.read_metadata(path)
    schema = metadata.schema.to_arrow_schema()
    assert matching_row_groups(metadata, schema, None, None) is None
    assert matching_row_groups(metadata, schema, START + 18 * HOUR, None) == [3]
    assert matching_row_groups(metadata, schema, None, START + 1) == [0]


def test_row_groups_without_statistics_are_read(tmp_path: Path) -> None:
    table, path = rounds(), tmp_path / "rounds.parquet"
    assert groups_of(table, path, 6, 24, write_statistics=False) is None
    as_text = table.set_column(1, "timestamp", table["timestamp"].cast(pa.string()))
    assert groups_of(as_text, path, 6, 24) is None
    assert groups_of(table.drop_columns("timestamp"), path, 6, 24) is None
    for number, name in enumerate(("gpu_serial", "timestamp")):  # the first round lacks a key
        values = table[name].to_pylist()
        lacking = pa.array([None, *values[1:]], table.schema.field(name).type)
        assert groups_of(table.set_column(number, name, lacking), path, 12, 24) == [0, 2, 3]


ROWS = st.lists(
    st.tuples(st.integers(0, N_ROUNDS - 1), st.sampled_from([*SERIALS, None]), st.booleans()),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, span=st.tuples(st.integers(-1, 25), st.integers(-1, 25)), by_time=st.booleans())
def test_pruning_changes_no_records(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, str | None, bool]],
    span: tuple[int, int],
    by_time: bool,
) -> None:
    listed = sorted(rows, key=lambda row: row[0]) if by_time else rows
    table = pa.table(
        {
            "gpu_serial": pa.array([serial for _, serial, _ in listed], pa.string()),
            "timestamp": pa.array(
                [None if lost else START + hour * HOUR for hour, _, lost in listed],
                UTC,
            ),
            "heat": pa.array(np.arange(len(listed), dtype=np.float32)),
            "count": pa.array(np.arange(len(listed))),
            "xid": pa.array(np.arange(len(listed)) % 5),
        }
    )
    start, end = (START + hour * HOUR for hour in sorted(span))
    found = []
    for size in (1000, 4):
        folder = tmp_path_factory.mktemp("records")
        (folder / "date=2025-01-01").mkdir()
        pq.write_table(table, folder / "date=2025-01-01/part-0.parquet", row_group_size=size)
        found.append(_read(folder, start, end))
    assert found[0] == found[1]


def _read(folder: Path, start: int, end: int) -> Any:
    """Return the content of records, or the error if there are none."""
    kinds = FeatureKinds(float=("heat",), counter=("count",), code=("xid",))
    store = RecordStore(folder, kinds, HOUR)
    try:
        records = store.read(start, end)
    except NoRecordsError as error:
        return str(error).split(": ")[-1]
    except RecordsError as error:
        return str(error).replace(str(folder), "")
    return _said(records)


def _said(records: Records) -> Any:
    every = np.arange(len(records))
    numbers = [records.numbers(name, every).tobytes() for name in ("heat", "count", "xid")]
    keys = [values.tolist() for values in (records.gpu, records.time, records.filled)]
    return records.serials, keys, numbers, records.seen.notes()
