"""Dictionary encoding of text columns; whole numbers that serve as names become digits."""

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
    "mark_occurring",
    "plain_text",
    "without_dictionary",
]


# Binary digits of the significand, by bits of the float.
_MANTISSA_BITS = {16: 11, 32: 24, 64: 53}

# Integer types that are processed without a cast.
_SUPPORTED_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64())

# Smaller numbers that serve as text, such as slots, are counted instead of looked up.
_MAX_SMALL_VALUE = 1024


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column type is text, plain or dictionary-encoded."""
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
    """Return a column as text; whole numbers are written without exponent.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    name : bool
        The column holds names, so that a lost digit would change the name.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the column cannot be text, or has names that are not exact whole numbers.
    """
    return without_dictionary(_digits(column, name=name)).cast(pa.string())


def _digits(column: pa.ChunkedArray, *, name: bool = False) -> pa.ChunkedArray:
    """Convert floats to integers if all are whole: a serial is not written as 7.55e+12."""
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
        raise pa.ArrowInvalid(f"{odd[0]:.17g} is not an exact whole number")
    return numbers


def encode_texts(column: pa.ChunkedArray) -> RawTextColumn:
    """Encode a text column."""
    return encode_texts_into(np.empty(len(column), dtype=np.int32), column)


def encode_names(column: pa.ChunkedArray) -> RawTextColumn:
    """Encode a text column of names."""
    return encode_names_into(np.empty(len(column), dtype=np.int32), column)


def encode_names_into(codes: Int32Array, column: pa.ChunkedArray) -> RawTextColumn:
    """Encode a text column of names; write the codes into `codes`."""
    return encode_texts_into(codes, _digits(column, name=True))


def encode_texts_into(codes: Int32Array, column: pa.ChunkedArray) -> RawTextColumn:
    """Encode a text column; write the codes into `codes`."""
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
            position = dict(
                zip(texts, count(), strict=False)
            )  # no lookup is needed, as in most files
            numbers.append(np.append(np.arange(len(texts), dtype=np.int32), np.int32(-1)))
        else:
            new = [text for text in distinct if text not in position and text is not None]
            position.update(zip(new, count(len(position)), strict=False))
            numbers.append(map_texts(texts, position))
        indices.append(_without_nulls(chunk.indices))
    _put_parts(indices, numbers, codes)
    return _without_unused(codes, tuple(position))


def _without_unused(codes: Int32Array, texts: tuple[str, ...]) -> RawTextColumn:
    """Drop unused texts and renumber the codes in place.

    A dictionary can hold unused texts, for example those of rows that were filtered out.
    """
    occurs = np.full(len(texts) + 1, False)
    if mark_occurring(codes, occurs[:-1]):
        return RawTextColumn(codes, texts)
    number = (np.cumsum(occurs) - 1).astype(np.int32)
    number[-1] = -1  # null
    _put_codes(codes, number, codes)
    return RawTextColumn(codes, tuple(compress(texts, occurs.tolist())))


def _unify_dictionaries(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Unify the dictionaries of all chunks where possible, so that texts are looked up once."""
    wide = pa.types.is_int32(column.type.index_type)
    if column.num_chunks < 2 or not wide or any(c.dictionary.null_count for c in column.chunks):
        return column
    return column.unify_dictionaries()


def _without_nulls(indices: pa.Array) -> SignedIntArray:
    """Return the indices with -1 for null."""
    whole = _cast_to_supported(indices)
    numbers: SignedIntArray = (pc.fill_null(whole, -1) if whole.null_count else whole).to_numpy()
    return numbers


def map_texts(texts: Sequence[str], number: Mapping[str, int]) -> Int32Array:
    """Return the number of each text, -1 if it has none; the last entry is -1 for null."""
    return np.array([*[number.get(text, -1) for text in texts], -1], dtype=np.int32)


def _cast_to_supported(whole: pa.Array) -> pa.Array:
    """Cast integers to one of the few types for which loops are compiled."""
    return whole if whole.type in _SUPPORTED_TYPES else whole.cast(pa.int64(), safe=False)


def _put_parts(
    indices: Sequence[SignedIntArray], numbers: Sequence[Int32Array], codes: Int32Array
) -> None:
    """Write the numbers of all parts into `codes`, part after part."""
    row = 0
    for some, number in zip(indices, numbers, strict=True):
        _put_codes(some, number, codes[row : row + len(some)])
        row += len(some)


@compiled
def _put_codes(indices: SignedIntArray, number: Int32Array, codes: Int32Array) -> None:
    """Write the number of each index into `codes`; index -1 is the last number."""
    for row in range(len(codes)):
        codes[row] = number[indices[row]]


@compiled
def mark_occurring(codes: SignedIntArray, occurs: BoolArray) -> bool:
    """Mark the codes that occur; return whether all do, which mostly shows after a few rows.

    Parameters
    ----------
    codes : ndarray of signed integers, shape (n_rows,)
        Negative ones are skipped.
    occurs : ndarray of bool, shape (n_texts,)
        All False at first; updated in place.
    """
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
    """Mark the values that occur; return False at the first value out of range."""
    for row in range(len(values)):
        if not 0 <= values[row] < len(occurs):
            return False
        occurs[values[row]] = True
    return True
