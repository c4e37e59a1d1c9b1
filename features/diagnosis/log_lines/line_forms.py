"""Forms of lines: lines that agree up to digits, found at the speed of memory.

Most of a log is one statement of a program, printed with other numbers each time. Its lines have
the same length, and the same letters at the same places.
"""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import BoolArray, Int64Array, UInt8Array, UInt64Array
from forewarn.features.compiled import compiled

__all__ = ["MAX_FORMS", "UNJUDGED", "FormTable", "forms_of_lines", "mixed_hash"]

UNJUDGED = np.uint8(255)
_SLOTS = 2**17  # a power of two
MAX_FORMS = 2**16
_BATCH = 2**16  # lines
_WORD = 8

# Constants of arithmetic on eight bytes at once: a word is eight bytes of a line.
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
_FROM_ZERO = np.uint64(0x5050505050505050)  # carries into the high bit of bytes from "0" on
_AFTER_NINE = np.uint64(0x4646464646464646)  # carries into that of bytes after "9"
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing
_EMPTY, _LOWEST, _SEVEN, _HALF = np.uint64(0), np.uint64(1), np.uint64(7), np.uint64(32)
_DIGIT_BITS = np.uint64(0x0F)
_BYTE, _WORD_BITS = np.uint64(8), np.uint64(64)
_ZERO, _NINE = np.uint64(ord("0")), np.uint64(ord("9"))
_NEWLINE = ord("\n")


class FormTable:
    """Forms of the lines that were met, how often each was, and the judgement on it.

    A hash of 64 bits stands for a form. A full table is emptied, so that its memory is bounded.

    Attributes
    ----------
    judgements : array of uint8
        Per slot; `UNJUDGED` at first.
    """

    def __init__(self) -> None:
        self._hashes: UInt64Array = np.zeros(_SLOTS, dtype=np.uint64)
        self._counts: UInt8Array = np.zeros(_SLOTS, dtype=np.uint8)
        self.judgements: UInt8Array = np.full(_SLOTS, UNJUDGED, dtype=np.uint8)
        self._state: Int64Array = np.zeros(4, dtype=np.int64)
        self._lines: Int64Array = np.empty((3, _BATCH), dtype=np.int64)

    def clear_if_full(self) -> None:
        """Forget all forms if there is no room for more."""
        if self._state[3] >= MAX_FORMS:
            self._hashes.fill(0)
            self._counts.fill(0)
            self.judgements.fill(UNJUDGED)
            self._state[3] = 0

    def read(self, text: bytes, start: int, repeats: int) -> tuple[int, Int64Array, BoolArray]:
        """Read lines until the text, the room for forms, or that for lines ends.

        Parameters
        ----------
        text : bytes
        start : int
            Where to begin: the start of a line.
        repeats : int
            A form that was met so often is due to be judged.

        Returns
        -------
        int
            Where to go on.
        array of int64
            Start, end and slot of each line whose judgement is not zero; one column a line.
        array of bool
            Which of these lines make their form due.
        """
        state = self._state
        state[:3] = start, 0, repeats
        letters, words = _views(text)
        tables = (self._hashes, self._counts, self.judgements)
        _read_lines(letters, words, *tables, self._lines, state)
        lines = self._lines[:, : state[1]].copy()
        is_due = lines[2] < 0
        lines[2, is_due] = -lines[2, is_due] - 1
        return int(state[0]), lines, is_due


@compiled
def _read_lines(
    letters: UInt8Array,
    words: UInt64Array,
    hashes: UInt64Array,
    counts: UInt8Array,
    judgements: UInt8Array,
    lines: Int64Array,
    state: Int64Array,
) -> None:
    """Read lines; `state` is the position, the number of lines, the repeats, that of forms."""
    position, selected, repeats, forms = state[0], state[1], state[2], state[3]
    mask = np.uint64(hashes.size - 1)
    while position < letters.size and selected < lines.shape[1] and forms < MAX_FORMS:
        end, form = _form_of_line(letters, words, position)
        form |= _LOWEST  # zero marks an empty slot
        slot = np.int64((form >> _HALF) & mask)
        while hashes[slot] != form and hashes[slot] != _EMPTY:
            slot = (slot + 1) & (hashes.size - 1)
        if hashes[slot] == _EMPTY:
            hashes[slot] = form
            forms += 1
        if judgements[slot] != 0:
            is_due = False
            if counts[slot] < repeats:
                counts[slot] += 1
                is_due = counts[slot] == repeats
            lines[0, selected] = position
            lines[1, selected] = end
            lines[2, selected] = -slot - 1 if is_due else slot
            selected += 1
        position = end + 1
    state[0], state[1], state[3] = position, selected, forms


@compiled
def _form_of_line(letters: UInt8Array, words: UInt64Array, start: int) -> tuple[int, np.uint64]:
    """Return the end of a line and the hash of its form."""
    form, position = _EMPTY, start
    while position < words.size:
        word = words[position]
        zeros = word ^ _NEWLINES
        newlines = (zeros - _ONES) & ~zeros & _HIGH  # the lowest bit is that of the first newline
        low = word & _LOW
        digits = (low + _FROM_ZERO) & ~(low + _AFTER_NINE) & ~word & _HIGH
        word &= ~((digits >> _SEVEN) * _DIGIT_BITS)
        if newlines == _EMPTY:
            form = mixed_hash(form, word)
            position += _WORD
            continue
        first = (newlines & (~newlines + _LOWEST)) >> _SEVEN
        form = mixed_hash(form, word & (first - _LOWEST))
        while first > _LOWEST:
            first >>= _BYTE
            position += 1
        return position, mixed_hash(form, np.uint64(position - start))
    word, shift = _EMPTY, _EMPTY  # the last bytes of the text, as if it went on
    while position < letters.size and letters[position] != _NEWLINE:
        letter = np.uint64(letters[position])
        word |= (_ZERO if _ZERO <= letter <= _NINE else letter) << shift
        shift += _BYTE
        if shift == _WORD_BITS:
            form = mixed_hash(form, word)
            word, shift = _EMPTY, _EMPTY
        position += 1
    return position, mixed_hash(mixed_hash(form, word), np.uint64(position - start))


@compiled
def mixed_hash(before: np.uint64, word: np.uint64) -> np.uint64:
    """Return the hash of a word after others; equal only for equal words after equal ones."""
    mixed = (before ^ word ^ _HIGH) * _FACTOR
    return mixed ^ (mixed >> _HALF)


def forms_of_lines(text: bytes) -> tuple[Int64Array, Int64Array, UInt64Array]:
    """Return the starts and ends of the lines of a text, and a hash for the form of each."""
    most = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    starts, ends = np.empty(most, np.int64), np.empty(most, np.int64)
    forms = np.empty(most, np.uint64)
    _fill_forms(*_views(text), starts, ends, forms)
    return starts, ends, forms


def _views(text: bytes) -> tuple[UInt8Array, UInt64Array]:
    """Return a text as bytes, and as the eight bytes from each of its bytes on."""
    words = np.ndarray((max(len(text) - _WORD + 1, 0),), "<u8", text, strides=(1,))
    return np.frombuffer(text, dtype=np.uint8), words


@compiled
def _fill_forms(
    letters: UInt8Array,
    words: UInt64Array,
    starts: Int64Array,
    ends: Int64Array,
    forms: UInt64Array,
) -> None:
    position = 0
    for number in range(starts.size):
        starts[number] = position
        end, form = _form_of_line(letters, words, position)
        ends[number] = end
        forms[number] = form
        position = end + 1
