"""Results of LBNL Node Health Check: `nhc.log`, syslog lines and drain reasons of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from forewarn.features.hostlist import HostlistError, expand
from forewarn.features.telemetry.checks.check_result import CheckResult, CheckSeverity
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.log_line import is_kernel_log, read_line
from forewarn.features.telemetry.parsers.log_time import HostClock
from forewarn.features.telemetry.parsers.script_time import split_time
from forewarn.features.telemetry.telemetry_rows import is_host_name

__all__ = ["is_drain_reasons", "is_nhc_log", "parse_drain_reasons", "parse_nhc_log"]

TOOL = "nhc"
_FAILED = re.compile(
    r"(?:^|\s)(?:ERROR:? +)?nhc(?:\[\d+\])?: +(?:ERROR:? +(?:nhc: +)?)?"
    r"Health check failed: +(?P<why>.+)"
    r"|Node Health Checks? failed - (?P<host>\S+)(?: - \S+)? - (?P<reason>.+)"
)
_MARK = re.compile(
    r"(?:\[\w+\] +)?\S*/node-mark-(?P<state>o(?:n|ff)line) +(?P<host>\S+) *(?P<why>.*)"
)
_PASSED = re.compile(r"Node Health Check completed successfully|nhc(?:\[\d+\])?: +Node OK\b")
_OF_KERNEL = re.compile(r"(?:^|\s)kernel(?:\[0\])?: ", re.MULTILINE)
_HEAD = re.compile(
    r"(?:^|[\s/])nhc(?:\[\d+\])?: +\S|/nhc/node-mark-o|"
    r"Node Health Checks? (?:starting|failed|completed)",
    re.MULTILINE,
)
_CHECK = re.compile(r"(?:Check +)?(?P<name>check_\w+)")
# NHC itself did not finish, which says nothing about the hardware.
_UNFINISHED = re.compile(r"Script timed out|Terminated by signal|Watchdog timer", re.IGNORECASE)
_HOST_IN_LINE = re.compile(r"(?P<host>[\w.-]+) +(?:\S*/)?nhc(?:\[\d+\])?:")
_REASONS = re.compile(r"^ *REASON +USER +TIMESTAMP +NODELIST", re.MULTILINE)
_REASON_ROW = re.compile(
    r"(?P<reason>\S.*?) +(?P<user>\S+) +(?P<time>20\d\d-\d\d-\d\dT[\d:]{8}) +(?P<nodes>\S+) *$"
)
_NODE = re.compile(r"^NodeName=(?P<host>\S+)", re.MULTILINE)
_NODE_REASON = re.compile(
    r"\bReason=(?P<reason>.+?)(?: \[[^@\]\s]+@(?P<time>20\d\d-\d\d-\d\dT[\d:]{8})\])?\s*$",
    re.MULTILINE,
)
_OF_NHC = re.compile(r"NHC: *", re.IGNORECASE)


def is_nhc_log(text: str) -> bool:
    """Tell whether a text is a log of NHC alone, not a system log that has its lines as well."""
    return bool(_HEAD.search(text)) and not (is_kernel_log(text) and _OF_KERNEL.search(text))


def parse_nhc_log(text: str, clock: HostClock) -> tuple[list[CheckResult], Unread]:
    """Read failed checks and the passes that follow them.

    Parameters
    ----------
    text : str
        `nhc.log`, output of `nhc`, or a system log with lines of `nhc[PID]:`.
    clock : HostClock
        Of the host; determines the year if the lines have none.

    Returns
    -------
    list of CheckResult
        Named `nhc check_NAME`, or `nhc` if a message names no check. A pass is `nhc`, which ends
        all of them; of several passes in a row the first one is returned.
    Unread
    """
    results: list[CheckResult] = []
    passed: dict[str | None, bool] = {}
    for result in _with_later_times(_results(text, clock)):
        if result.severity != "ok" or not passed.get(result.host):
            results.append(result)
        passed[result.host] = result.severity == "ok"
    return results, Unread()


def _results(text: str, clock: HostClock) -> Iterator[CheckResult]:
    for line in text.replace("\0", "").splitlines():
        if "ealth" not in line and "node-mark-o" not in line and "nhc" not in line:
            continue
        time, rest = split_time(line)
        moment = read_line(line, clock).time if time is None else time.moment
        if time is not None and not time.utc:
            moment = time.moment - clock.offset
        result = _result(rest)
        if result is not None:
            yield replace(result, time=moment, utc=moment is not None)


def _result(line: str) -> CheckResult | None:
    """Return the result in a line without its time; None if it has none."""
    if match := _MARK.match(line.strip()):
        host = match["host"].rstrip(".")
        if match["state"] == "online":
            return CheckResult(TOOL, "ok", "nhc: all checks passed", host=host)
        return _failure(match["why"], host) if match["why"] else None
    named = _HOST_IN_LINE.search(line)
    host = named["host"] if named and is_host_name(named["host"]) else None
    if match := _FAILED.search(line):
        return _failure(match["why"] or match["reason"], match["host"] or host)
    if _PASSED.search(line):
        return CheckResult(TOOL, "ok", "nhc: all checks passed", host=host)
    return None


def _failure(why: str, host: str | None) -> CheckResult:
    """Return a failed check; a run that NHC did not finish is a notice."""
    why = " ".join(why.split())
    check = _CHECK.match(why) or (_CHECK.search(why) if "executing" not in why else None)
    severity: CheckSeverity = "notice" if _UNFINISHED.match(why) else "error"
    name = f"{TOOL} {check['name']}" if check else TOOL
    name = f"{TOOL} unfinished" if severity == "notice" else name
    return CheckResult(name, severity, f"nhc: {why}", host=host)


def _with_later_times(results: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """Give a failure without a time the time of its mark, which `nhc.log` writes after it.

    The mark repeats the failure with time and host, so the failure itself is dropped. Another
    failure gets the time of the line before it.
    """
    waiting: list[CheckResult] = []
    last: CheckResult | None = None
    for result in results:
        if result.time is None:
            waiting.append(result)
            continue
        yield from (_after(last, item) for item in waiting if item.text != result.text)
        waiting, last = [], result
        yield result
    yield from (_after(last, item) for item in waiting)


def _after(last: CheckResult | None, result: CheckResult) -> CheckResult:
    """Return a result with the time and the host of the one before it."""
    if last is None:
        return result
    return replace(result, time=last.time, utc=True, host=result.host or last.host)


def is_drain_reasons(text: str) -> bool:
    """Tell whether a text is output of `sinfo -R` or `scontrol show node`."""
    return bool(_REASONS.search(text) or _NODE.search(text))


def parse_drain_reasons(text: str) -> tuple[list[CheckResult], Unread]:
    """Read the drain reasons that NHC set, of each node.

    Returns
    -------
    list of CheckResult
        A node without a reason says nothing: NHC may not have run.
    Unread
        Counts drains that NHC did not set.
    """
    unread = Unread()
    reasons = _reason_rows(text) if _REASONS.search(text) else _node_reasons(text)
    results = []
    for nodes, reason, time in reasons:
        prefix = _OF_NHC.match(reason)
        if prefix is None:
            unread.add("a drain reason that Node Health Check did not set", reason)
            continue
        stamp = split_time(time)[0] if time else None
        try:
            hosts = expand(nodes)
        except HostlistError as error:
            unread.add("a list of nodes that is invalid", str(error))
            continue
        for host in hosts:
            result = _failure(reason[prefix.end() :], host)
            results.append(replace(result, time=stamp and stamp.moment))
    return results, unread


def _reason_rows(text: str) -> Iterator[tuple[str, str, str | None]]:
    for line in text.splitlines():
        if match := _REASON_ROW.match(line.strip()):
            yield match["nodes"], match["reason"], match["time"]


def _node_reasons(text: str) -> Iterator[tuple[str, str, str | None]]:
    starts = [match.start() for match in _NODE.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        node, reason = _NODE.match(text, start), _NODE_REASON.search(text, start, end)
        if node and reason and reason["reason"].strip() not in ("(null)", "none"):
            yield node["host"], reason["reason"], reason["time"]
