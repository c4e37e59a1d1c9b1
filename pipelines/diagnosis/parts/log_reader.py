"""Scan of the streams of a job's logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from forewarn.features.diagnosis.error_report import ErrorReport, parse_dlrover_errors, parse_error
from forewarn.features.diagnosis.log_lines.launcher_reports import (
    LaunchReport,
    may_report_exit,
    parse_launcher_reports,
)
from forewarn.features.diagnosis.log_lines.line_selection import (
    LinePurpose,
    LineSelection,
    LineSelector,
)
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_scan import LogScan
from forewarn.features.diagnosis.log_lines.log_timestamp import (
    lacks_year,
    last_timestamp,
    parse_line_timestamp,
)
from forewarn.features.diagnosis.log_lines.progress_lines import (
    ProgressForm,
    ends_with_last_step,
    learn_progress,
)
from forewarn.features.diagnosis.log_lines.python_exceptions import CPP_EXCEPTION, TRACEBACK
from forewarn.features.diagnosis.log_streams.container_logs import has_envelope
from forewarn.features.diagnosis.log_streams.file_numbers import is_worker_error
from forewarn.features.diagnosis.log_streams.heard_facts import may_state_fact
from forewarn.features.diagnosis.log_streams.job_streams import LogStream
from forewarn.features.diagnosis.log_streams.line_prefixes import (
    clean_text,
    has_hint,
    may_have_label,
)
from forewarn.features.diagnosis.log_streams.line_sources import Source
from forewarn.pipelines.diagnosis.parts.log_files import read_end

__all__ = [
    "DlroverReport",
    "LogContent",
    "ScannedLog",
    "line_selector",
    "newest_time",
    "read_content",
]

_CHUNK_BYTES = 2**18
_MAX_LINE_BYTES = 2**20
_TAIL_BYTES = 2**16
_MAX_ERROR_BYTES = 2**22
_REPORT_MARKS = (TRACEBACK, CPP_EXCEPTION, b" fails: {")  # the last one is DLRover's


@dataclass(frozen=True, slots=True)
class DlroverReport:
    """Report of a failed process by DLRover's master.

    Attributes
    ----------
    rank : int
    error : ErrorReport
    time : int or None
        Time of the line, in nanoseconds since 1970 UTC.
    """

    rank: int
    error: ErrorReport
    time: int | None


@dataclass(slots=True)
class LogContent:
    """What was read in the text of a stream.

    Attributes
    ----------
    scan : LogScan or None
        None for an error file.
    error : ErrorReport or None
    master : list of DlroverReport
    launches : list of LaunchReport
        Ends of processes as a launcher reports them.
    blind : str
        Reason why the stream cannot be used; empty if it can.
    """

    scan: LogScan | None = None
    error: ErrorReport | None = None
    master: list[DlroverReport] = field(default_factory=list)
    launches: list[LaunchReport] = field(default_factory=list)
    blind: str = ""


@dataclass(slots=True, kw_only=True)
class ScannedLog(LogContent):
    """A scanned stream of the logs.

    Attributes
    ----------
    stream : LogStream
        Without its text.
    """

    stream: LogStream

    @classmethod
    def of_stream(cls, stream: LogStream, content: LogContent) -> ScannedLog:
        """Return the content of a stream."""
        values = {each.name: getattr(content, each.name) for each in fields(content)}
        return cls(stream=stream, **values)

    @property
    def is_done(self) -> bool:
        """Whether the last step in it is the last one planned."""
        return self.scan is not None and ends_with_last_step(self.scan.tail)

    def without_ended(self, step: int | None) -> ScannedLog:
        """Return the log without the failures that the job has survived.

        Parameters
        ----------
        step : int or None
            Time of the last step of any rank, in nanoseconds since 1970 UTC. A failure before a
            restart in the same log, which a step followed, belongs to an attempt that is over.
        """
        if self.scan is None or step is None:
            return self
        over = max((t for t in self.scan.starts if t is not None and t < step), default=-1)
        launches = [each for each in self.launches if each.time is None or each.time > over]
        master = [each for each in self.master if each.time is None or each.time > over]
        return replace(self, launches=launches, master=master)

    @property
    def rank(self) -> int | None:
        """Rank that wrote it; None for a machine or a launcher, or if the rank is unknown."""
        return self.stream.rank


def line_selector(matcher: LogMatcher) -> LineSelector:
    """Return a selector of the lines that the readers of logs use."""

    def could_serve(line: bytes) -> LinePurpose:
        purposes = LinePurpose.PATTERN if matcher.could_match(line) else LinePurpose(0)
        if may_state_fact(line):
            purposes |= LinePurpose.FACT
        if may_report_exit(line) or any(mark in line for mark in _REPORT_MARKS):
            purposes |= LinePurpose.REPORT
        if has_envelope(line):
            purposes |= LinePurpose.ENVELOPE
        if has_hint(line):
            purposes |= LinePurpose.HINT
        if may_have_label(line):
            purposes |= LinePurpose.LABEL
        return purposes

    return LineSelector(could_serve)


def _last_time_with_year(name: str, end: bytes) -> int | None:
    """Return the last time with a year at the end of a file, used for lines without years."""
    if is_worker_error(name):
        error = parse_error(end.decode("utf-8", "replace"))
        return None if error is None else error.time
    return last_timestamp(clean_text(end), None, most_lines=2_000)


def newest_time(files: Iterable[tuple[str, Path]]) -> int | None:
    """Return the latest of these times of some logs, given by name and path; None without any."""
    ends = (_last_time_with_year(name, read_end(path)) for name, path in files)
    return max((time for time in ends if time is not None), default=None)


def read_content(
    source: Source,
    selection: LineSelection,
    matcher: LogMatcher,
    before: int | None,
    known: Sequence[ProgressForm] = (),
    *,
    zone: dt.tzinfo = dt.UTC,
) -> LogContent:
    """Scan the text of a source.

    Parameters
    ----------
    source : Source
    selection : LineSelection
        The lines of its text that `line_selector` selects.
    matcher : LogMatcher
    before : int or None
        Determines the year of timestamps without one.
    known : sequence of ProgressForm
        Forms of progress lines in other logs of the job, which are tried first.
    zone : datetime.tzinfo
        Zone of timestamps that state none.
    """
    text, result = source.text, LogContent()
    if is_worker_error(source.name):
        result.error = parse_error(text[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))
        result.blind = "" if result.error else "truncated, or not a worker error"
        return result
    tail = text[-_TAIL_BYTES:]
    form = next((form for form in known if form.last(tail) is not None), None)
    scan = LogScan(matcher, before, form or learn_progress(text), zone)
    for start, end in _chunks(text):
        lines = selection.joined(LinePurpose.PATTERN, text, start, end)
        scan.feed(text[start:end], lines, is_last=end == len(text))
    reports = selection.joined(LinePurpose.REPORT, text)
    scan.add_exceptions(text, reports)
    result.scan = scan
    result.launches = parse_launcher_reports(text, before, zone=zone, lines=reports)
    result.master = list(_dlrover_reports(reports.text, before, zone))
    if scan.size and scan.last is None:
        undated = any(lacks_year(line) for line in scan.tail.splitlines())
        result.blind = "timestamps without a year" if undated else "no timestamps"
    return result


def _chunks(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield spans that end at a newline; a line that is too long is split anywhere."""
    start = 0
    while start < len(text):
        end = len(text)
        if end - start > _CHUNK_BYTES:
            end = text.rfind(b"\n", start, start + _CHUNK_BYTES) + 1
            if end <= start:
                end = text.find(b"\n", start, start + _MAX_LINE_BYTES) + 1
            end = end if end > start else min(start + _MAX_LINE_BYTES, len(text))
        yield start, end
        start = end


def _dlrover_reports(text: bytes, before: int | None, zone: dt.tzinfo) -> Iterator[DlroverReport]:
    for line in text.splitlines():
        for rank, error in parse_dlrover_errors(line):
            yield DlroverReport(rank, error, parse_line_timestamp(line, before, zone=zone))
