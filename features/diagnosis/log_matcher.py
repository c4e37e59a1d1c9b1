"""Searches logs for all patterns at once, in time linear in their length."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import re2

from forewarn.features.diagnosis.log_pattern import (
    MAX_MATCHER_BYTES,
    LogPattern,
    PatternError,
    compile_pattern,
    expression_bytes,
    re2_options,
)

__all__ = ["LogMatcher", "MatchedLine", "find_matching_lines"]

_SENTINEL = "the automaton of all patterns works"


class MatchedLine(NamedTuple):
    """A line of a text that a pattern fits.

    Attributes
    ----------
    start, end : int
        Bytes of the line in the text; the newline is left out.
    pattern : LogPattern
    """

    start: int
    end: int
    pattern: LogPattern


class LogMatcher:
    r"""All patterns as one automaton, which is asked first; most text fits none and is done then.

    Parameters
    ----------
    patterns : sequence of LogPattern
        Of several that fit a line, the first one counts.

    Raises
    ------
    PatternError
        If an expression is none of RE2, or all together are too large.

    Examples
    --------
    >>> full = LogPattern("full", "No space left", "root", "storage", "error", "full", "delete")
    >>> [(m.start, m.pattern.id) for m in LogMatcher([full]).lines(b"a\nOSError: No space left\n")]
    [(2, 'full')]
    """

    def __init__(self, patterns: Sequence[LogPattern]) -> None:
        self.patterns = tuple(patterns)
        self._single = [compile_pattern(pattern.expression) for pattern in self.patterns]
        self._all = re2.Set.SearchSet(re2_options(MAX_MATCHER_BYTES))
        for expression in (*(pattern.expression for pattern in self.patterns), _SENTINEL):
            self._all.Add(expression_bytes(expression))
        self._all.Compile()
        if not self._all.Match(_SENTINEL.encode()):  # it says nothing when it has no room
            raise PatternError("are too many or too large to be searched for together")

    def first(self, line: bytes) -> LogPattern | None:
        """Return what a line is, None if no pattern fits it."""
        numbers = self._numbers(line)
        return self.patterns[min(numbers)] if numbers else None

    def lines(self, text: bytes, without: Container[str] = ()) -> Iterator[MatchedLine]:
        """Yield the lines that fit a pattern, in order, each with the first pattern that does.

        Parameters
        ----------
        text : bytes
            Whole lines.
        without : container of str
            Ids that are not looked for: where many lines fit a pattern, each one costs.
        """
        spans: dict[int, MatchedLine] = {}
        for number in sorted(self._numbers(text)):
            pattern = self.patterns[number]
            if pattern.id not in without:
                for start, end in find_matching_lines(self._single[number], text):
                    spans.setdefault(start, MatchedLine(start, end, pattern))
        yield from (spans[start] for start in sorted(spans))

    def _numbers(self, text: bytes) -> list[int]:
        last = len(self.patterns)
        return [number for number in self._all.Match(text) or [] if number != last]


def find_matching_lines(regular: re2._Regexp, text: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each line in which an expression is found."""
    position = 0
    while match := regular.search(text, position):
        start = text.rfind(b"\n", 0, match.start()) + 1
        end = text.find(b"\n", match.end())
        end = len(text) if end < 0 else end
        yield start, end
        position = end + 1
        if position > len(text):
            return
