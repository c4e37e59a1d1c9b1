"""Selects the lines of a job's logs that are worth reading; all others repeat dull ones.

A reader of lines has a purpose, and tells whether a line could serve it with any digits. Each form
of lines is judged once for all purposes when it has recurred. Afterwards its lines cost no more
than their bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag

import numpy as np

from forewarn.features.array_types import Int64Array, UInt8Array
from forewarn.features.diagnosis.log_lines.any_digits import zero_digits
from forewarn.features.diagnosis.log_lines.line_forms import UNJUDGED, FormTable

__all__ = ["JoinedLines", "LinePurpose", "LineSelection", "LineSelector"]

_MIN_REPEATS = 16  # until a form is judged
_MAX_JUDGED = 2**14  # forms; the others are always selected


class LinePurpose(IntFlag):
    """What a line is read for."""

    PATTERN = 1  # known and unknown errors
    FACT = 2  # ranks, machines and addresses
    REPORT = 4  # ends of processes
    HINT = 8  # prefixes of launchers
    LABEL = 16  # prefixes that count if they recur
    ENVELOPE = 32  # envelopes of container runtimes


_ALL = int(~LinePurpose(0))


@dataclass(frozen=True, slots=True)
class JoinedLines:
    """Some lines of a text, joined by newlines.

    Attributes
    ----------
    text : bytes
    starts, original : sequence of int
        Where each run of lines starts in this text, and where in the original one.
    """

    text: bytes
    starts: Sequence[int]
    original: Sequence[int]

    @classmethod
    def whole(cls, text: bytes) -> JoinedLines:
        """Return all lines of a text."""
        return cls(text, (0,), (0,))

    def part_before(self, original: int) -> bytes:
        """Return the lines before an offset in the original text."""
        number = bisect_right(self.original, original) - 1
        return self.text[: self.starts[number] + original - self.original[number]]

    def original_offset(self, offset: int) -> int:
        """Return the offset in the original text of an offset in this text."""
        number = bisect_right(self.starts, offset) - 1
        return self.original[number] + offset - self.starts[number]


_NO_LINES = JoinedLines.whole(b"")


@dataclass(frozen=True, slots=True)
class LineSelection:
    """The lines of a text that are worth reading.

    Attributes
    ----------
    starts, ends : array of int64
        Offsets of the lines, without the newlines.
    purposes : array of uint8
        What each line is worth reading for.
    present : LinePurpose
        What any line is worth reading for.
    """

    starts: Int64Array
    ends: Int64Array
    purposes: UInt8Array
    present: LinePurpose = field(init=False)

    def __post_init__(self) -> None:
        """Note the purposes, because most texts have no line for most of them."""
        present = LinePurpose(int(np.bitwise_or.reduce(self.purposes, initial=0)) & _ALL)
        object.__setattr__(self, "present", present)

    def count(self, purpose: LinePurpose) -> int:
        """Return the number of lines for a purpose."""
        if not self.present & purpose:
            return 0
        return int(np.count_nonzero(self.purposes & np.uint8(purpose)))

    def joined(
        self, purpose: LinePurpose, text: bytes, begin: int = 0, stop: int | None = None
    ) -> JoinedLines:
        """Return the lines for a purpose in a part of the text; offsets count from `begin`."""
        if not self.present & purpose:
            return _NO_LINES
        stop = len(text) if stop is None else stop
        first = int(np.searchsorted(self.ends, begin, "left"))
        last = int(np.searchsorted(self.starts, stop, "left"))
        chosen = first + np.flatnonzero(self.purposes[first:last] & np.uint8(purpose))
        lines = zip(self.starts[chosen].tolist(), self.ends[chosen].tolist(), strict=True)
        return _joined(text, begin, stop, lines)


def _joined(text: bytes, begin: int, stop: int, lines: Iterable[tuple[int, int]]) -> JoinedLines:
    """Return lines of a part of a text, where those that follow each other are one run."""
    parts: list[bytes] = []
    starts: list[int] = []
    original: list[int] = []
    size, run, run_end = 0, -1, -2
    for start, end in (*lines, (-1, -1)):  # the last one ends the last run
        if start == run_end + 1:
            run_end = end
            continue
        if run >= 0:
            parts.append(text[max(run, begin) : min(run_end, stop)])
            starts.append(size)
            original.append(max(run - begin, 0))
            size += len(parts[-1]) + 1
        run, run_end = start, end
    return JoinedLines(b"\n".join(parts), starts, original) if parts else _NO_LINES


class LineSelector:
    """Selection of lines by forms that are learned from all texts of a job.

    Parameters
    ----------
    could_serve : callable
        Purposes that a line could serve, given with each digit replaced by a zero. It has to
        include those that the line serves with any other digits.
    """

    def __init__(self, could_serve: Callable[[bytes], LinePurpose]) -> None:
        self._could_serve = could_serve
        self._forms = FormTable()
        self._judged = 0

    def select(self, text: bytes) -> LineSelection:
        """Return the lines of a text that are worth reading, in order."""
        parts, position = [], 0
        while position < len(text):
            self._forms.clear_if_full()
            position, lines, is_due = self._forms.read(text, position, _MIN_REPEATS)
            for start, end, slot in lines[:, is_due].T.tolist():
                self._judge(text[start:end], slot)
            purposes = self._forms.judgements[lines[2]]
            is_kept = purposes != 0
            parts.append((lines[0, is_kept], lines[1, is_kept], purposes[is_kept]))
        if len(parts) == 1:  # most texts
            return LineSelection(*parts[0])
        starts = [np.zeros(0, np.int64), *(part[0] for part in parts)]
        ends = [np.zeros(0, np.int64), *(part[1] for part in parts)]
        purposes = [np.zeros(0, np.uint8), *(part[2] for part in parts)]
        return LineSelection(*(np.concatenate(each) for each in (starts, ends, purposes)))

    def _judge(self, line: bytes, slot: int) -> None:
        if self._judged < _MAX_JUDGED and self._forms.judgements[slot] == UNJUDGED:
            self._judged += 1
            self._forms.judgements[slot] = self._could_serve(zero_digits(line))
