"""Text columns of a file: numbers for the texts, and digits where numbers serve as names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.compiled import compiled
from forewarn.features.records.table import BoolArray, CodeArray, Column

__all__ = [
    "is_text",
    "name_into",
    "name_of",
    "numbers_of",
    "plain_text",
    "text_into",
    "text_of",
    "without_dictionary",
]

WholeArray = npt.NDArray[np.signedinteger]

# Binary digits that a float of so many bits holds.
_DIGITS = {16: 11, 32: 24, 64: 53}

# Types of whole numbers that are taken as they are.
_NARROW = (pa.int8(), pa.int16(), pa.int32(), pa.int64())

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
        occurs = np.full(_SMALL, False)
        whole = [_narrow(chunk).to_numpy() for chunk in column.chunks]
        if all(_mark_small(values, occurs) for values in whole):
            number = (np.cumsum(occurs) - 1).astype(np.int32)
            _put_parts(whole, [number] * len(whole), codes)
            return Column(codes, tuple(str(number) for number in np.flatnonzero(occurs)))
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.type.value_type != pa.string():
        column = column.cast(pa.dictionary(pa.int32(), pa.string()))
    position: dict[str, int] = {}
    indices, numbers, before = [], [], None
    for chunk in _in_common(column).chunks:
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
            numbers.append(numbers_of(texts, position))
        indices.append(_without_nulls(chunk.indices))
    _put_parts(indices, numbers, codes)
    return _without_unused(codes, tuple(position))


def _without_unused(codes: CodeArray, texts: tuple[str, ...]) -> Column:
    """Return a column of the texts that occur; its codes are renumbered where they lie.

    A dictionary can hold others: those of a table that rows were filtered from stay in it.
    """
    occurs = np.full(len(texts) + 1, False)
    if _mark_all(codes, occurs[:-1]):
        return Column(codes, texts)
    number = (np.cumsum(occurs) - 1).astype(np.int32)
    number[-1] = -1  # that of null
    _put_codes(codes, number, codes)
    return Column(codes, tuple(compress(texts, occurs.tolist())))


def _in_common(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give all parts the same texts, where that is possible: those of one are looked up at once."""
    wide = pa.types.is_int32(column.type.index_type)
    if column.num_chunks < 2 or not wide or any(c.dictionary.null_count for c in column.chunks):
        return column
    return column.unify_dictionaries()


def _without_nulls(indices: pa.Array) -> WholeArray:
    """Return indices, -1 for null."""
    whole = _narrow(indices)
    numbers: WholeArray = (pc.fill_null(whole, -1) if whole.null_count else whole).to_numpy()
    return numbers


def numbers_of(texts: Sequence[str], number: Mapping[str, int]) -> CodeArray:
    """Return the number of each text, -1 for those that have none, and last the -1 of null."""
    return np.array([*[number.get(text, -1) for text in texts], -1], dtype=np.int32)


def _narrow(whole: pa.Array) -> pa.Array:
    """Return whole numbers in one of few types, for each of which a loop is compiled."""
    return whole if whole.type in _NARROW else whole.cast(pa.int64(), safe=False)


def _put_parts(
    indices: Sequence[WholeArray], numbers: Sequence[CodeArray], codes: CodeArray
) -> None:
    """Put the numbers of all parts into `codes`, one part after another."""
    row = 0
    for some, number in zip(indices, numbers, strict=True):
        _put_codes(some, number, codes[row : row + len(some)])
        row += len(some)


@compiled
def _put_codes(indices: WholeArray, number: CodeArray, codes: CodeArray) -> None:
    """Put the number of each index into `codes`; that of -1 is the last."""
    for row in range(len(codes)):
        codes[row] = number[indices[row]]


@compiled
def _mark_all(codes: CodeArray, occurs: BoolArray) -> bool:
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
def _mark_small(values: WholeArray, occurs: BoolArray) -> bool:
    """Mark the values that occur; stop and say so if one has no place there."""
    for row in range(len(values)):
        if not 0 <= values[row] < len(occurs):
            return False
        occurs[values[row]] = True
    return True
