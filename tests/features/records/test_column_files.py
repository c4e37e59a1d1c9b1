from __future__ import annotations

import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.features.table_source import TableSource

from forewarn.features.prediction.instances import find_instances, latest_instances
from forewarn.features.prediction.measurement import Measures
from forewarn.features.prediction.plan import Plan
from forewarn.features.records import assembly, column_files, hourly_sums
from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.column_files import COLUMNS_AT_ONCE, ColumnFiles
from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import Columns
from forewarn.features.records.keys_as_read import KeysAsRead, RowKeys
from forewarn.features.records.stretches import Stretch
from forewarn.features.records.table import FeatureKinds, FloatArray, NumberColumns, Records
from forewarn.features.records.timeline import Timeline, lay_out
from forewarn.features.time_units import Nanoseconds, RecordCount

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, Any]]]

MINUTE = 60 * 10**9
KINDS = FeatureKinds(
    categorical=("kind",),
    float=("value", "other"),
    counter=("count",),
    binary=("throttled",),
    code=("xid",),
    date=("until",),
)
PART_ROWS = st.sampled_from([1, 150, 2**20])
PLAN = Plan(
    KINDS,
    RecordCount(3),
    Nanoseconds(10 * MINUTE),
    history=(4, 16),
    peers=("machine_id", "kind"),
    residuals=(("value", "other"),),
)


def fleet_rows(rows: Rows, seed: int = 1, n_records: int = 80) -> list[dict[str, Any]]:
    """Return rows of a few GPUs in order of time, with gaps, nulls and changes of place."""
    source = random.Random(seed)
    listed = []
    for record in range(n_records):
        for gpu in range(6):
            if source.random() < 0.08:
                continue
            listed += rows(
                f"G{gpu}",
                [10 * record],
                value=source.choice([None, source.uniform(20, 90)]),
                other=source.uniform(100, 400),
                count=source.choice([None, record // 7, record // 7 + 3]),
                throttled=int(source.random() < 0.1),
                xid=source.choice([None, 0, 0, 0, 13, 79]),
                until=source.choice([None, "2026-05-01"]) if record % 20 == 0 else "2026-05-01",
                kind="P4" if gpu % 2 else "V100",
                machine_id=f"m{(gpu + (record > 40)) // 3}",
                slot=gpu % 3,
                failure=int(gpu == 2 and 30 < record < 36),
            )
    return listed


@pytest.fixture
def lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no column, however small it is."""
    monkeypatch.setattr(column_files, "_KEPT_BYTES", 0)


@dataclass
class _Watched:
    """Columns that count how often each is read, and how many are in memory at a time."""

    columns: NumberColumns
    reads: Counter[str] = field(default_factory=Counter)
    alive: int = 0
    most: int = 0

    @property
    def names(self) -> Any:
        return self.columns.names

    @property
    def at_once(self) -> int:
        return self.columns.at_once

    def read(self, name: str, low: int, high: int) -> FloatArray:
        values = self.columns.read(name, low, high)
        self.reads[name] += 1
        self._watch(values)
        return values

    def parts(self, name: str, low: int, high: int) -> Iterator[Stretch]:
        self.reads[name] += 1
        for part in self.columns.parts(name, low, high):
            self._watch(part.values)
            yield part

    def _watch(self, values: FloatArray) -> None:
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(values, self._gone)

    def _gone(self) -> None:
        self.alive -= 1


def watched(records: Records) -> tuple[Records, _Watched]:
    columns = _Watched(records.columns)
    return replace(records, columns=columns), columns


def timeline_of(records: Records) -> Timeline:
    return lay_out(records, Failures.of_records(records))


@pytest.mark.usefixtures("lets_go")
def test_a_training_reads_each_column_once_and_holds_few_at_a_time(
    assembled: Make, rows: Rows
) -> None:
    records, columns = watched(
        assembled(fleet_rows(rows), kinds=KINDS, texts=("machine_id", "slot"))
    )
    timeline = timeline_of(records)
    instances = find_instances(
        timeline,
        window_records=RecordCount(3),
        step_records=RecordCount(2),
        horizon=Nanoseconds(60 * MINUTE),
    )
    Measures.fit_values(PLAN, timeline, instances)
    assert columns.reads == dict.fromkeys(columns.names, 1)
    assert (columns.alive, columns.at_once) == (0, COLUMNS_AT_ONCE)
    assert 1 <= columns.most <= COLUMNS_AT_ONCE


def _measured(records: Records) -> tuple[Any, ...]:
    timeline = timeline_of(records)
    instances = find_instances(
        timeline,
        window_records=RecordCount(3),
        step_records=RecordCount(1),
        horizon=Nanoseconds(60 * MINUTE),
    )
    measures, values = Measures.fit_values(PLAN, timeline, instances)
    again = measures.values(timeline, instances)
    assert again.context.tobytes() == values.context.tobytes()
    arrays = values.sequence.tobytes(), values.context.tobytes()
    return (*arrays, measures.to_dict(), dict(records.seen.nulls))


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**16),
    n_files=st.integers(1, 5),
    shuffled=st.booleans(),
    part_rows=PART_ROWS,
)
def test_what_is_measured_depends_on_neither_files_nor_what_is_kept(
    assembled: Make, rows: Rows, seed: int, n_files: int, shuffled: bool, part_rows: int
) -> None:
    listed = fleet_rows(rows, seed % 3)
    doubled = [dict(row, value=1.0) for row in listed[::9]]
    kept = assembled(listed, kinds=KINDS, texts=("machine_id", "slot"))
    if shuffled:
        random.Random(seed).shuffle(listed)
    cuts = np.linspace(0, len(listed), n_files + 1).astype(int).tolist()
    parts = [listed[a:b] for a, b in pairwise(cuts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_files, "_KEPT_BYTES", 0)
        # The doubles come first: whatever follows wins, and they change nothing.
        read = assembled(doubled, *parts, kinds=KINDS, texts=("machine_id", "slot"))
        patch.setattr(column_files, "_PART_ROWS", part_rows)
        measured = _measured(read)
    assert read.seen.doubled == len(doubled)
    assert measured == _measured(kept)


@settings(max_examples=30)
@given(
    ends=st.tuples(st.integers(0, 400), st.integers(0, 400)),
    shuffled=st.booleans(),
    part_rows=PART_ROWS,
)
def test_a_stretch_and_its_parts_are_those_of_the_whole_column(
    assembled: Make, rows: Rows, ends: tuple[int, int], shuffled: bool, part_rows: int
) -> None:
    listed = fleet_rows(rows)
    if shuffled:
        random.Random(0).shuffle(listed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_files, "_KEPT_BYTES", 0)
        patch.setattr(column_files, "_PART_ROWS", part_rows)
        columns = assembled(listed[:100], listed[100:290], listed[290:], kinds=KINDS).columns
        low, high = sorted(ends)
        for name in columns.names:
            whole = columns.read(name, 0, len(listed))
            assert columns.read(name, low, high).tobytes() == whole[low:high].tobytes()
            rows_of_parts = [row for part in columns.parts(name, low, high) for row in _row(part)]
            assert rows_of_parts == _row(Stretch(low, whole[low:high]))


def test_files_are_read_by_the_few(assembled: Make, rows: Rows) -> None:
    listed = fleet_rows(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_files, "_KEPT_BYTES", 0)
        patch.setattr(column_files, "_PART_ROWS", 150)
        patch.setattr(column_files, "_threads", lambda: 1)
        cuts = [0, 100, 160, 320, len(listed)]
        columns = assembled(*(listed[a:b] for a, b in pairwise(cuts)), kinds=KINDS).columns
        expected = [(50, 160), (160, 320), (320, 330)]
        for name in ("value", "count"):
            parts = [(part.low, part.high) for part in columns.parts(name, 50, 330)]
            assert parts == expected


def _row(part: Stretch) -> list[tuple[int, bytes]]:
    rows = range(part.low, part.high)
    return [(row, part.at(np.array([row])).tobytes()) for row in rows]


def _records_of(table: Any, parts: list[list[dict[str, Any]]]) -> Records:
    """Return records of files, of which no column is kept."""
    sources = [TableSource(str(number), table(part)) for number, part in enumerate(parts)]
    query = RecordsQuery("t", KINDS, Nanoseconds(10 * MINUTE), ("machine_id", "slot"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_files, "_KEPT_BYTES", 0)
        return assemble(sources, query)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**16), n_at_once=st.sampled_from([1, 2**18]), keyless=st.booleans())
def test_rows_that_come_by_time_are_measured_as_those_that_are_looked_at_one_by_one(
    rows: Rows, table: Any, seed: int, n_at_once: int, keyless: bool
) -> None:
    listed = fleet_rows(rows, seed)
    if keyless:
        listed[20:20] = [{**listed[20], "gpu_serial": None}, {**listed[21], "timestamp": None}]
    parts = [listed[:150], listed[150:300], listed[300:]]
    by_gpu = [sorted(part, key=lambda row: str(row["gpu_serial"])) for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "_in_runs", lambda *_: None)
        one_by_one = _records_of(table, parts)
        assert isinstance(column_keys(one_by_one), RowKeys)
        expected = _measured(one_by_one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hourly_sums, "_CELLS_AT_ONCE", n_at_once)
        by_time, in_place = (_records_of(table, files) for files in (parts, by_gpu))
        assert _orders(by_time) == [True] * 3
        assert _orders(in_place) == [False] * 3
        assert _measured(by_time) == _measured(in_place) == expected
    texts = [
        [records.codes(name, np.arange(len(records))).tolist() for name in records.texts]
        for records in (one_by_one, by_time, in_place)
    ]
    assert texts[0] == texts[1] == texts[2]


def test_of_a_fleet_whose_rows_all_say_that_it_failed_every_column_is_there(
    rows: Rows, table: Any
) -> None:
    listed = fleet_rows(rows)
    dead = [row | {"failure": 1} for row in listed]
    known, failed = (timeline_of(_records_of(table, [part])) for part in (listed, dead))
    find = partial(latest_instances, window_records=RecordCount(3), since=0)
    measures, values = Measures.fit_values(PLAN, known, find(known))
    none = measures.values(failed, find(failed))
    assert len(none) == 0
    assert none.columns == values.columns


@pytest.mark.parametrize("empty", [0, 3])
def test_nulls_are_counted_though_a_file_has_no_rows(rows: Rows, table: Any, empty: int) -> None:
    listed = fleet_rows(rows)
    parts = [listed[:100][::-1], listed[100:200][::-1], listed[200:]]
    expected = _records_of(table, parts).seen.notes()
    files = [table(part) for part in parts]
    files.insert(empty, files[0].slice(0, 0))
    query = RecordsQuery("t", KINDS, Nanoseconds(10 * MINUTE), ("machine_id", "slot"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_files, "_KEPT_BYTES", 0)
        sources = [TableSource(str(number), file) for number, file in enumerate(files)]
        assert assemble(sources, query).seen.notes() == expected


def column_keys(records: Records) -> KeysAsRead:
    assert isinstance(records.columns, ColumnFiles)
    return records.columns.keys


def _orders(records: Records) -> list[bool]:
    """Tell of each of three files whether its rows are taken in an order of their own."""
    return [column_keys(records).order_in(file) is not None for file in range(3)]


@dataclass(frozen=True)
class _Opened(TableSource):
    """A table that says when it is opened."""

    opened: list[str] = field(default_factory=list)

    @contextmanager
    def columns(self) -> Iterator[Columns]:
        self.opened.append(self.name)
        yield self.table


@pytest.mark.usefixtures("lets_go")
def test_only_files_that_hold_the_rows_are_opened(rows: Rows, table: Any) -> None:
    opened: list[str] = []
    files = [
        _Opened(name, table(rows("A", range(first, first + 60, 10), value=1.0, count=7)), opened)
        for name, first in (("a", 0), ("b", 60), ("c", 120))
    ]
    kinds = FeatureKinds(float=("value",), counter=("count",))
    records = assemble(files, RecordsQuery("t", kinds, Nanoseconds(10 * MINUTE)))
    opened.clear()
    records.numbers("value", np.arange(7, 9))
    assert opened == ["b"]
    opened.clear()
    # What a counter gained depends on the record before, wherever that is.
    assert records.numbers("count", np.arange(6, 8)).tolist() == [0.0, 0.0]
    assert opened == ["a", "b"]


def test_a_timeline_of_few_rows_measures_as_the_whole(assembled: Make, rows: Rows) -> None:
    records = assembled(fleet_rows(rows), kinds=KINDS, texts=("machine_id", "slot"))
    timeline = timeline_of(records)
    newest = latest_instances(timeline, window_records=RecordCount(3), since=0)
    few, kept = timeline.narrowed(newest.row[:, None] + np.arange(-2, 1))
    assert len(few.records) < len(records) / 4
    measures = Measures.fit(PLAN, timeline, newest)
    whole = measures.values(timeline, newest)
    part = measures.values(few, newest.at_rows(np.searchsorted(kept, newest.row)))
    assert part.sequence.tobytes() == whole.sequence.tobytes()
    assert part.context.tobytes() == whole.context.tobytes()
    assert len(few.failures) == 1
