"""Finds the lines of a log that repeat earlier ones up to digits, so that they are searched once.

Most of a log is one statement of a program, printed with other numbers each time. Its lines have
the same length, and the same letters at the same places.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Int64Array

__all__ = ["LineSelection", "RepeatedLines", "any_digits"]

_WORDS, _WORD_BYTES = 8, 8  # compared per line, evenly spread; all of a line of up to 64 bytes
_MIN_REPEATS = 16  # within one text, until a form is known
_MAX_FORMS = 4096
_NEWLINE, _ZERO = ord("\n"), np.uint8(ord("0"))
_FACTORS = np.random.default_rng(1).integers(1, 2**63, _WORDS, dtype=np.uint64) | np.uint64(1)
_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() else byte for byte in range(128)) + bytes(
    range(128, 256)
)


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Some lines of a text.

    Attributes
    ----------
    text : bytes
        The lines, joined by newlines.
    starts, original : list of int
        Where each line starts in this text, and where in the original one.
    """

    text: bytes
    starts: list[int]
    original: list[int]

    def original_offset(self, offset: int) -> int:
        """Return the offset in the original text of an offset in this text."""
        number = bisect_right(self.starts, offset) - 1
        return self.original[number] + offset - self.starts[number]


_Forms = np.ndarray[tuple[int], np.dtype[np.uint64]]


class RepeatedLines:
    """The forms of lines that are known to be of no interest.

    Two lines of the same length that agree, up to digits, in eight words spread over the line are
    taken for the same form.

    Parameters
    ----------
    is_relevant : callable
        Whether a line could be of interest, given with each digit replaced by a zero. It has to be
        True if the line is of interest with any other digits.
    """

    def __init__(self, is_relevant: Callable[[bytes], bool]) -> None:
        self._is_relevant = is_relevant
        self._known = np.zeros(0, dtype=np.uint64)  # ascending
        self._judged = set[int]()

    def select_new(self, text: bytes) -> LineSelection:
        """Return the lines of a text that are not known to be of no interest, in order."""
        if len(text) < _WORD_BYTES:
            return LineSelection(text, [0], [0])
        starts, ends, forms = _forms_of_lines(text)
        new = np.flatnonzero(self._is_new(forms))
        if len(new) >= _MIN_REPEATS:
            self._learn(text, starts[new], ends[new], forms[new])
            new = np.flatnonzero(self._is_new(forms))
        if len(new) == len(starts):
            return LineSelection(text, [0], [0])
        first, last = starts[new], ends[new]
        joined = np.concatenate([[0], np.cumsum(last - first + 1)])[:-1]
        lines = zip(first.tolist(), last.tolist(), strict=True)
        selected = b"\n".join(text[start:end] for start, end in lines)
        return LineSelection(selected, joined.tolist(), first.tolist())

    def _is_new(self, forms: _Forms) -> BoolArray:
        if not len(self._known):
            return np.ones(len(forms), dtype=bool)
        positions = np.searchsorted(self._known[:-1], forms)
        is_new: BoolArray = self._known[positions] != forms
        return is_new

    def _learn(self, text: bytes, starts: Int64Array, ends: Int64Array, forms: _Forms) -> None:
        """Add the forms that many lines of a text have, and that are of no interest."""
        values, first, counts = np.unique(forms, return_index=True, return_counts=True)
        is_common = counts >= _MIN_REPEATS
        lines = dict(zip(values[is_common].tolist(), first[is_common].tolist(), strict=True))
        added = []
        for form in lines.keys() - self._judged if len(self._judged) < _MAX_FORMS else ():
            line = text[starts[lines[form]] : ends[lines[form]]]
            self._judged.add(form)
            if not self._is_relevant(line.translate(_TO_ZERO)):
                added.append(form)
        self._known = np.union1d(self._known, np.array(added, dtype=np.uint64))


def _forms_of_lines(text: bytes) -> tuple[Int64Array, Int64Array, _Forms]:
    """Return the starts and ends of the lines of a text, and a number for the form of each."""
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == _NEWLINE)
    if text[-1] != _NEWLINE:
        ends = np.append(ends, len(text))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    spread = np.maximum(lengths - _WORD_BYTES, 0)[:, None] * np.arange(_WORDS) // (_WORDS - 1)
    offsets = np.minimum(starts[:, None] + spread, len(text) - _WORD_BYTES)
    words = np.ndarray((len(text) - _WORD_BYTES + 1,), dtype="<u8", buffer=text, strides=(1,))
    sampled = words[offsets]
    letters = sampled.view(np.uint8)
    letters[(letters - _ZERO) < 10] = _ZERO
    forms = (sampled * _FACTORS).sum(axis=1) + lengths.astype(np.uint64) * _LENGTH_FACTOR
    return starts, ends, forms


def any_digits(expression: str) -> str:
    r"""Return an expression that matches a line of zeros wherever `expression` matches some digits.

    Examples
    --------
    >>> any_digits(r"Xid \d+: 7[49]\b.{1,20}")
    'Xid \\d+: [0-9][490-9]\\b.{1,20}'
    """
    tokens = _TOKEN.findall(expression)
    if any(_UNCLEAR.fullmatch(token) for token in tokens):
        return "."
    return "".join(map(_with_any_digit, tokens))


_TOKEN = re.compile(
    r"\\."  # an escape
    r"|\{\d+(?:,\d*)?\}"  # a number of repetitions
    r"|\(\?P?<\w+>"  # the name of a group
    r"|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"  # a class
    r"|.",
    re.DOTALL,
)
_UNCLEAR = re.compile(r"\\[0-7xQpP]|\[.*\\[0-7xpP].*\]", re.DOTALL)  # digits by other names


def _with_any_digit(token: str) -> str:
    """Return a token that also matches zero if the token matches a digit."""
    if token.isdecimal():
        return "[0-9]"
    if not token.startswith("[") or not any(map(str.isdecimal, token)):
        return token
    if token.startswith("[^"):
        pieces = [re.sub(r"\d-\d", "", piece) for piece in token.split("0-9")]
        if any(re.search(r"\d-|-\d", piece) for piece in pieces):
            return "."
        rest = "0-9".join(re.sub(r"\d", "", piece) for piece in pieces)
        return "." if rest == "[^]" else rest
    return token[:-1] + "0-9]"
