"""Parsers for the error files of torchrun workers and the error lines of DLRover's master."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forewarn.features.time_units import SECOND

__all__ = ["ErrorReport", "parse_dlrover_errors", "parse_error"]

_MAX_MESSAGE_CHARS = 2_000
_MAX_EPOCH_SECONDS = 2**33
_NO_MESSAGE = "To enable traceback see:"  # torchelastic's words for a process without an error file
_MASTER_LINE = re.compile(rb"worker-\d{1,7} restart (?P<restart>\d{1,7}) fails: (?P<json>\{.*\})")


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Exception that ended a worker process.

    Attributes
    ----------
    message : str
    time : int or None
        Time at which the report was written, in nanoseconds since 1970 UTC, with a resolution of 1
        s.
    stack : str
        Python stack trace, truncated.
    exit_code : int or None
        Set only for reports of DLRover's master.
    restart : int or None
        Restart number; set only for reports of DLRover's master.
    """

    message: str
    time: int | None = None
    stack: str = ""
    exit_code: int | None = None
    restart: int | None = None


def parse_error(text: str) -> ErrorReport | None:
    """Parse an `error.json`; return None if it is truncated or not an error report.

    Examples
    --------
    >>> parse_error('{"message": {"message": "ValueError: x", "extraInfo": {"timestamp": "7"}}}')
    ErrorReport(message='ValueError: x', time=7000000000, stack='', exit_code=None, restart=None)
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _parse_message(values.get("message")) if isinstance(values, dict) else None


def _parse_message(message: object) -> ErrorReport | None:
    if isinstance(message, str) and message and not message.startswith(_NO_MESSAGE):
        return ErrorReport(message[:_MAX_MESSAGE_CHARS])
    if not isinstance(message, Mapping) or not isinstance(message.get("message"), str):
        return None
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, Mapping) else {}
    stack = extra.get("py_callstack")
    return ErrorReport(
        message["message"][:_MAX_MESSAGE_CHARS],
        _parse_timestamp(extra.get("timestamp")),
        stack[-_MAX_MESSAGE_CHARS:] if isinstance(stack, str) else "",
    )


def _parse_timestamp(value: object) -> int | None:
    try:
        seconds = float(value) if isinstance(value, str | int | float) else -1.0
    except (ValueError, OverflowError):
        return None
    return int(seconds) * SECOND if 0 <= seconds < _MAX_EPOCH_SECONDS else None


def parse_dlrover_errors(line: bytes) -> Iterator[tuple[int, ErrorReport]]:
    """Yield the rank and error of each worker in a log line of DLRover's master.

    Examples
    --------
    >>> line = b'worker-1 restart 2 fails: {"7": {"local_rank": 0, "exitcode": -6, "message": "x"}}'
    >>> [(rank, error.exit_code, error.restart) for rank, error in parse_dlrover_errors(line)]
    [(7, -6, 2)]
    """
    match = _MASTER_LINE.search(line)
    if match is None:
        return
    try:
        workers = json.loads(match["json"])
    except (ValueError, RecursionError):
        return
    for key, worker in workers.items():
        if key.isascii() and key.isdigit() and len(key) < 8 and isinstance(worker, Mapping):
            report = _parse_message(worker.get("message")) or ErrorReport("")
            code = worker.get("exitcode")
            exit_code = code if type(code) is int else None
            restart = int(match["restart"])
            yield (
                int(key),
                ErrorReport(report.message, report.time, report.stack, exit_code, restart),
            )
