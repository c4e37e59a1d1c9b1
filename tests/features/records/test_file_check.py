from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from forewarn.features.records.file_check import (
    Keys,
    Values,
    check_keys,
    check_values,
)
from forewarn.features.records.record_table import FeatureKinds, RecordsError
from forewarn.features.records.text_columns import is_text, map_texts
from forewarn.features.records.timestamp_columns import as_nanoseconds
from forewarn.features.time_units import DAY, SECOND

NOON = dt.datetime(2026, 3, 1, 12)
NOON_NS = 1_772_366_400 * SECOND
DAYS = 20_513.0  # 1 March 2026


class Part(NamedTuple):
    """The result of validating a file: keys and values."""

    keys: Keys
    values: Values


def _checked(
    table: pa.Table,
    *,
    file: str = "part.parquet",
    kinds: FeatureKinds | None = None,
    optional: tuple[str, ...] = (),
) -> Part:
    values = check_values(table, file=file, kinds=kinds or FeatureKinds(), optional=optional)
    return Part(check_keys(table, file=file), values)


def _part(kinds: FeatureKinds | None = None, **columns: Any) -> Part:
    n = len(next(iter(columns.values())))
    keys = {
        "gpu_serial": pa.array(["A"] * n),
        "timestamp": pa.array([NOON] * n, pa.timestamp("us", "UTC")),
    }
    return _checked(pa.table(keys | columns), kinds=kinds)


def _texts(part: Part, name: str) -> list[str | None]:
    column = part.keys.serial if name == "gpu_serial" else part.values.texts[name]
    return [None if code < 0 else column.texts[code] for code in column.codes.tolist()]


def _numbers(part: Part, name: str) -> Any:
    return (part.values.numbers | part.values.counts)[name]


TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
    pa.dictionary(pa.uint16(), pa.string()),
    pa.dictionary(pa.int64(), pa.large_string()),
]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_every_type_of_text_is_text(kind: pa.DataType) -> None:
    column = pa.array(["V100", None, "P4", "V100"]).cast(kind)
    assert is_text(kind)
    part = _part(FeatureKinds(categorical=("gpu_type",)), gpu_type=column)
    assert _texts(part, "gpu_type") == ["V100", None, "P4", "V100"]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_serial_may_have_any_text_type(kind: pa.DataType) -> None:
    part = _part(gpu_serial=pa.array(["B", None, "A"]).cast(kind))
    assert _texts(part, "gpu_serial") == ["B", None, "A"]
    assert part.keys.keep.tolist() == [True, False, True]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_text_of_several_chunks_is_one_column(kind: pa.DataType) -> None:
    chunks = [pa.array(texts).cast(kind) for texts in (["b", "a"], [], ["c", None, "a"])]
    part = _part(FeatureKinds(categorical=("x",)), x=pa.chunked_array(chunks))
    assert _texts(part, "x") == ["b", "a", "c", None, "a"]


def test_chunks_may_exceed_dictionary_index_type() -> None:
    names = [f"n{i:03}" for i in range(300)]
    kind = pa.dictionary(pa.int8(), pa.string())
    chunks = [pa.array(names[i : i + 100]).cast(kind) for i in (0, 100, 200)]
    part = _part(FeatureKinds(categorical=("x",)), x=pa.chunked_array(chunks))
    assert _texts(part, "x") == names


def test_null_in_dictionary_is_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", None]))
    part = _part(FeatureKinds(categorical=("x",)), x=column)
    assert _texts(part, "x") == ["a", None, None, "a"]
    assert None not in part.values.texts["x"].texts


def test_null_serial_in_dictionary_has_no_key() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    assert _part(gpu_serial=column).keys.keep.tolist() == [True, False]


def test_numbers_become_texts() -> None:
    kinds = FeatureKinds(categorical=("slot",))
    assert _texts(_part(kinds, slot=pa.array([3, None], pa.int16())), "slot") == ["3", None]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("slots", [[7, 0, 7], [-1, 2, 2], [100, 99, 0]])
def test_small_numbers_become_texts(kind: pa.DataType, slots: list[int]) -> None:
    if min(slots) < 0 and pa.types.is_unsigned_integer(kind):
        return
    part = _part(FeatureKinds(categorical=("slot",)), slot=pa.array(slots, kind))
    assert _texts(part, "slot") == [str(slot) for slot in slots]
    assert set(part.values.texts["slot"].texts) == {str(slot) for slot in slots}


def test_large_numbers_become_texts() -> None:
    kinds = FeatureKinds(categorical=("slot",))
    slots = [2**63 + 1, 5]
    part = _part(kinds, slot=pa.array(slots, pa.uint64()))
    assert _texts(part, "slot") == [str(slot) for slot in slots]


def test_no_rows_give_an_empty_part() -> None:
    schema = pa.schema(
        {"gpu_serial": pa.string(), "timestamp": pa.timestamp("ns"), "x": pa.float64()}
        | {"kind": pa.dictionary(pa.int32(), pa.string()), "until": pa.string()}
    )
    kinds = FeatureKinds(categorical=("kind",), float=("x",), date=("until",))
    part = _checked(schema.empty_table(), kinds=kinds)
    assert part.keys.n_rows == 0
    assert len(part.keys.time) == len(_numbers(part, "x")) == len(_numbers(part, "until")) == 0
    assert len(part.values.texts["kind"].codes) == 0


NUMBER_TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(25, 2), pa.decimal256(40, 3)),
    pa.dictionary(pa.int32(), pa.int64()),
]
KINDS_OF_NUMBERS = [
    FeatureKinds(float=("x",)),
    FeatureKinds(counter=("x",)),
    FeatureKinds(binary=("x",)),
    FeatureKinds(code=("x",)),
]


@pytest.mark.parametrize("kind", NUMBER_TYPES, ids=str)
@pytest.mark.parametrize("kinds", KINDS_OF_NUMBERS, ids=["float", "counter", "binary", "code"])
def test_every_numeric_width_is_a_number(kind: pa.DataType, kinds: FeatureKinds) -> None:
    column = pa.array([7, None, 0], pa.int64())
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    values = _numbers(_part(kinds, x=column), "x")
    assert np.array_equal(values, [7.0, np.nan, 0.0], equal_nan=True)


def test_true_is_one() -> None:
    part = _part(FeatureKinds(binary=("x",)), x=pa.array([True, None, False]))
    assert np.array_equal(_numbers(part, "x"), [1.0, np.nan, 0.0], equal_nan=True)


def test_fractions_of_decimals_are_kept() -> None:
    part = _part(FeatureKinds(float=("x",)), x=pa.array([Decimal("1.25"), Decimal("-0.50")]))
    assert _numbers(part, "x").tolist() == [1.25, -0.5]


BLANKS = [2.0**47, float(0x7FFFFFFFFFFFFFF0), -(2.0**47), math.inf, -math.inf, 3e38, 1e300]


@pytest.mark.parametrize("blank", BLANKS)
def test_blank_gauge_values_are_missing(blank: float) -> None:
    # Blank values of exporters are numbers such as the first two.
    part = _part(FeatureKinds(float=("x",)), x=pa.array([blank, 1e9, None, -1.0]))
    assert np.array_equal(_numbers(part, "x"), [np.nan, 1e9, np.nan, -1.0], equal_nan=True)


@pytest.mark.parametrize("blank", [2**47, 0x7FFFFFFFFFFFFFF0])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()], ids=str)
def test_blank_counter_is_missing(blank: int, kind: pa.DataType) -> None:
    # It would give a huge increase, followed by a reset.
    column = pa.array([7, blank, 8]).cast(kind, safe=False)
    values = _numbers(_part(FeatureKinds(counter=("n",)), n=column), "n")
    assert np.array_equal(values, [7.0, np.nan, 8.0], equal_nan=True)


def test_null_column_has_any_type() -> None:
    kinds = FeatureKinds(float=("x",), categorical=("y",), date=("z",))
    part = _part(kinds, x=pa.nulls(2), y=pa.nulls(2), z=pa.nulls(2))
    assert np.isnan(_numbers(part, "x")).all()
    assert _texts(part, "y") == [None, None]
    assert np.isnan(_numbers(part, "z")).all()


def test_only_counters_are_float64() -> None:
    kinds = FeatureKinds(float=("x",), counter=("n",))
    part = _part(kinds, x=pa.array([1.0]), n=pa.array([2**40 + 1]))
    assert _numbers(part, "x").dtype == np.float32
    assert _numbers(part, "n").tolist() == [2**40 + 1]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "-03:00"])
def test_timestamp_units_and_zones_agree(unit: str, zone: str | None) -> None:
    column = pa.array([NOON, None], pa.timestamp(unit, zone))
    part = _part(timestamp=column)
    assert part.keys.time[0] == NOON_NS
    assert part.keys.keep.tolist() == [True, False]
    assert part.keys.naive_time is (zone is None)


@pytest.mark.parametrize(
    "text",
    ["2026-03-01T12:00:00Z", "2026-03-01T13:30:00+01:30", "2026-03-01 12:00:00.000Z"],
)
@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_timestamps_may_be_texts_with_zone(text: str, kind: pa.DataType) -> None:
    part = _part(timestamp=pa.array([text, None]).cast(kind))
    assert part.keys.time[0] == NOON_NS
    assert part.keys.keep.tolist() == [True, False]
    assert not part.keys.naive_time


@pytest.mark.parametrize("text", ["2026-03-01T12:00:00", "2026-03-01 12:00:00.000"])
def test_texts_without_zone_are_utc(text: str) -> None:
    part = _part(timestamp=pa.array([text, None]))
    assert part.keys.time[0] == NOON_NS
    assert part.keys.naive_time


def test_dictionary_of_naive_times_is_noted() -> None:
    part = _part(timestamp=pa.array([NOON], pa.timestamp("us")).dictionary_encode())
    assert part.keys.time.tolist() == [NOON_NS]
    assert part.keys.naive_time


def test_date_is_its_midnight() -> None:
    part = _part(timestamp=pa.array([NOON.date()]))
    assert part.keys.time.tolist() == [int(DAYS) * DAY]


def test_fractions_of_a_second_are_kept() -> None:
    column = pa.array([NOON_NS + 123_456_789], pa.timestamp("ns"))
    assert _part(timestamp=column).keys.time.tolist() == [NOON_NS + 123_456_789]


def test_moments_keep_nulls() -> None:
    column = pa.chunked_array([pa.array([NOON, None], pa.timestamp("s"))])
    assert as_nanoseconds(column).to_pylist() == [NOON_NS, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_timestamp_out_of_range_is_rejected(unit: str) -> None:
    # 9999 means "never" in some tables; after an overflow it would be a time in 1816.
    column = pa.array([dt.datetime(9999, 1, 1)], pa.timestamp(unit, "UTC"))
    with pytest.raises(RecordsError, match=r"part\.parquet: column `timestamp`"):
        _part(timestamp=column)


DATES = [
    pa.array(["2026-03-01", None]),
    pa.array(["2026-03-01", ""]),
    pa.array(["2026-03-01", None], pa.large_string()),
    pa.array(["2026-03-01", None], pa.string_view()),
    pa.array(["2026-03-01", None]).dictionary_encode(),
    pa.array([NOON.date(), None]),
    pa.array([NOON.date(), None]).cast(pa.date64()),
    pa.array([dt.datetime(2026, 3, 1), None], pa.timestamp("s")),
    pa.array([dt.datetime(2026, 3, 1), None], pa.timestamp("us", "UTC")),
    pa.array([dt.datetime(2026, 3, 1), None], pa.timestamp("ns", "Asia/Tokyo")),
]


@pytest.mark.parametrize("column", DATES, ids=lambda column: str(column.type))
def test_every_form_of_a_date_is_days(column: pa.Array) -> None:
    days = _numbers(_part(FeatureKinds(date=("until",)), until=column), "until")
    assert np.array_equal(days, [DAYS, np.nan], equal_nan=True)


def test_dates_are_read_row_by_row() -> None:
    texts = ["2026-03-02", None, "2026-03-01", "2026-03-02"]
    days = _numbers(_part(FeatureKinds(date=("until",)), until=pa.array(texts)), "until")
    assert np.array_equal(days, [DAYS + 1, np.nan, DAYS, DAYS + 1], equal_nan=True)


def test_distant_dates_are_valid() -> None:
    days = _part(FeatureKinds(date=("until",)), until=pa.array(["9999-12-31"])).values.numbers[
        "until"
    ]
    assert days.tolist() == [2_932_896.0]


BAD = [
    (FeatureKinds(float=("x",)), pa.array(["warm"]), "string", "a number"),
    (FeatureKinds(float=("x",)), pa.array(["warm"]).dictionary_encode(), "dictionary", "a number"),
    (FeatureKinds(float=("x",)), pa.array([NOON]), "timestamp", "a number"),
    (FeatureKinds(counter=("x",)), pa.array([NOON.date()]), "date32", "a number"),
    (FeatureKinds(code=("x",)), pa.array([[1]]), "list", "a number"),
    (FeatureKinds(binary=("x",)), pa.array([{"a": 1}]), "struct", "a number"),
    (FeatureKinds(categorical=("x",)), pa.array([[1]]), "list", "text"),
    (FeatureKinds(categorical=("x",)), pa.array([{"a": 1}]), "struct", "text"),
    (FeatureKinds(categorical=("x",)), pa.array([b"\xff"]), "binary", "text"),
    (FeatureKinds(date=("x",)), pa.array(["soon"]), "string", "an ISO date"),
    (FeatureKinds(date=("x",)), pa.array([20_513]), "int64", "an ISO date"),
    (FeatureKinds(date=("x",)), pa.array([True]), "bool", "an ISO date"),
]


@pytest.mark.parametrize(("kinds", "column", "found", "expected"), BAD)
def test_unconvertible_column_is_named(
    kinds: FeatureKinds, column: pa.Array, found: str, expected: str
) -> None:
    with pytest.raises(RecordsError) as raised:
        _part(kinds, x=column)
    message = str(raised.value)
    assert message.startswith(f"part.parquet: column `x` is {found}")
    assert f"expected {expected}" in message
    assert "\n" not in message


BAD_KEYS = [
    ("timestamp", pa.array([1_772_366_400]), "a timestamp"),
    ("timestamp", pa.array([1.5]), "a timestamp"),
    ("timestamp", pa.array(["noon"]), "a timestamp"),
    ("timestamp", pa.array([True]), "a timestamp"),
    ("timestamp", pa.array([dt.time(12)]), "a timestamp"),
    ("gpu_serial", pa.array([["A"]]), "text"),
    ("failure", pa.array(["yes"]), "0 or 1"),
    ("failure", pa.array([[1]]), "0 or 1"),
]


@pytest.mark.parametrize(("name", "column", "expected"), BAD_KEYS)
def test_unconvertible_key_is_named(name: str, column: pa.Array, expected: str) -> None:
    message = rf"part\.parquet: column `{name}` is .*, expected {expected} \("
    with pytest.raises(RecordsError, match=message):
        _part(**{name: column})


@pytest.mark.parametrize("name", ["gpu_serial", "timestamp", "power_draw"])
def test_missing_column_is_named_with_present_ones(name: str) -> None:
    columns = {
        "gpu_serial": pa.array(["A"]),
        "timestamp": pa.array([NOON]),
        "power_draw": pa.array([1.0]),
    }
    del columns[name]
    with pytest.raises(RecordsError, match=rf"f\.parquet: column `{name}` is missing") as raised:
        _checked(pa.table(columns), file="f.parquet", kinds=FeatureKinds(float=("power_draw",)))
    assert all(other in str(raised.value) for other in columns)


def test_unrequested_columns_are_not_read() -> None:
    part = _part(rubbish=pa.array([[1]]), note=pa.array(["x"]))
    assert part.values.numbers == {}
    assert part.values.texts == {}


def test_optional_texts_are_read_if_present() -> None:
    columns = {"gpu_serial": pa.array(["A"]), "timestamp": pa.array([NOON]), "slot": pa.array([3])}
    part = _checked(pa.table(columns), optional=("machine_id", "slot"))
    assert _texts(part, "slot") == ["3"]
    assert "machine_id" not in part.values.texts


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 0, None, 2], pa.int8()),
        pa.array([1.0, 0.0, None, 1.0]),
        pa.array([True, False, None, True]),
        pa.array(["1", "0", None, "1"]),
    ],
    ids=lambda column: str(column.type),
)
def test_values_above_zero_mean_failed(column: pa.Array) -> None:
    assert _part(failure=column).keys.failed.tolist() == [True, False, False, True]


def test_without_failure_column_nothing_failed() -> None:
    assert _part(x=pa.array([1, 2])).keys.failed.tolist() == [False, False]


def test_limits_are_half_open(
    table: Callable[..., pa.Table], rows: Callable[..., Any], at: Callable[[float], int]
) -> None:
    found = table(rows("A", [0, 10, 20, 30, None]) + rows(None, [10]))
    keys = check_keys(found, file="f", start=at(10), end=at(30))
    assert keys.keep.tolist() == [False, True, True, False, False, False]
    assert keys.n_rows == 4
    assert check_keys(found, file="f").n_rows == 6


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [(20, None, [20, 30]), (None, 20, [0, 10]), (None, None, [0, 10, 20, 30])],
)
def test_one_limit_is_enough(
    start: float | None,
    end: float | None,
    kept: list[float],
    table: Callable[..., pa.Table],
    rows: Callable[..., Any],
    at: Callable[[float], int],
    minutes: Callable[..., list[float]],
) -> None:
    found = table(rows("A", [0, 10, 20, 30]))
    limits = [None if minute is None else at(minute) for minute in (start, end)]
    keys = check_keys(found, file="f", start=limits[0], end=limits[1])
    assert minutes(keys.time[keys.keep]) == kept


def test_failed_serials_are_returned(
    table: Callable[..., pa.Table], rows: Callable[..., Any]
) -> None:
    found = table(
        rows("A", [0, 10], failure=[0, 1])
        + rows("B", [0, 10], failure=0)
        + rows("C", [0, None], failure=[0, 1])
        + rows(None, [0], failure=1)
    )
    assert check_keys(found, file="f").failed_serials() == {"A"}


def test_states_of_serials_use_given_numbers(
    table: Callable[..., pa.Table], rows: Callable[..., Any], minutes: Callable[..., list[float]]
) -> None:
    found = table(
        rows("B", [0, 10, None], failure=[0, 1, 1])
        + rows("A", [0], failure=0)
        + rows("C", [20], failure=1)
        + rows(None, [0], failure=1)
    )
    keys = check_keys(found, file="f")
    gpu, time, failed = keys.states_of(map_texts(keys.serial.texts, {"C": 0, "B": 1, "Z": 2}))
    assert gpu.tolist() == [1, 1, 0]
    assert minutes(time) == [0, 10, 20]
    assert failed.tolist() == [False, True, True]


def test_time_before_1970_is_valid() -> None:
    part = _part(timestamp=pa.array([dt.datetime(1969, 12, 31, 23, 59, 59)]))
    assert part.keys.time.tolist() == [-SECOND]
    assert part.keys.keep.tolist() == [True]
