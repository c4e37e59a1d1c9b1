"""Reader for the logs of a job, in chunks and bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.features.diagnosis.error_report import ErrorReport, parse_dlrover_errors, parse_error
from forewarn.features.diagnosis.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_scan import LogScan
from forewarn.features.diagnosis.log_timestamp import (
    lacks_year,
    last_timestamp,
    parse_line_timestamp,
)
from forewarn.pipelines.diagnosis.parts.log_files import JobLogFile

__all__ = ["DlroverReport", "ScannedLog", "last_timestamp_with_year", "read_log"]

_CHUNK_BYTES = 2**18
_MAX_LINE_BYTES = 2**20
_TAIL_BYTES = 2**16
_HEAD_BYTES = 2**14
_MAX_BINARY_SHARE = 0.05  # of bytes that do not occur in text
_MAX_ERROR_BYTES = 2**22
_BINARY_BYTES = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
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
    """A scanned file of the part `logs`.

    Attributes
    ----------
    file : JobLogFile
    scan : LogScan or None
        None for an error file or a binary file.
    error : ErrorReport or None
    master : list of DlroverReport
    blind : str
        Reason why the file cannot be used; empty if it can.
    """

    file: JobLogFile
    scan: LogScan | None = None
    error: ErrorReport | None = None
    master: list[DlroverReport] = field(default_factory=list)
    blind: str = ""


def last_timestamp_with_year(files: Iterable[JobLogFile]) -> int | None:
    """Return the latest time with a year at the end of any file, used for files without years."""
    times = [_time_of_end(file) for file in files]
    return max((time for time in times if time is not None), default=None)


def _time_of_end(file: JobLogFile) -> int | None:
    try:
        if file.is_error:
            error = _read_error(file.path)
            return None if error is None else error.time
        with file.path.open("rb") as stream:
            stream.seek(max(0, file.path.stat().st_size - _TAIL_BYTES))
            return last_timestamp(stream.read(_TAIL_BYTES), None, most_lines=2_000)
    except OSError:
        return None


def _read_error(path: Path) -> ErrorReport | None:
    if path.stat().st_size > _MAX_ERROR_BYTES:
        return None
    return parse_error(path.read_bytes().decode("utf-8", "replace"))


def read_log(file: JobLogFile, matcher: LogMatcher, before: int | None) -> ScannedLog:
    """Read a file; an unreadable file is blind.

    Parameters
    ----------
    file : JobLogFile
    matcher : LogMatcher
    before : int or None
        Determines the year of timestamps without one.
    """
    result = ScannedLog(file)
    try:
        if file.is_error:
            result.error = _read_error(file.path)
            result.blind = "" if result.error else "truncated, or not a worker error"
        else:
            _scan_log(result, matcher, before)
    except OSError as error:
        result.blind = f"cannot be read ({error.strerror})"
    return result


def _scan_log(result: ScannedLog, matcher: LogMatcher, before: int | None) -> None:
    scan = LogScan(matcher, before)
    with result.file.path.open("rb") as stream:
        if _is_binary(stream.read(_HEAD_BYTES)):
            result.blind = "binary file"
            return
        stream.seek(0)
        for part in _whole_lines(iter(lambda: stream.read(_CHUNK_BYTES), b"")):
            scan.feed(part)
            if _MASTER_MARK in part:
                result.master += _parse_dlrover_reports(part, before)
    result.scan = scan
    if scan.size and scan.last is None:
        undated = any(lacks_year(line) for line in scan.tail.splitlines())
        result.blind = "timestamps without a year" if undated else "no timestamps"


def _is_binary(head: bytes) -> bool:
    return b"\0" in head or len(_BINARY_BYTES.findall(head)) > _MAX_BINARY_SHARE * len(head)


def _whole_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield chunks that end at a newline; a line that is too long is split anywhere."""
    rest = b""
    for part in parts:
        text = rest + part
        cut = text.rfind(b"\n") + 1
        if cut == 0 and len(text) > _MAX_LINE_BYTES:
            cut = len(text)
        if cut:
            yield text[:cut]
        rest = text[cut:]
    if rest:
        yield rest


def _parse_dlrover_reports(part: bytes, before: int | None) -> Iterator[DlroverReport]:
    for line in part.splitlines():
        for rank, error in parse_dlrover_errors(line):
            yield DlroverReport(rank, error, parse_line_timestamp(line, before))
