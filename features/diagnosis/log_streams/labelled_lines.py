"""Lines of a log with the labels in their prefixes, read once for all lines of one form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from forewarn.features.array_types import Int64Array, UInt8Array, UInt64Array
from forewarn.features.compiled import compiled
from forewarn.features.diagnosis.log_lines.any_digits import zero_digits
from forewarn.features.diagnosis.log_lines.line_forms import forms_of_lines, mixed_hash

__all__ = ["LabelledLines", "Values", "read_labels"]

Values: TypeAlias = tuple[bytes | None, ...]
_EMPTY = np.uint64(0)
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_SECOND_BYTES = len("2026-03-04T12:15:00")
_NEWLINE, _SPACE = 10, 32


@dataclass(frozen=True, slots=True)
class LabelledLines:
    """Lines of a text by what their prefixes say.

    Attributes
    ----------
    text : bytes
    values : tuple of tuple of bytes or None
        What the groups of the prefix matched, in the order of the first line with it.
    numbers : array of int64
        Number in `values` of each line.
    spans : array of int64
        One row a line: start and end of the time in the prefix that remains, and of the rest.
    """

    text: bytes
    values: tuple[Values, ...]
    numbers: Int64Array
    spans: Int64Array

    def without_prefixes(self, lines: Int64Array) -> bytes:
        """Return some lines without their prefixes; empty if no line has any text."""
        spans = self.spans[lines]
        times, rests = spans[:, 1] - spans[:, 0], spans[:, 3] - spans[:, 2]
        if not rests.any():
            return b""
        size = times.sum() + np.count_nonzero(times) + rests.sum() + len(lines)
        copied = np.empty(size, np.uint8)
        _copy_lines(np.frombuffer(self.text, np.uint8), spans, copied)
        return copied.tobytes()


class _Prefix(NamedTuple):
    """The prefix of the lines of one form.

    Attributes
    ----------
    time, time_end, end : int
        Of the time that remains, and of the prefix, from the start of a line.
    digits : list of int
        Offsets of the digits in the groups.
    groups : tuple of bytes or None
        With zeros for digits.
    """

    time: int
    time_end: int
    end: int
    digits: list[int]
    groups: Values


def read_labels(text: bytes, prefix: re.Pattern[bytes], *, keeps_times: bool) -> LabelledLines:
    r"""Read the prefixes of all lines.

    Parameters
    ----------
    text : bytes
    prefix : re.Pattern
        Matches every line, and tells no digit from another.
    keeps_times : bool
        The time of a container runtime remains. The lines of a traceback stay together: only the
        first of several lines in one second has it.

    Examples
    --------
    >>> lines = read_labels(b"0: a\n1: b\n0: c\n", re.compile(rb"(\d): "), keeps_times=False)
    >>> lines.values, lines.numbers.tolist(), lines.without_prefixes(np.array([0, 2]))
    (((b'0',), (b'1',)), [0, 1, 0], b'a\nc\n')
    """
    starts, ends, hashes = forms_of_lines(text)
    _, first, forms = np.unique(hashes, return_index=True, return_inverse=True)
    samples = (text[starts[line] : ends[line]] for line in first.tolist())
    prefixes = [_read_prefix(sample, prefix, keeps_times) for sample in samples]
    labels = _labels(text, starts, forms, prefixes)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    numbers = np.argsort(order)[inverse]
    firsts = (text[starts[line] : ends[line]] for line in first[order].tolist())
    values = tuple(match.groups() for line in firsts if (match := prefix.match(line)))
    offsets = np.array([each[:3] for each in prefixes], np.int64).reshape(-1, 3)[forms]
    spans = np.column_stack((starts[:, None] + offsets, ends))
    last_times = np.zeros(len(values), np.uint64)
    _drop_repeated_times(np.frombuffer(text, np.uint8), numbers, last_times, spans)
    return LabelledLines(text, values, numbers, spans)


def _read_prefix(line: bytes, prefix: re.Pattern[bytes], keeps_times: bool) -> _Prefix:
    match = prefix.match(line)
    if match is None:
        raise ValueError("a line has no prefix, expected a pattern that matches every line")
    time = _TIME.search(line, 0, match.end()) if keeps_times and line[match.end() :] else None
    groups = [match.span(group) for group in range(1, prefix.groups + 1)]
    digits = [n for start, end in groups for n in range(start, end) if line[n : n + 1].isdigit()]
    values = tuple(None if value is None else zero_digits(value) for value in match.groups())
    return _Prefix(*(time.span() if time else (0, 0)), match.end(), digits, values)


def _labels(
    text: bytes, starts: Int64Array, forms: Int64Array, prefixes: Sequence[_Prefix]
) -> UInt64Array:
    """Return a hash of the groups of each line: their text without digits, and the digits."""
    numbers: dict[Values, int] = {}
    groups = [numbers.setdefault(each.groups, len(numbers)) for each in prefixes]
    limits = np.cumsum([0, *(len(each.digits) for each in prefixes)])
    columns = np.array([column for each in prefixes for column in each.digits], np.int64)
    labels = np.empty(len(starts), np.uint64)
    letters = np.frombuffer(text, np.uint8)
    _hash_labels(letters, starts, forms, np.array(groups, np.int64), limits, columns, labels)
    return labels


@compiled
def _hash_labels(
    letters: UInt8Array,
    starts: Int64Array,
    forms: Int64Array,
    groups: Int64Array,
    limits: Int64Array,
    columns: Int64Array,
    labels: UInt64Array,
) -> None:
    for line in range(starts.size):
        form = forms[line]
        label = mixed_hash(_EMPTY, np.uint64(groups[form]))
        for n in range(limits[form], limits[form + 1]):
            label = mixed_hash(label, np.uint64(letters[starts[line] + columns[n]]))
        labels[line] = label


@compiled
def _drop_repeated_times(
    letters: UInt8Array, numbers: Int64Array, last_times: UInt64Array, spans: Int64Array
) -> None:
    for line in range(numbers.size):
        start = spans[line, 0]
        if spans[line, 1] > start:
            second = _EMPTY
            for n in range(start, start + _SECOND_BYTES):
                second = mixed_hash(second, np.uint64(letters[n]))
            if last_times[numbers[line]] == second:
                spans[line, 1] = start
            last_times[numbers[line]] = second


@compiled
def _copy_lines(letters: UInt8Array, spans: Int64Array, copied: UInt8Array) -> None:
    position = 0
    for line in range(spans.shape[0]):
        for n in range(spans[line, 0], spans[line, 1]):
            copied[position] = letters[n]
            position += 1
        if spans[line, 1] > spans[line, 0]:
            copied[position] = _SPACE
            position += 1
        for n in range(spans[line, 2], spans[line, 3]):
            copied[position] = letters[n]
            position += 1
        copied[position] = _NEWLINE
        position += 1
