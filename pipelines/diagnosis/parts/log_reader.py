"""Scan of the streams of a job's logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from forewarn.features.diagnosis.error_report import ErrorReport, parse_dlrover_errors, parse_error
from forewarn.features.diagnosis.log_lines.launcher_reports import (
    LaunchReport,
    parse_launcher_reports,
)
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_scan import LogScan
from forewarn.features.diagnosis.log_lines.log_timestamp import (
    lacks_year,
    last_timestamp,
    parse_line_timestamp,
)
from forewarn.features.diagnosis.log_lines.progress_lines import ProgressForm, learn_progress
from forewarn.features.diagnosis.log_streams.job_streams import LogStream

__all__ = ["DlroverReport", "ScannedLog", "last_timestamp_with_year", "scan_stream"]

_CHUNK_BYTES = 2**18
_MAX_LINE_BYTES = 2**20
_TAIL_BYTES = 2**16
_MAX_ERROR_BYTES = 2**22
_MASTER_MARK = b" fails: {"


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
class ScannedLog:
    """A scanned stream of the logs.

    Attributes
    ----------
    stream : LogStream
        Without its text.
    scan : LogScan or None
        None for an error file.
    error : ErrorReport or None
    master : list of DlroverReport
    launches : list of LaunchReport
        Ends of processes as a launcher reports them.
    blind : str
        Reason why the stream cannot be used; empty if it can.
    """

    stream: LogStream
    scan: LogScan | None = None
    error: ErrorReport | None = None
    master: list[DlroverReport] = field(default_factory=list)
    launches: list[LaunchReport] = field(default_factory=list)
    blind: str = ""

    @property
    def rank(self) -> int | None:
        """Rank that wrote it; None for a machine or a launcher, or if the rank is unknown."""
        return self.stream.rank


def last_timestamp_with_year(streams: Iterable[LogStream]) -> int | None:
    """Return the latest time with a year at the end of any log, used for logs without years."""
    times = [_time_of_end(stream) for stream in streams]
    return max((time for time in times if time is not None), default=None)


def _time_of_end(stream: LogStream) -> int | None:
    if stream.is_error:
        error = parse_error(stream.text[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))
        return None if error is None else error.time
    return last_timestamp(stream.text[-_TAIL_BYTES:], None, most_lines=2_000)


def scan_stream(
    stream: LogStream,
    matcher: LogMatcher,
    before: int | None,
    known: Sequence[ProgressForm] = (),
    *,
    zone: dt.tzinfo = dt.UTC,
) -> ScannedLog:
    """Scan the text of a stream.

    Parameters
    ----------
    stream : LogStream
    matcher : LogMatcher
    before : int or None
        Determines the year of timestamps without one.
    known : sequence of ProgressForm
        Forms of progress lines in other logs of the job, which are tried first.
    zone : datetime.tzinfo
        Zone of timestamps that state none.
    """
    result = ScannedLog(replace(stream, text=b""))
    if stream.is_error:
        result.error = parse_error(stream.text[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))
        result.blind = "" if result.error else "truncated, or not a worker error"
        return result
    text = stream.text
    tail = text[-_TAIL_BYTES:]
    form = next((form for form in known if form.last(tail) is not None), None)
    scan = LogScan(matcher, before, form or learn_progress(text), zone)
    for start, end in _chunks(text):
        scan.feed(text[start:end], is_last=end == len(text))
    scan.add_exceptions(text)
    result.scan = scan
    result.launches = parse_launcher_reports(text, before, zone=zone)
    if _MASTER_MARK in text:
        result.master = list(_dlrover_reports(text, before, zone))
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
