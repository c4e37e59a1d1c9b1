"""Search of logs for many patterns at once, in time linear in the length of the text."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import re2

from forewarn.features.diagnosis.log_lines.any_digits import any_digits
from forewarn.features.diagnosis.log_lines.line_selection import JoinedLines
from forewarn.features.diagnosis.log_lines.log_pattern import (
    MAX_MATCHER_BYTES,
    LogPattern,
    PatternError,
    compile_pattern,
    expression_bytes,
    re2_options,
)

__all__ = ["LogMatcher", "MatchedLine", "find_matching_lines"]

_SENTINEL = "sentinel of the combined automaton"
_ERROR = (
    "[Ee]rror|ERROR|[Ee]xception|[Ff]atal|FATAL|CRITICAL|[Ff]ail(?:ed|ure)|FAIL(?:ED|URE)|[Pp]anic"
    r"|[Aa]bort|\b[Ff]ault\b|[Tt]imed out"
)


class MatchedLine(NamedTuple):
    """A line that a pattern matches.

    Attributes
    ----------
    start, end : int
        Byte offsets of the line in the text, without the newline.
    pattern : LogPattern
    """

    start: int
    end: int
    pattern: LogPattern


class LogMatcher:
    r"""A set of patterns compiled into one automaton.

    The automaton is tried first: most text matches no pattern and needs no further work.

    Parameters
    ----------
    patterns : sequence of LogPattern
        If several patterns match a line, the first one counts.

    Raises
    ------
    PatternError
        If an expression is not valid in RE2, or all expressions together are too large.

    Examples
    --------
    >>> full = LogPattern("full", "No space left", "root", "storage", "error", "full", "delete")
    >>> [(m.start, m.pattern.id) for m in LogMatcher([full]).lines(b"a\nOSError: No space left\n")]
    [(2, 'full')]
    """

    def __init__(self, patterns: Sequence[LogPattern]) -> None:
        self.patterns = tuple(patterns)
        self._single = [compile_pattern(pattern.expression) for pattern in self.patterns]
        self._error = compile_pattern(_ERROR)
        expressions = [pattern.expression for pattern in self.patterns]
        self._all = _compile_set(expressions)
        self._any_digits = _compile_set([any_digits(each) for each in (*expressions, _ERROR)])

    def first(self, line: bytes) -> LogPattern | None:
        """Return the first pattern that matches a line, or None."""
        numbers = self._numbers(line)
        return self.patterns[min(numbers)] if numbers else None

    def could_match(self, line: bytes) -> bool:
        """Return whether a line, given with zeros for digits, could match with some digits."""
        return bool(self._any_digits.Match(line))

    def lines(
        self, text: bytes | JoinedLines, without: Container[str] = ()
    ) -> Iterator[MatchedLine]:
        """Yield the lines that match a pattern, in order, each with its first matching pattern.

        Parameters
        ----------
        text : bytes or JoinedLines
            Whole lines. Offsets are those of the original text.
        without : container of str
            Ids of patterns to skip. Patterns that match many lines cost the most time.
        """
        selection = text if isinstance(text, JoinedLines) else JoinedLines.whole(text)
        spans: dict[int, MatchedLine] = {}
        for number in sorted(self._numbers(selection.text)):
            pattern = self.patterns[number]
            if pattern.id not in without:
                for start, end in find_matching_lines(self._single[number], selection):
                    spans.setdefault(start, MatchedLine(start, end, pattern))
        yield from (spans[start] for start in sorted(spans))

    def error_lines(self, lines: JoinedLines) -> Iterator[tuple[int, int]]:
        """Yield the start and end offsets of each line that has a word for an error."""
        yield from find_matching_lines(self._error, lines)

    def _numbers(self, text: bytes) -> list[int]:
        last = len(self.patterns)
        return [number for number in self._all.Match(text) or [] if number != last]


def _compile_set(expressions: Sequence[str]) -> re2.Set:
    """Return an automaton of expressions, the last of which is a sentinel."""
    combined = re2.Set.SearchSet(re2_options(MAX_MATCHER_BYTES))
    for expression in (*expressions, _SENTINEL):
        combined.Add(expression_bytes(expression))
    combined.Compile()
    if not combined.Match(_SENTINEL.encode()):  # RE2 exceeds its memory silently
        raise PatternError("are too many or too large for one automaton")
    return combined


def find_matching_lines(regular: re2._Regexp, lines: JoinedLines) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each line that matches; offsets are those of the original text."""
    text, position = lines.text, 0
    while match := regular.search(text, position):
        start = text.rfind(b"\n", 0, match.start()) + 1
        end = text.find(b"\n", match.end())
        end = len(text) if end < 0 else end
        original = lines.original_offset(start)
        yield original, original + end - start
        position = end + 1
        if position > len(text):
            return
