"""The check at the border: the needed columns of one file as arrays that the inside trusts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.compiled import compiled
from forewarn.features.records import (
    FAILURE,
    MACHINE,
    SERIAL,
    TIMESTAMP,
    BoolArray,
    CodeArray,
    Column,
    FeatureKinds,
    FloatArray,
    IntArray,
    RecordsError,
)

__all__ = [
    "Columns",
    "Keys",
    "States",
    "Values",
    "check_keys",
    "check_values",
    "is_text",
    "moments",
    "numbers_of",
    "plain_text",
]

# Exporters write blank values as 2**47 or 2**63 less a little; nothing that is read of a GPU gets
# near them, and one such reading would swallow the digits of all that is added up with it.
_BLANK = {np.dtype(np.float32): 2.0**40, np.dtype(np.float64): 2.0**47}
# Types whose values are taken as they lie in memory; the others are cast before.
_AS_THEY_ARE = {
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
}

# Binary digits that a float of so many bits holds.
_DIGITS = {16: 11, 32: 24, 64: 53}

# Numbers below it that serve as text, such as slots, are counted rather than looked up.
_SMALL = 1024

Number = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Room = Mapping[str, npt.NDArray[Any]]


class Columns(Protocol):
    """The columns of a file: a table, or what reads each when it is asked for."""

    column_names: list[str]

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, name: str, /) -> pa.ChunkedArray:
        """Return a column."""
        ...


class States(NamedTuple):
    """Rows that say of a GPU whether it was failed: its number, the time, and what they say."""

    gpu: CodeArray
    time: IntArray
    failed: BoolArray

    @classmethod
    def joined(cls, parts: Sequence[States]) -> States:
        """Return the rows of all parts, one part after another."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def numbers_of(texts: Sequence[str], place: Mapping[str, int]) -> CodeArray:
    """Return the number of each text, -1 for those that have none, and last the -1 of null."""
    return np.array([*(place.get(text, -1) for text in texts), -1], dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Keys:
    """Who, when and how, of the rows of one file.

    Attributes
    ----------
    serial : Column
    time : ndarray of shape (n,), int64
    keep : ndarray of shape (n,), bool
        The row has a serial and a timestamp, within the limits asked for.
    failed : ndarray of shape (n,), bool
    n_rows : int
        Rows within the limits, those without keys counted.
    naive_time : bool
        The timestamps had no zone.
    """

    serial: Column
    time: IntArray
    keep: BoolArray
    failed: BoolArray
    n_rows: int
    naive_time: bool

    def failed_serials(self) -> set[str]:
        """Return the serials of the GPUs with a failed record."""
        return {self.serial.texts[i] for i in np.unique(self.serial.codes[self.failed & self.keep])}

    def rows_of(self, number: CodeArray) -> States:
        """Return the states of some serials, by the number of each text (`numbers_of`)."""
        codes = self.serial.codes
        rows = np.flatnonzero((number >= 0)[codes])
        rows = rows[self.keep[rows]]
        return States(number[codes[rows]], self.time[rows], self.failed[rows])


@dataclass(frozen=True, slots=True)
class Values:
    """What the rows of one file hold beside their keys.

    Attributes
    ----------
    numbers : dict of ndarray of shape (n,), float32
        NaN is null.
    counts : dict of ndarray of shape (n,), float64
        The counters; NaN is null.
    nulls : dict of int
        How many are null, by name.
    texts : dict of Column
    """

    numbers: dict[str, FloatArray]
    counts: dict[str, npt.NDArray[np.float64]]
    nulls: dict[str, int]
    texts: dict[str, Column]


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column of this type holds text, plain or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def plain_text(column: pa.ChunkedArray, *, name: bool = False) -> pa.ChunkedArray:
    """Return a column as text; numbers that are whole are written in plain digits.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    name : bool
        It names a thing, so that digits that are lost would make another thing of it.

    Raises
    ------
    pyarrow.ArrowInvalid
        If it cannot be text, or names things by numbers that are not whole or not exact.
    """
    return _plain(_digits(column, name=name)).cast(pa.string())


def _digits(column: pa.ChunkedArray, *, name: bool = False) -> pa.ChunkedArray:
    """Return floats as integers where all of them are whole: a serial is not 7.55e+12."""
    if pa.types.is_dictionary(column.type) and pa.types.is_floating(column.type.value_type):
        column = _plain(column)
    if not pa.types.is_floating(column.type):
        return column
    numbers = pc.if_else(pc.is_nan(column), None, column)
    exact = 2.0 ** _DIGITS[column.type.bit_width]
    values = numbers.drop_null().cast(pa.float64()).to_numpy()
    odd = values[(values != np.floor(values)) | ~(np.abs(values) <= exact)]
    if not len(odd):
        return numbers.cast(pa.int64())
    if name:
        raise pa.ArrowInvalid(f"{odd[0]:.17g} is no whole number with all its digits")
    return numbers


def _text(column: pa.ChunkedArray) -> Column:
    """Return a text column."""
    return _text_into(np.empty(len(column), dtype=np.int32), column)


def _name(column: pa.ChunkedArray) -> Column:
    """Return a text column that names things."""
    return _name_into(np.empty(len(column), dtype=np.int32), column)


def _name_into(codes: CodeArray, column: pa.ChunkedArray) -> Column:
    """Return a text column that names things, in the room that is given."""
    return _text_into(codes, _digits(column, name=True))


def _text_into(codes: CodeArray, column: pa.ChunkedArray) -> Column:
    """Return a text column whose codes lie in the room that is given."""
    if pa.types.is_nested(column.type):
        raise pa.ArrowInvalid("not text")
    column = _digits(column)
    if pa.types.is_integer(column.type) and column.null_count == 0 < len(column):
        values = column.to_numpy()
        if values.min() >= 0 and values.max() < _SMALL:
            occurs = np.bincount(values) > 0
            codes[:] = (np.cumsum(occurs) - 1)[values]
            return Column(codes, tuple(str(number) for number in np.flatnonzero(occurs)))
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.type.value_type != pa.string():
        column = column.cast(pa.dictionary(pa.int32(), pa.string()))
    array = column.chunk(0) if column.num_chunks == 1 else _one_chunk(column)
    found = array.indices
    if found.null_count:
        found = pc.fill_null(found.cast(pa.int32()), -1)
    np.copyto(codes, found.to_numpy(zero_copy_only=False), casting="unsafe")
    texts = array.dictionary.to_pylist()
    if None in texts:
        codes[codes == texts.index(None)] = -1
        texts[texts.index(None)] = ""
    return Column(codes, tuple(texts))


def _one_chunk(column: pa.ChunkedArray) -> pa.DictionaryArray:
    chunks = [
        pa.DictionaryArray.from_arrays(
            chunk.indices.cast(pa.int32()), chunk.dictionary.cast(pa.string())
        )
        for chunk in column.chunks
    ]
    array = pa.chunked_array(chunks, pa.dictionary(pa.int32(), pa.string()))
    array = array.unify_dictionaries().combine_chunks()
    return array if isinstance(array, pa.DictionaryArray) else array.chunk(0)


def moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of timestamps as nanoseconds since 1970 UTC; null stays null.

    Raises
    ------
    pyarrow.ArrowInvalid
        If it is none and cannot be read as such.
    """
    column = _plain(column)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        raise pa.ArrowInvalid("a number has no unit of time")
    if is_text(column.type):
        column = column.cast(pa.string())
        try:
            column = column.cast(pa.timestamp("ns"))
        except pa.ArrowInvalid:
            column = column.cast(pa.timestamp("ns", "UTC"))
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    return column.cast(pa.timestamp("ns", _zone(column.type))).cast(pa.int64())


def _zone(kind: pa.DataType) -> str | None:
    return kind.tz if pa.types.is_timestamp(kind) else None


def _moments_and_zone(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, bool]:
    """Return timestamps as `moments` does, and whether they came without a zone."""
    return moments(column), _is_naive(column)


def _is_naive(column: pa.ChunkedArray) -> bool:
    """Tell whether timestamps come without a zone, so that UTC must be meant."""
    column = _plain(column)
    if not is_text(column.type):
        return _zone(column.type) is None
    try:
        column.cast(pa.string()).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True


def _number(column: pa.ChunkedArray) -> Number:
    """Return a column of numbers, float32."""
    values = np.empty(len(column), dtype=np.float32)
    _number_into(values, column)
    return values


def _number_into(room: Number, column: pa.ChunkedArray) -> int:
    """Put a column of numbers into the room that is given; return how many are null."""
    column = _plain(column)
    if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
        raise pa.ArrowInvalid("not a number")
    if column.type not in _AS_THEY_ARE:
        column = column.cast(pa.float64(), safe=False)
    start = nulls = 0
    for chunk in column.chunks:
        valid, held = chunk.buffers()
        values = np.frombuffer(held or b"", dtype=_AS_THEY_ARE[column.type])[chunk.offset :]
        bits = np.frombuffer((chunk.null_count and valid) or b"", dtype=np.uint8)
        mine = room[start : start + len(chunk)]
        nulls += _put(values, bits, chunk.offset, _BLANK[room.dtype], mine)
        start += len(chunk)
    return nulls


@compiled
def _put(
    values: npt.NDArray[np.generic],
    valid: npt.NDArray[np.uint8],
    offset: int,
    blank: float,
    room: Number,
) -> int:
    """Put values where they belong, NaN for those that are null or blank; return how many are.

    `valid` holds a bit for each value from `offset` on, or nothing if all are there.
    """
    nulls = row = 0
    for i in range(len(room)):
        room[i] = values[i]
        nulls += not abs(room[i]) < blank
        room[i] = room[i] if abs(room[i]) < blank else np.nan
    while row < len(room) and len(valid):
        bit = row + offset
        if bit & 7 == 0 and valid[bit >> 3] == 255:  # eight at a time: most are there
            row += 8
            continue
        if not valid[bit >> 3] >> (bit & 7) & 1:
            nulls += not np.isnan(room[row])
            room[row] = np.nan
        row += 1
    return nulls


def _days(values: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Return dates of any form as days since 1970."""
    values = _plain(values)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        raise pa.ArrowInvalid("a number is no date")
    if is_text(values.type):
        values = pc.if_else(pc.equal(values, ""), None, values)
    seconds = values.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
    return np.asarray(seconds.to_numpy() / 86_400.0, dtype=np.float32)


def _dates_into(room: Number, column: pa.ChunkedArray) -> int:
    """Put a column of dates into the room that is given; return how many are null."""
    if is_text(column.type):
        # A text of a date stands for thousands of rows: read each text once.
        encoded = _text(column)
        days = _days(pa.chunked_array([pa.array(encoded.texts, pa.string())]))
        np.take(np.append(days, np.float32(np.nan)), encoded.codes, out=room, mode="wrap")
    else:
        room[:] = _days(column)
    return int(np.count_nonzero(np.isnan(room)))


_Converted = TypeVar("_Converted")


def _convert(
    table: Columns,
    name: str,
    work: Callable[[pa.ChunkedArray], _Converted],
    expected: str,
    file: str,
) -> _Converted:
    """Convert one column, or say which file and column cannot be."""
    if name not in table.column_names:
        found = ", ".join(table.column_names)
        raise RecordsError(f"{file}: column `{name}` is missing, found {found}.")
    column = table[name]
    try:
        return work(column)
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        pa.ArrowTypeError,
        UnicodeDecodeError,
    ) as error:
        detail = str(error).splitlines()[0]
        kind = column.type
        raise RecordsError(
            f"{file}: column `{name}` is {kind}, expected {expected} ({detail})."
        ) from None


def check_keys(
    table: Columns, *, file: str, start: int | None = None, end: int | None = None
) -> Keys:
    """Check and convert the serial, the timestamp and, where there is one, `failure`.

    Parameters
    ----------
    table : Columns
        As read.
    file : str
        For messages.
    start, end : int, optional
        Only rows of [start, end), nanoseconds since 1970 UTC.

    Raises
    ------
    RecordsError
        If a column is missing or cannot be converted.
    """
    times, naive = _convert(table, TIMESTAMP, _moments_and_zone, "a timestamp", file)
    serial = _convert(table, SERIAL, _name, "text", file)
    failed = np.zeros(len(table), dtype=bool)
    if FAILURE in table.column_names:
        failed = _convert(table, FAILURE, _number, "0 or 1", file) > 0
    keep = serial.codes >= 0
    if times.null_count:
        keep &= times.is_valid().to_numpy()
        times = pc.fill_null(times, 0)
    time = times.to_numpy()
    n_rows, n_kept = len(keep), int(np.count_nonzero(keep))
    if start is not None or end is not None:
        low = -(2**63) if start is None else start
        high = 2**63 - 1 if end is None else end
        within = (time >= low) & (time < high)
        n_rows -= n_kept
        keep &= within
        n_rows += int(np.count_nonzero(keep))
    return Keys(serial, time, keep, failed, n_rows, naive)


def check_values(
    table: Columns,
    *,
    file: str,
    kinds: FeatureKinds,
    optional: Sequence[str] = (),
    room: Room | None = None,
) -> Values:
    """Check and convert the columns beside the keys.

    Parameters
    ----------
    table : Columns
        As read; columns that nobody named are left out.
    file : str
        For messages.
    kinds : FeatureKinds
    optional : sequence of str
        Text columns to keep where they are there: `machine_id`, `slot` and groups of peers.
    room : mapping of ndarray, optional
        Where to put the numbers and the codes of texts, by name; else there is new room.

    Raises
    ------
    RecordsError
        If a needed column is missing or cannot be converted.
    """

    def room_of(name: str, kind: type[np.generic]) -> npt.NDArray[Any]:
        return np.empty(len(table), dtype=kind) if room is None else room[name]

    texts, nulls = {}, {}
    numbers = {
        name: room_of(name, np.float32)
        for name in (*kinds.float, *kinds.binary, *kinds.code, *kinds.date)
    }
    counts = {name: room_of(name, np.float64) for name in kinds.counter}
    present = [name for name in optional if name in table.column_names]
    for name in dict.fromkeys((*kinds.categorical, *present)):
        put_text = _name_into if name == MACHINE else _text_into
        into = partial(put_text, room_of(name, np.int32))
        texts[name] = _convert(table, name, into, "text", file)
    for name, values in (numbers | counts).items():
        put, expected = (_number_into, "a number")
        if name in kinds.date:
            put, expected = (_dates_into, "an ISO date")
        nulls[name] = _convert(table, name, partial(put, values), expected, file)
    return Values(numbers, counts, nulls, texts)
