"""Single-pass scan of a job log: times, matched patterns, steps, and unknown errors."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from forewarn.features.diagnosis.log_lines.line_harm import states_error
from forewarn.features.diagnosis.log_lines.line_selection import JoinedLines
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_pattern import LogPattern
from forewarn.features.diagnosis.log_lines.log_template import log_template
from forewarn.features.diagnosis.log_lines.log_timestamp import last_timestamp, parse_line_timestamp
from forewarn.features.diagnosis.log_lines.progress_lines import ProgressForm
from forewarn.features.diagnosis.log_lines.python_exceptions import (
    cpp_exceptions,
    cut_trace,
    is_raised_in_wait,
    traceback_ends,
)
from forewarn.features.diagnosis.log_lines.time_marks import TimeMarks
from forewarn.features.telemetry.parsers.log_line import read_line
from forewarn.features.telemetry.parsers.log_time import HostClock

__all__ = [
    "CUT_EXCEPTION",
    "UNKNOWN_ERRORS",
    "UNKNOWN_EXCEPTION",
    "LogHit",
    "LogScan",
    "LoggedStep",
    "UnknownError",
]

UNKNOWN_EXCEPTION: Final = LogPattern(
    id="exception",
    expression="Traceback",
    role="root",
    scope="application",
    level="error",
    says="an exception that is not in the knowledge base",
    next="check its stack trace",
)
_WAITING_EXCEPTION: Final = replace(
    UNKNOWN_EXCEPTION, role="cascade", says="an exception in a call that waits for other ranks"
)
CUT_EXCEPTION: Final = replace(
    UNKNOWN_EXCEPTION, id="cut-exception", says="an exception whose stack trace breaks off"
)
UNKNOWN_ERRORS: Final = (UNKNOWN_EXCEPTION.id, "python-exception")
"""Patterns of exceptions of any kind."""

_MAX_LINE_CHARS = 500
_MAX_MESSAGE_CHARS = 1_000
_RULE = re.compile(rb"\W*[-=*_]{10,}\s*")  # above and below a message
_MAX_HITS_PER_PATTERN = 20  # per pattern and attempt; more lines cost time and add no information
_MAX_HITS = 5_000
_MAX_UNKNOWN_TEMPLATES = 200
_MAX_UNKNOWN_LINES = 2_000
_MAX_EXAMINED_LINES = 50_000
_MAX_STEPS = 100
_STEPS_BYTES = 2**12  # before the last step
_MAX_STEPS_PER_CHUNK = 20
_TAIL_BYTES = 4_096
_MAX_PHASE_LINES = 400  # the last ones are kept
_NO_PROGRESS = ProgressForm()
_CONTEXT_BYTES = 2**16  # searched for the time of a line without one


@dataclass(frozen=True, slots=True)
class LogHit:
    """A line that matches a pattern.

    Attributes
    ----------
    pattern : LogPattern
    time : int or None
        Timestamp of the line or of the nearest earlier line, in nanoseconds since 1970 UTC.
    line : str
        Truncated to 500 characters.
    offset : int
        Bytes from the start of the log.
    attempt : int
        Attempt number, counted from 0; a line that starts an attempt increments it.
    message : str
        The line and those that continue it, joined: the rest of a message between two rules, or the
        next line after a colon.
    """

    pattern: LogPattern
    time: int | None
    line: str
    offset: int
    attempt: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class UnknownError:
    """A line of the level ERROR, or an exception, that matches no pattern.

    Attributes
    ----------
    line : str
    time : int or None
        Nanoseconds since 1970 UTC.
    offset : int
        Bytes from the start of the log.
    """

    line: str
    time: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """A line that says how far the training has come.

    Attributes
    ----------
    number : int
    time : int or None
        Nanoseconds since 1970 UTC.
    offset : int
        Bytes from the start of the log.
    """

    number: int
    time: int | None
    offset: int


@dataclass(slots=True)
class LogScan:
    """Results of scanning one log, in bounded memory.

    Parameters
    ----------
    matcher : LogMatcher
    before : int or None
        Determines the year of timestamps without one, as in `parse_line_timestamp`.
    progress : ProgressForm
        The job's own lines of progress.
    zone : datetime.tzinfo
        Zone of timestamps that state none.

    Attributes
    ----------
    hits : list of LogHit
        In order; at most 20 per pattern and attempt.
    times : TimeMarks
        When the log was written.
    starts : list of int or None
        Time of the line that starts each attempt after the first.
    unknown : Counter of str
        Templates of lines that look like errors and match no pattern.
    last_unknown : UnknownError or None
        The last of them that has the level ERROR or is an exception.
    phases : deque of LogHit
        The last lines that begin or end a quiet phase.
    first_steps : list of (int, int)
        Attempt number and time of the first step of each attempt.
    steps : deque of LoggedStep
        The last steps of each chunk.
    size : int
        Bytes read.
    tail : bytes
        The last 4 KiB.
    """

    matcher: LogMatcher
    before: int | None = None
    progress: ProgressForm = _NO_PROGRESS
    zone: dt.tzinfo = dt.UTC
    hits: list[LogHit] = field(default_factory=list)
    times: TimeMarks = field(init=False)
    starts: list[int | None] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    last_unknown: UnknownError | None = None
    phases: deque[LogHit] = field(default_factory=lambda: deque(maxlen=_MAX_PHASE_LINES))
    first_steps: list[tuple[int, int]] = field(default_factory=list)
    steps: deque[LoggedStep] = field(default_factory=lambda: deque(maxlen=_MAX_STEPS))
    size: int = 0
    tail: bytes = b""
    _counts: Counter[str] = field(default_factory=Counter)
    _new_lines: int = 0
    _examined: int = 0
    _segments: list[tuple[int, int]] = field(default_factory=list)  # (attempt, start offset)
    _attempts: list[tuple[int, int]] = field(default_factory=list)  # the same, in the whole log

    def __post_init__(self) -> None:
        """Begin without times."""
        self.times = TimeMarks(self.before, self.zone)

    def feed(self, text: bytes, lines: JoinedLines | None = None, *, is_last: bool = False) -> None:
        """Scan the next chunk of the log, which must consist of whole lines.

        Lines of the last chunk are counted from zero: those before the end matter most.

        Parameters
        ----------
        text : bytes
        lines : JoinedLines, optional
            At least the lines that patterns or words for errors match; all by default.
        is_last : bool
        """
        lines = lines or JoinedLines.whole(text)
        if is_last:
            self._counts.clear()
        known = set[int]()
        self._segments = [(len(self.starts), 0)]
        exhausted = {name for name, count in self._counts.items() if count >= _MAX_HITS_PER_PATTERN}
        for start, end, pattern in self.matcher.lines(lines, without=exhausted):
            known.add(start)
            self._record_hit(text, start, end, pattern)
        self._record_unknown(text, lines, known)
        self.times.read(text)
        last = self.last_unknown
        if last is not None and last.offset >= self.size:
            time = self._time_of_line(text, last.offset - self.size)
            self.last_unknown = replace(last, time=time)
        self._record_first_steps(text)
        self._record_last_steps(text, is_last=is_last)
        self.size += len(text)
        self.tail = (self.tail + text[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def add_exceptions(self, text: bytes, lines: JoinedLines | None = None) -> None:
        """Add the ends of stack traces and of C++ programs that no pattern matched.

        Parameters
        ----------
        text : bytes
            The whole log.
        lines : JoinedLines, optional
            As in `traceback_ends`.
        """
        self._mark_waits(text)
        known = {hit.offset for hit in self.hits if hit.pattern.role != "confirmation"}
        ends = (*traceback_ends(text, lines), *cpp_exceptions(text, lines))
        for offset, line in ends:
            if offset in known:
                continue
            pattern = self.matcher.first(line)
            if pattern is None or pattern.role not in ("root", "cascade", "ended"):
                pattern = UNKNOWN_EXCEPTION
                pattern = _WAITING_EXCEPTION if is_raised_in_wait(text, offset) else pattern
            self._add_exception(text, offset, line, pattern)
        if (cut := cut_trace(text)) is not None:
            self._add_exception(text, *cut, CUT_EXCEPTION)
        self.hits.sort(key=lambda hit: hit.offset)

    def _add_exception(self, text: bytes, offset: int, line: bytes, pattern: LogPattern) -> None:
        shown = line[:_MAX_LINE_CHARS].decode("utf-8", "replace").strip()
        attempt = sum(1 for _, start in self._attempts if start <= offset)
        time = self._time_of_line(text, offset)
        self.hits.append(LogHit(pattern, time, shown, offset, attempt, shown))

    def _mark_waits(self, text: bytes) -> None:
        """Mark the exceptions of unknown meaning that calls raised which wait for other ranks."""
        for number, hit in enumerate(self.hits):
            if hit.pattern.id in UNKNOWN_ERRORS and is_raised_in_wait(text, hit.offset):
                self.hits[number] = replace(hit, pattern=_WAITING_EXCEPTION)

    @property
    def marks(self) -> list[int]:
        """Increasing line times, about 10 s apart, in nanoseconds since 1970 UTC."""
        return self.times.marks

    @property
    def last(self) -> int | None:
        """Latest time in the log."""
        return self.times.last

    def _record_hit(self, text: bytes, start: int, end: int, pattern: LogPattern) -> None:
        if self._counts[pattern.id] >= _MAX_HITS_PER_PATTERN or len(self.hits) >= _MAX_HITS:
            return
        line = text[start : min(end, start + _MAX_LINE_CHARS)].decode("utf-8", "replace").strip()
        if pattern.by_kernel and read_line(line, HostClock()).writer == "program":
            return
        time = self._time_of_line(text, start)
        if pattern.attempt:
            self.starts.append(time)
            self._segments.append((len(self.starts), end))
            self._attempts.append((len(self.starts), self.size + end))
            self._counts.clear()
        more = _continuation(text, start, end)
        message = " ".join([line, *more])[:_MAX_MESSAGE_CHARS]
        hit = LogHit(pattern, time, line, self.size + start, len(self.starts), message)
        if pattern.phase is not None:
            self.phases.append(hit)
            return
        self.hits.append(hit)
        self._counts[pattern.id] += 1

    def _record_unknown(self, text: bytes, lines: JoinedLines, known: set[int]) -> None:
        if self._new_lines >= _MAX_UNKNOWN_LINES or self._examined >= _MAX_EXAMINED_LINES:
            return
        for start, end in self.matcher.error_lines(lines):
            self._examined += 1
            if self._new_lines >= _MAX_UNKNOWN_LINES or self._examined >= _MAX_EXAMINED_LINES:
                return
            line = text[start:end]
            if start not in known and self.matcher.first(line) is None:
                self._new_lines += 1
                shown = line[:_MAX_LINE_CHARS].decode("utf-8", "replace").strip()
                if states_error(shown):
                    self.last_unknown = UnknownError(shown, None, self.size + start)
                masked = log_template(shown)
                if masked in self.unknown or len(self.unknown) < _MAX_UNKNOWN_TEMPLATES:
                    self.unknown[masked] += 1

    def _record_first_steps(self, text: bytes) -> None:
        """Record the first step of each attempt in a chunk."""
        ends = [start for _, start in self._segments[1:]] + [len(text)]
        for (attempt, start), end in zip(self._segments, ends, strict=True):
            if self.first_steps and self.first_steps[-1][0] >= attempt:
                continue
            step = self.progress.search(text, start, end)
            if step is not None:
                time = self._time_of_line(text, step.offset)
                if time is not None:
                    self.first_steps.append((attempt, time))

    def _record_last_steps(self, text: bytes, *, is_last: bool) -> None:
        """Record the last step of a chunk; of the last chunk several, which compare clocks."""
        last = self.progress.last(text)
        if last is None:
            return
        start = text.rfind(b"\n", 0, max(0, last.offset - _STEPS_BYTES)) + 1
        lines = self.progress.lines_up_to(last, text, start if is_last else last.offset)
        steps = list(islice(lines, _MAX_STEPS_PER_CHUNK))[::-1]
        times = self.times.times(text, [step.offset for step in steps])
        for step, time in zip(steps, times, strict=True):
            time = self._time_of_line(text, step.offset) if time is None else time
            self.steps.append(LoggedStep(step.number, time, self.size + step.offset))

    def _time_of_line(self, text: bytes, offset: int) -> int | None:
        """Return the time of a line, or of the nearest earlier line with one."""
        end = text.find(b"\n", offset)
        end = len(text) if end < 0 else end
        line = text[text.rfind(b"\n", 0, offset) + 1 : end]
        time = parse_line_timestamp(line, self.before, zone=self.zone)
        if time is not None:
            return time
        block = text[max(0, end - _CONTEXT_BYTES) : end]
        time = last_timestamp(block, self.before, zone=self.zone)
        return self.last if time is None else time


def _continuation(text: bytes, start: int, end: int) -> list[str]:
    """Return the lines that continue a line: up to a rule below, or the next after a colon."""
    lines = text[end + 1 : end + 1 + _MAX_MESSAGE_CHARS].split(b"\n")
    above = text[max(0, start - _MAX_MESSAGE_CHARS) : start].split(b"\n")
    stop = next((n for n, line in enumerate(lines) if _RULE.fullmatch(line)), 0)
    if not stop or not any(_RULE.fullmatch(line) for line in above):
        is_open = text[start:end].rstrip().endswith(b":")
        stop = next((n + 1 for n, line in enumerate(lines) if is_open and line.strip()), 0)
    return [shown for line in lines[:stop] if (shown := line.decode("utf-8", "replace").strip())]
