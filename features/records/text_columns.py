"""Text columns of a file: numbers for the texts, and digits where numbers serve as names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.array_types import BoolArray, Int32Array, SignedIntArray
from forewarn.features.compiled import compiled
from forewarn.features.records.record_table import RawTextColumn

__all__ = [
    "encode_names",
    "encode_names_into",
    "encode_texts",
    "encode_texts_into",
    "is_text",
    "map_texts",
    "plain_text",
    "without_dictionary",
]


# Binary digits that a float of so many bits holds.
_MANTISSA_BITS = {16: 11, 32: 24, 64: 53}

# Types of whole numbers that are taken as they are.
_SUPPORTED_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64())

# Numbers below it that serve as text, such as slots, are counted rather than looked up.
_MAX_SMALL_VALUE = 1024


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column of this type holds text, plain or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
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
    return without_dictionary(_digits(column, name=name)).cast(pa.string())


def _digits(column: pa.ChunkedArray, *, name: bool = False) -> pa.ChunkedArray:
    """Return floats as integers where all of them are whole: a serial is not 7.55e+12."""
    if pa.types.is_dictionary(column.type) and pa.types.is_floating(column.type.value_type):
        column = without_dictionary(column)
    if not pa.types.is_floating(column.type):
        return column
    numbers = pc.if_else(pc.is_nan(column), None, column)
    exact = 2.0 ** _MANTISSA_BITS[column.type.bit_width]
    values = numbers.drop_null().cast(pa.float64()).to_numpy()
    odd = values[(values != np.floor(values)) | ~(np.abs(values) <= exact)]
    if not len(odd):
        return numbers.cast(pa.int64())
    if name:
        raise pa.ArrowInvalid(f"{odd[0]:.17g} is no whole number with all its digits")
    return numbers


def encode_texts(column: pa.ChunkedArray) -> RawTextColumn:
    """Return a text column."""
    return encode_texts_into(np.empty(len(column), dtype=np.int32), column)


def encode_names(column: pa.ChunkedArray) -> RawTextColumn:
    """Return a text column that names things."""
    return encode_names_into(np.empty(len(column), dtype=np.int32), column)


def encode_names_into(codes: Int32Array, column: pa.ChunkedArray) -> RawTextColumn:
    """Return a text column that names things; its codes lie in `codes`."""
    return encode_texts_into(codes, _digits(column, name=True))


def encode_texts_into(codes: Int32Array, column: pa.ChunkedArray) -> RawTextColumn:
    """Return a text column whose codes lie in `codes`."""
    if pa.types.is_nested(column.type):
        raise pa.ArrowInvalid("not text")
    column = _digits(column)
    if pa.types.is_integer(column.type) and column.null_count == 0 < len(column):
        occurs = np.full(_MAX_SMALL_VALUE, False)
        whole = [_cast_to_supported(chunk).to_numpy() for chunk in column.chunks]
        if all(_mark_small(values, occurs) for values in whole):
            number = (np.cumsum(occurs) - 1).astype(np.int32)
            _put_parts(whole, [number] * len(whole), codes)
            return RawTextColumn(codes, tuple(str(number) for number in np.flatnonzero(occurs)))
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.type.value_type != pa.string():
        column = column.cast(pa.dictionary(pa.int32(), pa.string()))
    position: dict[str, int] = {}
    indices, numbers, before = [], [], None
    for chunk in _unify_dictionaries(column).chunks:
        if before is not None and chunk.dictionary.equals(before):
            numbers.append(numbers[-1])
            indices.append(_without_nulls(chunk.indices))
            continue
        before, texts = chunk.dictionary, chunk.dictionary.to_pylist()
        distinct = dict.fromkeys(texts)
        if not position and len(distinct) == len(texts) and None not in distinct:
            position = dict(zip(texts, count(), strict=False))  # as of most files: no lookups
            numbers.append(np.append(np.arange(len(texts), dtype=np.int32), np.int32(-1)))
        else:
            new = [text for text in distinct if text not in position and text is not None]
            position.update(zip(new, count(len(position)), strict=False))
            numbers.append(map_texts(texts, position))
        indices.append(_without_nulls(chunk.indices))
    _put_parts(indices, numbers, codes)
    return _without_unused(codes, tuple(position))


def _without_unused(codes: Int32Array, texts: tuple[str, ...]) -> RawTextColumn:
    """Return a column of the texts that occur; its codes are renumbered where they lie.

    A dictionary can hold others: those of a table that rows were filtered from stay in it.
    """
    occurs = np.full(len(texts) + 1, False)
    if _mark_all(codes, occurs[:-1]):
        return RawTextColumn(codes, texts)
    number = (np.cumsum(occurs) - 1).astype(np.int32)
    number[-1] = -1  # that of null
    _put_codes(codes, number, codes)
    return RawTextColumn(codes, tuple(compress(texts, occurs.tolist())))


def _unify_dictionaries(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give all parts the same texts, where that is possible: those of one are looked up at once."""
    wide = pa.types.is_int32(column.type.index_type)
    if column.num_chunks < 2 or not wide or any(c.dictionary.null_count for c in column.chunks):
        return column
    return column.unify_dictionaries()


def _without_nulls(indices: pa.Array) -> SignedIntArray:
    """Return indices, -1 for null."""
    whole = _cast_to_supported(indices)
    numbers: SignedIntArray = (pc.fill_null(whole, -1) if whole.null_count else whole).to_numpy()
    return numbers


def map_texts(texts: Sequence[str], number: Mapping[str, int]) -> Int32Array:
    """Return the number of each text, -1 for those that have none, and last the -1 of null."""
    return np.array([*[number.get(text, -1) for text in texts], -1], dtype=np.int32)


def _cast_to_supported(whole: pa.Array) -> pa.Array:
    """Return whole numbers in one of few types, for each of which a loop is compiled."""
    return whole if whole.type in _SUPPORTED_TYPES else whole.cast(pa.int64(), safe=False)


def _put_parts(
    indices: Sequence[SignedIntArray], numbers: Sequence[Int32Array], codes: Int32Array
) -> None:
    """Put the numbers of all parts into `codes`, one part after another."""
    row = 0
    for some, number in zip(indices, numbers, strict=True):
        _put_codes(some, number, codes[row : row + len(some)])
        row += len(some)


@compiled
def _put_codes(indices: SignedIntArray, number: Int32Array, codes: Int32Array) -> None:
    """Put the number of each index into `codes`; that of -1 is the last."""
    for row in range(len(codes)):
        codes[row] = number[indices[row]]


@compiled
def _mark_all(codes: Int32Array, occurs: BoolArray) -> bool:
    """Mark the codes that occur until all do, mostly after a few rows; tell whether all do."""
    left = len(occurs)
    for row in range(len(codes)):
        if left == 0:
            break
        if codes[row] >= 0 and not occurs[codes[row]]:
            occurs[codes[row]] = True
            left -= 1
    return left == 0


@compiled
def _mark_small(values: SignedIntArray, occurs: BoolArray) -> bool:
    """Mark the values that occur; stop and say so if one has no place there."""
    for row in range(len(values)):
        if not 0 <= values[row] < len(occurs):
            return False
        occurs[values[row]] = True
    return True
