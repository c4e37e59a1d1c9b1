"""Parser of kernel logs as JSON of log collectors: Fluent Bit, Fluentd, Vector, Loki.

They keep the message under `msg`, `message`, `MESSAGE`, `log` or `line`, and the fields of the
journal, of syslog or of /dev/kmsg under names that vary in case and leading underscores. Loki's
labels are such fields, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forewarn.features.telemetry.checks.json_documents import json_documents
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.log_prefix import Writer, facility_writer
from forewarn.features.telemetry.parsers.log_time import parse_iso_time

__all__ = ["CollectedLine", "collected_lines", "is_collected_log"]

_MESSAGES = ("message", "msg", "log", "line")
_TIMES = ("realtime_timestamp", "timestamp", "@timestamp", "date", "time", "ts")
_HOSTS = (
    *("hostname", "host", "node_name", "nodename", "node", "computer"),
    *("instance", "exported_instance"),
)
_NAMES = (
    *("syslog_identifier", "identifier", "ident", "appname", "app_name", "program"),
    *("programname", "syslogtag"),
)
_FACILITIES = ("syslog_facility", "facility", "facility_label", "syslog_facility_code")
_UNITS = ("unit", "systemd_unit")  # the kernel has none; some sites label it `kernel`
_KMSG = {"priority", "sequence", "sec", "usec"}  # the fields of Fluent Bit's kmsg input
_OF_CONTAINER = frozenset(
    ("kubernetes", "stream", "container", "container_name", "container_id", "pod", "pod_name")
)
_LOKI = re.compile(r'\{[^{}]*?"data"\s*:\s*\{\s*"resultType"\s*:\s*"streams"')
_LINE = re.compile(r'(?:\[\s*)?\{[^\n]*?"(?:MESSAGE|_*message|msg|log|line)"\s*:\s*["\[]', re.I)
_TIMED = re.compile(
    r'"(?:_*realtime_timestamp|@?timestamp|date|time|ts|_*transport|syslog_identifier)"', re.I
)
# Fluentd's own files: a time and a tag before each object.
_LABELLED = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d))"
    r"[ \t][\w.*-]+(?:: |\t)(?P<entry>\{.*)"
)
_INDENTED = re.compile(r"[\[{]\s*\n")  # as jq prints, an object over many lines
_OTHERS = re.compile(r'"(?:readings|events|apiVersion|gpu_data|DCGM[^"]*)"\s*:')
_SECOND = 10**9
_HEAD_CHARS = 2000
_SCALES = ((10**17, 1), (10**14, 10**3), (10**11, 10**6), (10**8, 10**9))  # ns, us, ms, s


class CollectedLine(NamedTuple):
    """A message of a log collector.

    Attributes
    ----------
    time : int or None
        Nanoseconds since 1970 UTC.
    message : str
    writer : Writer
        None if only the message itself can show it.
    host : str or None
    """

    time: int | None
    message: str
    writer: Writer
    host: str | None


def is_collected_log(text: str) -> bool:
    """Tell whether a text is JSON of a log collector.

    Examples
    --------
    >>> is_collected_log('{"date": 5.5, "sequence": 7, "msg": "eth0: up"}')
    True
    >>> is_collected_log('{"readings": []}')
    False
    """
    head = text[:_HEAD_CHARS]
    if _LOKI.match(head):
        return True
    if not head.startswith(("{", "[")):
        return any(map(_is_labelled, head.split("\n")))
    lines = [head.replace("\n", " ")] if _INDENTED.match(head) else head.split("\n")
    return any(map(_is_entry, lines))


def _is_labelled(line: str) -> bool:
    match = _LABELLED.match(line)
    return bool(match and _LINE.match(match["entry"])) and not _OTHERS.search(line)


def _is_entry(line: str) -> bool:
    if '"__REALTIME_TIMESTAMP"' in line and '"message"' not in line:  # journalctl's own JSON
        return False
    return bool(_LINE.match(line) and _TIMED.search(line)) and not _OTHERS.search(line)


def collected_lines(text: str, unread: Unread) -> Iterator[CollectedLine]:
    """Yield the messages of a log collector's file.

    The file is Loki's answer to a query, an array, or one object or array per line, also after
    Fluentd's time and tag.

    Parameters
    ----------
    text : str
    unread : Unread
        Counts lines that are not JSON.
    """
    for value in _values(text, unread):
        for entry in _entries(value):
            if line := _line(entry):
                yield line


def _values(text: str, unread: Unread) -> Iterator[Any]:
    """Yield the JSON values of a text: one, one per line, or one after the other."""
    try:
        yield json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    if _INDENTED.match(text):
        yield from (document for document, _ in json_documents(text, unread))
        return
    for raw in filter(str.strip, text.split("\n")):  # a message may contain other separators
        labelled = _LABELLED.match(raw)
        try:
            value = json.loads(raw if labelled is None else labelled["entry"])
        except (ValueError, RecursionError):
            unread.add("a line that is not JSON", raw)
            continue
        if labelled is not None and isinstance(value, dict):
            value = {"ts": labelled["time"].replace(" +", "+").replace(" -", "-"), **value}
        yield value


def _entries(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of each message, with its labels."""
    if isinstance(value, list):
        for item in value:
            yield from _entries(item)
    elif isinstance(value, dict) and isinstance(value.get("data"), dict):
        for stream in value["data"].get("result") or []:
            yield from _of_stream(stream)
    elif isinstance(value, dict):
        labels = value.get("labels")
        yield {**labels, **value} if isinstance(labels, dict) else value


def _of_stream(stream: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a stream of Loki: labels, and `[time, line, metadata]` of each."""
    if not isinstance(stream, dict) or not isinstance(stream.get("stream"), dict):
        return
    for value in stream.get("values") or []:
        if isinstance(value, list) and len(value) >= 2:
            yield {**stream["stream"], "timestamp": value[0], "line": value[1]}


def _line(entry: Mapping[str, Any]) -> CollectedLine | None:
    fields = _plain(entry)
    message = next((fields[name] for name in _MESSAGES if name in fields), None)
    if isinstance(message, str) and message.startswith("{"):  # a line that is JSON itself
        nested = _nested(message)
        fields |= nested
        message = next((nested[name] for name in _MESSAGES if name in nested), message)
    if isinstance(message, list) and all(isinstance(n, int) and 0 <= n < 256 for n in message):
        message = bytes(message).decode(errors="replace")  # as the journal encodes other bytes
    if not isinstance(message, str):
        return None
    times = (_time(fields[name]) for name in _TIMES if name in fields)
    time = next((time for time in times if time is not None), None)
    return CollectedLine(time, message, _writer(fields), _host(fields))


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in lower case, without the underscores and `journal` before them."""
    names = {name: str(name).lower().lstrip("_") for name in entry}
    return {
        plain.removeprefix("journal_").lstrip("_"): entry[name] for name, plain in names.items()
    }


def _nested(message: str) -> dict[str, Any]:
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return _plain(value) if isinstance(value, dict) else {}


def _writer(fields: Mapping[str, Any]) -> Writer:
    """Return the writer of a message: the kernel only if all of its fields agree."""
    if _OF_CONTAINER & fields.keys():
        return "program"
    is_kernel: list[bool] = [
        *(_is_kernel_facility(fields[name]) for name in _FACILITIES if name in fields),
        *(_first_word(fields[name]) == "kernel" for name in _NAMES if name in fields),
    ]
    if "transport" in fields:
        is_kernel.append(fields["transport"] == "kernel")
    if str(fields.get("pri", "")).isdecimal():
        is_kernel.append(facility_writer(str(fields["pri"])) == "kernel")
    if fields.keys() >= _KMSG:
        is_kernel.append(True)
    is_kernel += [fields[name] == "kernel" for name in _UNITS if name in fields]
    if not is_kernel:
        return None
    return "kernel" if all(is_kernel) else "program"


def _is_kernel_facility(value: Any) -> bool:
    return str(value).lower() in ("0", "kern", "kernel")


def _first_word(value: Any) -> str:
    return str(value).rstrip(":").removesuffix("[0]")


def _host(fields: Mapping[str, Any]) -> str | None:
    """Return the host; an `instance` may have a port."""
    for name in _HOSTS:
        value = fields.get(name)
        if isinstance(value, Mapping):
            value = value.get("name", value.get("hostname"))
        if isinstance(value, str) and value:
            return re.sub(r":\d{1,5}$", "", value)
    return None


def _time(value: Any) -> int | None:
    """Return a time of any unit, or an ISO time, as nanoseconds since 1970 UTC."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    if match := re.fullmatch(r"(\d{9,19})(?:\.(\d{1,9})\d*)?", text):
        whole = int(match[1])
        scale = next((scale for least, scale in _SCALES if whole >= least), None)
        fraction = int((match[2] or "0").ljust(9, "0")) * (scale or 0) // _SECOND
        moment = None if scale is None else whole * scale + fraction
        return moment if moment is not None and moment < 2**63 else None
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(\S*)", text)
    if match is None:
        return None
    zone = match[3].replace("Z", "+00:00")
    return parse_iso_time(match[1] + zone, int((match[2] or "0").ljust(9, "0")), 0)
