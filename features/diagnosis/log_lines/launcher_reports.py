"""Reports of launchers, schedulers and coordinators about processes that ended."""

from __future__ import annotations

import datetime as dt
import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Final

from forewarn.features.diagnosis.log_lines.launcher_forms import LAUNCHER_FORMS, LauncherForm
from forewarn.features.diagnosis.log_lines.line_selection import JoinedLines
from forewarn.features.diagnosis.log_lines.log_matcher import find_matching_lines
from forewarn.features.diagnosis.log_lines.log_pattern import compile_pattern
from forewarn.features.diagnosis.log_lines.log_timestamp import last_timestamp, parse_line_timestamp
from forewarn.features.hostlist import HostlistError, expand
from forewarn.features.time_units import SECOND

__all__ = ["LaunchReport", "may_report_exit", "parse_launcher_reports"]

_MAX_REPORTS = 5_000  # the last ones count
_MAX_TASKS = 4_096  # of one line
_MAX_LINE_CHARS = 500
_CONTEXT_CHARS = 200  # before a report in a longer line
_BLOCK_BYTES = 4_096
_TIME_BYTES = 65_536  # searched for the time of a report that has none
_DESCRIPTION_BYTES = 8_192  # of a pod, from its name to its state
_HINTS: Final = compile_pattern("|".join(re.escape(form.hint) for form in LAUNCHER_FORMS))
_SIGNAL_WORDS: Final = {
    "Killed": 9, "OOMKilled": 9, "Out Of Memory": 9, "oom_kill": 9, "oom-kill": 9,
    "due to memory pressure": 9,
    "Terminated": 15, "Aborted": 6, "Segmentation fault": 11, "Bus error": 7,
    "Floating point exception": 8, "Illegal instruction": 4, "Hangup": 1, "Interrupt": 2,
}  # fmt: skip
_FATAL_SIGNALS = (6, 7, 9, 11, 15)
_MAX_SIGNAL = 64
_JAX_TASK = re.compile(r"(?:^|task:)(\d{1,9})")
_POD_NAME = re.compile(r"(?m)^Name: +(\S{1,250})")
_POD_NODE = re.compile(r"(?m)^Node: +([^\s/]{1,250})")
_SLURM_DAEMON = re.compile(
    r"^(?: *(?P<task>\d{1,7}): )?.{0,80}?slurm(?:step)?d(?:[-\[](?P<host>[\w.-]+))?"
)


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What a launcher says about one process; unknown fields are None.

    Attributes
    ----------
    rank, local_rank : int or None
    task : int or None
        Number of a Slurm task or of a JAX process; a Slurm task may run several ranks.
    host, pod : str or None
        Host name or address, and the name of a pod.
    pid : int or None
    exit_code : int or None
        A negative code is the signal that ended the process, as in `exits.csv`.
    time : int or None
        Time of the report or of the nearest earlier line, in nanoseconds since 1970 UTC.
    is_first : bool
        The launcher calls it the first failure.
    line : str
        Text of the report in one line, truncated to 500 characters.
    offset : int
        Bytes from the start of the text.
    by_launcher : bool
        The launcher itself ended the process, so that the code does not indicate a cause.
    """

    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str | None = None
    pod: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    time: int | None = None
    is_first: bool = False
    line: str = ""
    offset: int = 0
    by_launcher: bool = False


def may_report_exit(line: bytes) -> bool:
    """Return whether a line has a text without which no line is a report."""
    return _HINTS.search(line) is not None


def parse_launcher_reports(
    text: bytes,
    before: int | None,
    *,
    zone: dt.tzinfo = dt.UTC,
    lines: JoinedLines | None = None,
) -> list[LaunchReport]:
    """Return the reports in a log, in order; the last 5,000 if there are more.

    The error lines of DLRover's master are read by `parse_dlrover_errors`.

    Parameters
    ----------
    text : bytes
        Whole lines.
    before : int or None
        Determines the year of timestamps without one, as in `parse_line_timestamp`.
    zone : datetime.tzinfo
        Zone of timestamps that state none.
    lines : JoinedLines, optional
        At least the lines of the text that `may_report_exit`; all by default.

    Examples
    --------
    >>> [report] = parse_launcher_reports(b"srun: error: node-1: task 3: Killed", None)
    >>> report.task, report.host, report.exit_code
    (3, 'node-1', -9)
    """
    reports: dict[LaunchReport, None] = {}
    hinted = find_matching_lines(_HINTS, lines or JoinedLines.whole(text))
    for start, end in deque(hinted, _MAX_REPORTS):
        for form in LAUNCHER_FORMS:
            position = text.find(form.hint.encode(), start, end)
            if position >= 0:
                span = (0, len(text)) if form.is_block else (start, end)
                window = (
                    max(span[0], position - _BLOCK_BYTES),
                    min(span[1], position + _BLOCK_BYTES),
                )
                for report in _form_reports(form, text, window, before, zone):
                    if report.offset <= position:
                        reports[report] = None
    return sorted(reports, key=lambda report: report.offset)[-_MAX_REPORTS:]


def _form_reports(
    form: LauncherForm,
    text: bytes,
    window: tuple[int, int],
    before: int | None,
    zone: dt.tzinfo,
) -> Iterator[LaunchReport]:
    """Yield the reports of a form in a part of the text."""
    first, last = window
    for match in form.expression.finditer(text[first:last].decode("latin-1")):
        begin, end = first + match.start(), first + match.end()
        offset = text.rfind(b"\n", 0, begin) + 1
        rest = text.find(b"\n", end)
        head = offset if end - offset <= _MAX_LINE_CHARS else max(offset, begin - _CONTEXT_CHARS)
        lines = text[head : rest if rest >= 0 else len(text)]
        report = _report(form, match, lines, offset, zone)
        if form.is_described:
            report = _with_pod(report, text)
        if report.time is None:
            heading = text[max(0, offset - _TIME_BYTES) : end]
            report = replace(report, time=last_timestamp(heading, before, zone=zone))
        yield from _by_task(report, match, lines.decode("latin-1"))


def _report(
    form: LauncherForm, match: re.Match[str], lines: bytes, offset: int, zone: dt.tzinfo
) -> LaunchReport:
    fields = {name: value for name, value in match.groupdict().items() if value}
    words = lines[: 4 * _MAX_LINE_CHARS].decode("utf-8", "replace").split()
    hosts = fields.get("hosts", "")
    return LaunchReport(
        rank=_integer(fields, "rank"),
        local_rank=_integer(fields, "local_rank"),
        host=fields.get("host", "").rstrip(".:") or (hosts if "[" not in hosts else "") or None,
        pod=fields.get("pod"),
        pid=_integer(fields, "pid") or None,  # Open MPI writes 0 for an unknown one
        exit_code=_exit_code(fields),
        time=_time(fields, zone),
        is_first=form.is_first or "root" in fields,
        line=" ".join(words)[:_MAX_LINE_CHARS],
        offset=offset,
        by_launcher=form.by_launcher,
    )


def _with_pod(report: LaunchReport, text: bytes) -> LaunchReport:
    """Return a report with the pod and node that `kubectl describe` names further up."""
    start = max(0, report.offset - _DESCRIPTION_BYTES)
    above = text[start : report.offset].decode("latin-1")
    pods, nodes = _POD_NAME.findall(above), _POD_NODE.findall(above)
    return replace(report, pod=pods[-1] if pods else None, host=nodes[-1] if nodes else None)


def _by_task(report: LaunchReport, match: re.Match[str], lines: str) -> Iterator[LaunchReport]:
    """Yield a report for each task of a list."""
    fields = match.groupdict()
    tasks = [int(number) for number in _JAX_TASK.findall(fields.get("jax_tasks") or "")]
    tasks += _task_list(fields.get("tasks") or "")
    daemon = _SLURM_DAEMON.search(lines) if not tasks else None
    if daemon is not None:
        report = replace(report, host=report.host or daemon["host"])
        tasks = [int(daemon["task"])] if daemon["task"] else []
    nodes = _node_list(fields.get("nodes") or "")
    yield from (replace(report, task=task) for task in tasks)
    yield from (replace(report, host=node) for node in nodes)
    codes = (fields.get("codes") or "").split(",")
    for task, code in enumerate(codes if codes[0] else ()):
        yield replace(report, task=task, exit_code=_exit_code({"code": code.strip()}))
    if not tasks and not nodes and not codes[0]:
        yield report


def _node_list(text: str) -> list[str]:
    """Return the machines of a list such as `node-[3-4]`; none if it is not one."""
    try:
        return expand(text)[:_MAX_TASKS] if text else []
    except HostlistError:
        return []


def _task_list(text: str) -> list[int]:
    """Return the tasks of a list such as `0-2,7`, at most 4,096."""
    tasks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and len(first) < 8 and len(last) < 8:
            end = int(last) if last.isdecimal() else int(first)
            tasks += range(int(first), min(end + 1, int(first) + _MAX_TASKS))
    return tasks[:_MAX_TASKS]


def _integer(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if 0 < len(text.removeprefix("-")) < 10 else None


def _exit_code(fields: Mapping[str, str]) -> int | None:
    """Return the exit code of a report; 128 + signal, as a shell writes it, is the signal."""
    word, number = fields.get("word"), _integer(fields, "signal")
    if word is not None:
        return -_SIGNAL_WORDS[word] if word in _SIGNAL_WORDS else _signal_by_name(word)
    if number is not None:
        return -number
    code = _integer(fields, "code") if "code" in fields else _wait_status(fields)
    return 128 - code if code is not None and 128 < code <= 128 + _MAX_SIGNAL else code


def _signal_by_name(name: str) -> int | None:
    member = signal.Signals.__members__.get(name)
    return None if member is None else -int(member)


def _wait_status(fields: Mapping[str, str]) -> int | None:
    """Return the exit code of a status as `wait` returns it, which Hydra prints undecoded."""
    status = _integer(fields, "status")
    if status is None or status > 255:
        return None if status is None else status >> 8
    return -status if status in _FATAL_SIGNALS else status


def _time(fields: Mapping[str, str], zone: dt.tzinfo) -> int | None:
    if "date" in fields:
        try:
            return int(parsedate_to_datetime(fields["date"]).timestamp()) * SECOND
        except (ValueError, OverflowError):
            return None
    return parse_line_timestamp(fields.get("time", "").encode("latin-1"), None, zone=zone)
