from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.features.table_source import TableSource

from forewarn.features.duration import format_duration
from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.record_table import FeatureKinds, Records, RecordsError
from forewarn.features.time_units import MINUTE, Nanoseconds

Make = Callable[..., Records]
Row = dict[str, Any]
Rows = Callable[..., list[Row]]
Table = Callable[[list[Row]], pa.Table]
Minutes = Callable[..., list[float]]

VALUE = FeatureKinds(float=("value",))
COUNT = FeatureKinds(counter=("count",))


def _values(records: Records, name: str = "value") -> list[float]:
    return [float(v) for v in records.numbers(name, np.arange(len(records)))]


def test_rows_are_sorted_by_serial_and_time(assembled: Make, rows: Rows, minutes: Minutes) -> None:
    records = assembled(
        rows("C", [20, 0, 10], value=[7.0, 5.0, 6.0])
        + rows("A", [10, 0, 20, 30], value=[2.0, 1.0, 3.0, 4.0])
        + rows("B", [0, 10, 20], value=[8.0, 9.0, 10.0]),
        kinds=VALUE,
    )
    assert records.serials == ("A", "B", "C")
    assert records.gpu.tolist() == [0] * 4 + [1] * 3 + [2] * 3
    assert minutes(records.time) == [0, 10, 20, 30, 0, 10, 20, 0, 10, 20]
    assert _values(records) == [1.0, 2.0, 3.0, 4.0, 8.0, 9.0, 10.0, 5.0, 6.0, 7.0]
    assert records.seen.notes() == []


def test_latest_duplicate_row_wins(assembled: Make, rows: Rows) -> None:
    first = rows("A", [0, 10, 10], value=[1.0, 2.0, 3.0]) + rows("B", [0, 10], value=[7.0, 8.0])
    second = rows("A", [10, 20, 10], value=[4.0, 5.0, 6.0])
    assert _values(assembled(first, second, kinds=VALUE)) == [1.0, 6.0, 5.0, 7.0, 8.0]
    assert _values(assembled(second, first, kinds=VALUE)) == [1.0, 3.0, 5.0, 7.0, 8.0]


def test_dropped_duplicates_are_counted(assembled: Make, rows: Rows) -> None:
    seen = assembled(rows("A", [0, 10, 10, 10, 20, 20])).seen
    assert (seen.rows, seen.doubled, seen.too_close) == (6, 3, 0)


def test_winning_row_determines_failure_state(assembled: Make, rows: Rows) -> None:
    wrong, right = rows("A", [0, 10], failure=[0, 1]), rows("A", [10, 20], failure=0)
    assert assembled(wrong, right).failed.tolist() == [False, False, False]
    assert assembled(right, wrong).failed.tolist() == [False, True, False]


def test_rows_without_keys_are_dropped_and_counted(
    assembled: Make, rows: Rows, minutes: Minutes
) -> None:
    records = assembled(
        rows("A", [0, None, 10, 20], value=[1.0, 9.0, 2.0, 3.0]) + rows(None, [0, 10], value=9.0),
        kinds=VALUE,
    )
    assert minutes(records.time) == [0, 10, 20]
    assert _values(records) == [1.0, 2.0, 3.0]
    assert (records.seen.rows, records.seen.without_key) == (6, 3)


def test_nulls_are_counted_by_column(assembled: Make, rows: Rows) -> None:
    kinds = FeatureKinds(float=("value",), code=("xid",))
    seen = assembled(
        rows("A", [0, 10, 20], value=[1.0, None, None], xid=[None, 0, 13]), kinds=kinds
    ).seen
    assert seen.nulls == {"value": 2, "xid": 1}


def test_nulls_outside_limits_are_not_counted(
    rows: Rows, table: Table, at: Callable[[float], int]
) -> None:
    found = table(rows("A", [0, 10, 20, 30], value=[None, None, 1.0, None]))
    query = RecordsQuery("t", VALUE, Nanoseconds(10 * MINUTE), start=at(10), end=at(30))
    seen = assemble([TableSource("f", found)], query).seen
    assert (seen.rows, seen.nulls) == (2, {"value": 1})


def test_null_event_code_means_no_event(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10], xid=[None, 13]), kinds=FeatureKinds(code=("xid",)))
    assert _values(records, "xid") == [0.0, 13.0]


def test_invalid_event_codes_are_counted(assembled: Make, rows: Rows) -> None:
    codes = [0.5, -1, float("nan"), 79, 0]
    table = rows("A", range(0, 50, 10), xid=[float(code) for code in codes])
    records = assembled(table, kinds=FeatureKinds(code=("xid",)))
    assert records.numbers("xid", np.arange(5)).tolist() == [0.0, 0.0, 0.0, 79.0, 0.0]
    assert records.seen.nulls == {"xid": 3}


def test_invalid_failure_states_are_counted(assembled: Make, rows: Rows) -> None:
    states = [0.0, -1.0, 1.0, 0.5, 2.0, float("nan")]
    table = rows("A", range(0, 60, 10), failure=states)
    keyless = rows(None, [60, 70], failure=[-1.0, 0.0])
    records = assembled([*table, *keyless])
    assert records.failed.tolist() == [False, False, True, True, True, False]
    assert records.seen.odd_states == 3


def test_rows_without_keys_raise_no_records_error(assembled: Make, rows: Rows) -> None:
    with pytest.raises(RecordsError, match="no row with a serial and a timestamp"):
        assembled(rows("A", [None]) + rows(None, [0]))


def test_too_close_row_is_dropped(assembled: Make, rows: Rows, minutes: Minutes) -> None:
    records = assembled(rows("A", [0, 10, 14, 20, 30, 40]) + rows("B", [0, 10, 20, 25, 34.9]))
    assert minutes(records.time) == [0, 10, 20, 30, 40, 0, 10, 20, 25, 34.9]
    assert records.seen.too_close == 1
    assert not records.filled.any()


def test_close_rows_are_thinned_to_the_interval(
    assembled: Make, rows: Rows, minutes: Minutes
) -> None:
    regular = [60 + 10 * i for i in range(20)]
    records = assembled(rows("A", [0, 3, 6, 8, 9, 12, 20, *regular]))
    assert minutes(records.time)[:4] == [0, 6, 12, 20]
    assert records.seen.too_close == 3


def test_failed_row_is_never_too_close(assembled: Make, rows: Rows, minutes: Minutes) -> None:
    # It may be the last record of a GPU, sent outside the schedule.
    records = assembled(
        rows("A", [0, 10, 13], failure=[0, 0, 1])
        + rows("B", [0, 3, 6, 12, 20], failure=[0, 1, 0, 0, 0])
    )
    assert minutes(records.time) == [0, 10, 13, 0, 3, 12, 20]
    assert records.failed.tolist() == [False, False, True, False, True, False, False]
    assert records.seen.too_close == 1


def test_rows_of_other_gpus_are_independent(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 20]) + rows("B", [1, 11, 21]))
    assert len(records) == 6
    assert records.seen.too_close == 0


def test_single_missing_record_is_filled(assembled: Make, rows: Rows, minutes: Minutes) -> None:
    records = assembled(
        rows("A", [0, 10, 30, 40], value=[1.0, 2.0, 3.0, 4.0]) + rows("B", [0, 10, 20], value=0.0),
        kinds=VALUE,
    )
    assert minutes(records.time)[:5] == [0, 10, 20, 30, 40]
    assert _values(records)[:5] == [1.0, 2.0, 2.0, 3.0, 4.0]
    assert records.filled[:5].tolist() == [False, False, True, False, False]
    assert (records.seen.filled, records.seen.gaps) == (1, 0)


def test_longer_gap_is_not_filled(assembled: Make, rows: Rows, minutes: Minutes) -> None:
    records = assembled(rows("A", [0, 10, 40, 50]) + rows("B", [0, 10, 20]))
    assert minutes(records.time) == [0, 10, 40, 50, 0, 10, 20]
    assert (records.seen.filled, records.seen.gaps) == (0, 1)


@pytest.mark.parametrize(
    ("spacing", "filled", "gaps"), [(14.9, 0, 0), (15, 1, 0), (24.9, 1, 0), (25, 0, 1)]
)
def test_spacing_is_rounded_to_whole_intervals(
    spacing: float, filled: int, gaps: int, assembled: Make, rows: Rows
) -> None:
    seen = assembled(rows("A", [0, 10, 10 + spacing, 20 + spacing])).seen
    assert (seen.filled, seen.gaps) == (filled, gaps)


def test_gap_between_gpus_is_not_filled(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10]) + rows("B", [30, 40]))
    assert len(records) == 4
    assert (records.seen.filled, records.seen.gaps) == (0, 0)


def test_record_filled_after_failed_record_is_failed(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 20, 40, 50], failure=[0, 0, 1, 0, 0]))
    assert records.failed.tolist() == [False, False, True, True, False, False]


def test_counters_become_increases(assembled: Make, rows: Rows) -> None:
    records = assembled(
        rows("A", [0, 10, 20, 30], count=[5, 5, 9, 10]) + rows("B", [0, 10], count=[100, 103]),
        kinds=COUNT,
    )
    gained = _values(records, "count")
    assert math.isnan(gained[0])
    assert math.isnan(gained[4])
    assert gained[1:4] + gained[5:] == [0.0, 4.0, 1.0, 3.0]


def test_decreasing_counter_was_reset(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 20, 30], count=[50, 3, 0, 2]), kinds=COUNT)
    assert _values(records, "count")[1:] == [3.0, 0.0, 2.0]


def test_increase_over_null_is_unknown(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 20, 30], count=[5, None, 9, 11]), kinds=COUNT)
    gained = _values(records, "count")
    assert [math.isnan(value) for value in gained] == [True, True, True, False]
    assert gained[3] == 2.0


def test_filled_record_has_zero_increase(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10, 30, 40], count=[5, 6, 9, 9]), kinds=COUNT)
    assert _values(records, "count")[1:] == [1.0, 0.0, 3.0, 0.0]


def test_counters_beyond_float32_still_count_ones(assembled: Make, rows: Rows) -> None:
    high = 2**40
    records = assembled(rows("A", [0, 10, 20], count=[high, high + 1, high + 3]), kinds=COUNT)
    assert _values(records, "count")[1:] == [1.0, 2.0]


def test_increases_use_the_winning_row(assembled: Make, rows: Rows) -> None:
    records = assembled(
        rows("A", [0, 10, 20], count=[1, 9, 3]), rows("A", [10], count=[2]), kinds=COUNT
    )
    assert _values(records, "count")[1:] == [1.0, 1.0]


@pytest.mark.parametrize("spacing", [1, 4, 16, 20, 60])
def test_records_of_another_interval_are_rejected(
    spacing: float, assembled: Make, rows: Rows
) -> None:
    steady = [spacing * i for i in range(30)]
    apart = format_duration(60 * spacing)
    with pytest.raises(RecordsError, match=rf"{apart} apart .*`records\.interval` = 10 min"):
        assembled(rows("A", steady) + rows("B", steady))


@pytest.mark.parametrize("spacing", [5.1, 8, 10, 14.9])
def test_spacing_within_half_an_interval_is_accepted(
    spacing: float, assembled: Make, rows: Rows
) -> None:
    assert len(assembled(rows("A", [spacing * i for i in range(30)]))) == 30


def test_single_records_have_no_spacing_to_check(assembled: Make, rows: Rows) -> None:
    assert len(assembled(rows("A", [0]) + rows("B", [500]))) == 2


def test_texts_are_sorted_across_files(assembled: Make, rows: Rows) -> None:
    kinds = FeatureKinds(categorical=("gpu_type",))
    records = assembled(
        rows("A", [0, 10], gpu_type=["T4", "P4"]), rows("A", [20], gpu_type="A100"), kinds=kinds
    )
    assert records.texts["gpu_type"].texts == ("A100", "P4", "T4")
    assert records.codes("gpu_type", np.arange(3)).tolist() == [2, 1, 0]


def test_texts_of_dropped_rows_are_excluded(assembled: Make, rows: Rows) -> None:
    kinds = FeatureKinds(categorical=("gpu_type",))
    records = assembled(
        rows("A", [0, 10], gpu_type="T4") + rows("Z", [None], gpu_type="P4"), kinds=kinds
    )
    assert records.serials == ("A",)
    assert records.texts["gpu_type"].texts == ("T4",)


def test_text_column_may_be_missing_in_files(assembled: Make, rows: Rows) -> None:
    records = assembled(rows("A", [0, 10], slot=3), rows("A", [20, 30]), texts=("slot",))
    assert records.texts["slot"].texts == ("3",)
    assert records.codes("slot", np.arange(4)).tolist() == [0, 0, -1, -1]


def test_naive_time_in_one_file_is_noted(assembled: Make, rows: Rows, table: Table) -> None:
    aware = table(rows("A", [0, 10]))
    moments = table(rows("A", [20]))["timestamp"].cast(pa.timestamp("ns"))
    naive = pa.table({"gpu_serial": ["A"], "timestamp": moments})
    assert not assembled(aware).seen.naive_time
    assert assembled(aware, naive).seen.naive_time


def test_empty_file_changes_nothing(assembled: Make, rows: Rows, table: Table) -> None:
    found = table(rows("A", [0, 10], value=[1.0, 2.0]))
    records = assembled(found.slice(0, 0), found, found.slice(2), kinds=VALUE)
    assert _values(records) == [1.0, 2.0]


def test_no_files_give_no_records() -> None:
    with pytest.raises(RecordsError, match="no row"):
        assemble([], RecordsQuery("t", FeatureKinds(), MINUTE))


# --- brute force -------------------------------------------------------------------------------

REGULAR = [10 * i for i in range(60)]  # keeps the median spacing at one interval

found_rows = st.lists(
    st.tuples(st.sampled_from("ABC"), st.integers(0, 160), st.integers(0, 9)), max_size=40
)


def _brute_kept(found: list[tuple[str, int, int]]) -> list[tuple[str, int, int, bool]]:
    """Return (serial, minute, value, filled) as defined in formats.md, section 1."""
    last_of = {(serial, minute): value for serial, minute, value in found}
    kept: list[tuple[str, int, int, bool]] = []
    for (serial, minute), value in sorted(last_of.items()):
        if kept and kept[-1][0] == serial:
            steps = (2 * (minute - kept[-1][1]) + 10) // 20
            if steps == 0:
                continue
            if steps == 2:
                kept.append((serial, kept[-1][1] + 10, kept[-1][2], True))
        kept.append((serial, minute, value, False))
    return kept


@given(found_rows)
def test_kept_and_filled_rows_match_reference_loop(
    assembled: Make, rows: Rows, minutes: Minutes, found: list[tuple[str, int, int]]
) -> None:
    listed = [one for s, m, v in found for one in rows(s, [m], value=float(v))]
    records = assembled(listed + rows("Z", REGULAR, value=0.0), kinds=VALUE)
    mine = [records.serials[gpu] for gpu in records.gpu]
    got = list(zip(mine, minutes(records.time), _values(records), records.filled, strict=True))
    assert [one for one in got if one[0] != "Z"] == _brute_kept(found)
    assert records.seen.filled == sum(one[3] for one in _brute_kept(found))
    assert records.seen.doubled == len(found) - len({one[:2] for one in found})


@given(
    st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=12),
)
def test_increases_match_reference_loop(
    assembled: Make, rows: Rows, counted: list[int | None]
) -> None:
    records = assembled(rows("A", REGULAR[: len(counted)], count=counted), kinds=COUNT)
    expected = [math.nan]
    for before, now in pairwise(counted):
        if before is None or now is None:
            expected.append(math.nan)
        else:
            expected.append(now - before if now >= before else now)
    assert np.array_equal(_values(records, "count"), expected, equal_nan=True)


# --- the same records in another order and in other files ---------------------------------------

ALL = FeatureKinds(
    categorical=("kind",), float=("value",), counter=("count",), code=("xid",), date=("until",)
)


def _everything(records: Records) -> dict[str, Any]:
    rows = np.arange(len(records))
    seen: dict[str, Any] = {
        "keys": [(records.serials[g], t) for g, t in zip(records.gpu, records.time, strict=True)],
        "filled": records.filled.tolist(),
        "failed": records.failed.tolist(),
        "nulls": records.seen.nulls,
    }
    for name in ("value", "count", "xid", "until"):
        seen[name] = records.numbers(name, rows).tobytes()
    for name, column in records.texts.items():
        seen[name] = [(*column.texts, None)[code] for code in records.codes(name, rows)]
    return seen


def _many_rows(rows: Rows) -> list[Row]:
    source = random.Random(5)
    listed: list[Row] = []
    for serial in ("A", "B", "C"):
        times = [10 * i + source.randint(-3, 3) for i in range(60) if source.random() < 0.9]
        for time in times:
            listed += rows(
                serial,
                [time],
                value=source.choice([None, source.uniform(0, 9e4)]),
                count=source.choice([None, source.randrange(5)]),
                xid=source.choice([None, 0, 0, 13]),
                until=source.choice([None, "2026-05-01", "2027-01-01"]),
                kind=source.choice([None, "V100", "P4"]),
                slot=source.choice([None, 1, 2]),
                failure=int(source.random() < 0.1),
            )
    return listed


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 7))
def test_records_are_independent_of_row_order(
    assembled: Make, rows: Rows, seed: int, n_files: int
) -> None:
    listed = _many_rows(rows)
    one = assembled(listed, kinds=ALL, texts=("slot",))
    source = random.Random(seed)
    source.shuffle(listed)
    cuts = sorted(source.randrange(len(listed) + 1) for _ in range(n_files - 1))
    parts = [listed[a:b] for a, b in zip([0, *cuts], [*cuts, len(listed)], strict=True) if a < b]
    parts = [[*part, *rows(None, [0], **dict.fromkeys(listed[0], None))] for part in parts]
    other = assembled(*parts, kinds=ALL, texts=("slot",))
    assert _everything(other) == _everything(one)
