"""Text columns of a file: numbers for the texts, and digits where numbers serve as names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.records.table import CodeArray, Column

__all__ = [
    "is_text",
    "name_into",
    "name_of",
    "plain_text",
    "text_into",
    "text_of",
    "without_dictionary",
]

# Binary digits that a float of so many bits holds.
_DIGITS = {16: 11, 32: 24, 64: 53}

# Numbers below it that serve as text, such as slots, are counted rather than looked up.
_SMALL = 1024


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
    exact = 2.0 ** _DIGITS[column.type.bit_width]
    values = numbers.drop_null().cast(pa.float64()).to_numpy()
    odd = values[(values != np.floor(values)) | ~(np.abs(values) <= exact)]
    if not len(odd):
        return numbers.cast(pa.int64())
    if name:
        raise pa.ArrowInvalid(f"{odd[0]:.17g} is no whole number with all its digits")
    return numbers


def text_of(column: pa.ChunkedArray) -> Column:
    """Return a text column."""
    return text_into(np.empty(len(column), dtype=np.int32), column)


def name_of(column: pa.ChunkedArray) -> Column:
    """Return a text column that names things."""
    return name_into(np.empty(len(column), dtype=np.int32), column)


def name_into(codes: CodeArray, column: pa.ChunkedArray) -> Column:
    """Return a text column that names things; its codes lie in `codes`."""
    return text_into(codes, _digits(column, name=True))


def text_into(codes: CodeArray, column: pa.ChunkedArray) -> Column:
    """Return a text column whose codes lie in `codes`."""
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
    indices = array.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int32()), -1)
    np.copyto(codes, indices.to_numpy(zero_copy_only=False), casting="unsafe")
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
