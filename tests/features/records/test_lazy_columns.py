from __future__ import annotations

import random
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.features.table_source import TableSource

from forewarn.features.array_types import Float32Array
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import find_instances, latest_instances
from forewarn.features.records import lazy_columns
from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.lazy_columns import MAX_COLUMNS_IN_MEMORY
from forewarn.features.records.record_table import FeatureKinds, NumberColumns, Records
from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds, RecordCount

Make = Callable[..., Records]
Rows = Callable[..., list[dict[str, Any]]]

KINDS = FeatureKinds(
    categorical=("kind",),
    float=("value", "other"),
    counter=("count",),
    binary=("throttled",),
    code=("xid",),
    date=("until",),
)
PLAN = FeaturePlan(
    KINDS,
    RecordCount(3),
    Nanoseconds(10 * MINUTE),
    history=(4, 16),
    peers=("machine_id", "kind"),
    residuals=(("value", "other"),),
)


def fleet_rows(rows: Rows, seed: int = 1, n_records: int = 80) -> list[dict[str, Any]]:
    """Return rows of a few GPUs sorted by time, with gaps, nulls and moves."""
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
    """Disable the cache of columns."""
    monkeypatch.setattr(lazy_columns, "_MAX_CACHED_BYTES", 0)


@dataclass
class _Watched:
    """Columns that count reads, and the number of columns in memory at a time."""

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

    def read(self, name: str) -> Float32Array:
        values = self.columns.read(name)
        self.reads[name] += 1
        self._watch(values)
        return values

    def _watch(self, values: Float32Array) -> None:
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(values, self._gone)

    def _gone(self) -> None:
        self.alive -= 1


def watched(records: Records) -> tuple[Records, _Watched]:
    columns = _Watched(records.columns)
    return replace(records, columns=columns), columns


def timeline_of(records: Records) -> Timeline:
    return build_timeline(records, Failures.from_records(records))


@pytest.mark.usefixtures("lets_go")
def test_training_reads_each_column_once(assembled: Make, rows: Rows) -> None:
    records, columns = watched(
        assembled(fleet_rows(rows), kinds=KINDS, texts=("machine_id", "slot"))
    )
    timeline = timeline_of(records)
    instances = find_instances(
        timeline,
        window_records=RecordCount(3),
        step_records=RecordCount(2),
        horizon=HOUR,
    )
    FeatureExtractor.fit_values(PLAN, timeline, instances)
    assert columns.reads == dict.fromkeys(columns.names, 1)
    assert (columns.alive, columns.at_once) == (0, MAX_COLUMNS_IN_MEMORY)
    assert 1 <= columns.most <= MAX_COLUMNS_IN_MEMORY


def _measured(records: Records) -> tuple[Any, ...]:
    timeline = timeline_of(records)
    instances = find_instances(
        timeline,
        window_records=RecordCount(3),
        step_records=RecordCount(1),
        horizon=HOUR,
    )
    measures, values = FeatureExtractor.fit_values(PLAN, timeline, instances)
    again = measures.values(timeline, instances)
    assert again.context.tobytes() == values.context.tobytes()
    arrays = values.sequence.tobytes(), values.context.tobytes()
    return (*arrays, measures.to_dict(), dict(records.seen.nulls))


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**16),
    n_files=st.integers(1, 5),
    shuffled=st.booleans(),
)
def test_measurements_are_independent_of_caching(
    assembled: Make, rows: Rows, seed: int, n_files: int, shuffled: bool
) -> None:
    listed = fleet_rows(rows, seed % 3)
    doubled = [dict(row, value=1.0) for row in listed[::9]]
    kept = assembled(listed, kinds=KINDS, texts=("machine_id", "slot"))
    if shuffled:
        random.Random(seed).shuffle(listed)
    cuts = np.linspace(0, len(listed), n_files + 1).astype(int).tolist()
    parts = [listed[a:b] for a, b in pairwise(cuts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_columns, "_MAX_CACHED_BYTES", 0)
        # The duplicates come first, so that the later rows win and nothing changes.
        read = assembled(doubled, *parts, kinds=KINDS, texts=("machine_id", "slot"))
        measured = _measured(read)
    assert read.seen.doubled == len(doubled)
    assert measured == _measured(kept)


def _records_of(table: Any, parts: list[list[dict[str, Any]]]) -> Records:
    """Return records of files without cached columns."""
    sources = [TableSource(str(number), table(part)) for number, part in enumerate(parts)]
    query = RecordsQuery("t", KINDS, Nanoseconds(10 * MINUTE), ("machine_id", "slot"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_columns, "_MAX_CACHED_BYTES", 0)
        return assemble(sources, query)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**16), keyless=st.booleans())
def test_rows_sorted_by_time_give_same_measurements(
    rows: Rows, table: Any, seed: int, keyless: bool
) -> None:
    listed = fleet_rows(rows, seed)
    if keyless:
        listed[20:20] = [{**listed[20], "gpu_serial": None}, {**listed[21], "timestamp": None}]
    parts = [listed[:150], listed[150:300], listed[300:]]
    by_gpu = [sorted(part, key=lambda row: str(row["gpu_serial"])) for part in parts]
    by_time, in_place = (_records_of(table, files) for files in (parts, by_gpu))
    assert _measured(by_time) == _measured(in_place)
    texts = [
        [records.codes(name, np.arange(len(records))).tolist() for name in records.texts]
        for records in (by_time, in_place)
    ]
    assert texts[0] == texts[1]


def test_fully_failed_fleet_has_all_columns(rows: Rows, table: Any) -> None:
    listed = fleet_rows(rows)
    dead = [row | {"failure": 1} for row in listed]
    known, failed = (timeline_of(_records_of(table, [part])) for part in (listed, dead))
    find = partial(latest_instances, window_records=RecordCount(3), since=0)
    measures, values = FeatureExtractor.fit_values(PLAN, known, find(known))
    none = measures.values(failed, find(failed))
    assert len(none) == 0
    assert none.columns == values.columns


@pytest.mark.parametrize("empty", [0, 3])
def test_nulls_are_counted_despite_empty_file(rows: Rows, table: Any, empty: int) -> None:
    listed = fleet_rows(rows)
    parts = [listed[:100][::-1], listed[100:200][::-1], listed[200:]]
    expected = _records_of(table, parts).seen.notes()
    files = [table(part) for part in parts]
    files.insert(empty, files[0].slice(0, 0))
    query = RecordsQuery("t", KINDS, Nanoseconds(10 * MINUTE), ("machine_id", "slot"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_columns, "_MAX_CACHED_BYTES", 0)
        sources = [TableSource(str(number), file) for number, file in enumerate(files)]
        assert assemble(sources, query).seen.notes() == expected
