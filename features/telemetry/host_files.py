"""Files that hosts dropped: what kind each is, whose, of when, and what it holds."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log
from forewarn.features.telemetry.parsers.local_clock import clock_time
from forewarn.features.telemetry.parsers.log_line import is_kernel_log
from forewarn.features.telemetry.parsers.nvidia_smi_csv import blindness, lost_gpus, parse_query_gpu
from forewarn.features.telemetry.parsers.nvidia_smi_xml import parse_nvidia_smi_xml
from forewarn.features.telemetry.parsers.proc import boot_times
from forewarn.features.telemetry.parsers.prometheus import parse_metrics
from forewarn.features.telemetry.parsers.reading import GpuReading, Unread
from forewarn.features.telemetry.rows import (
    HostState,
    event_id,
    event_row,
    finding_row,
    is_host_name,
    numbered,
    reading_row,
)
from forewarn.features.telemetry.tables import EVENTS, READINGS, TableError, batch_rows, table_of

__all__ = ["Dropped", "DroppedText", "host_in_name", "kind_of_text", "read_host", "time_in_name"]

Kind = Literal["xml", "csv", "metrics", "kernel_log", "stat", "batch"]

_CLOCK_IN_NAME = re.compile(
    r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)[T_ -]?"
    r"([0-2]\d)[-:.h]?([0-5]\d)(?:[-:.m]?([0-5]\d))?(?!\d)"
)
_EPOCH_IN_NAME = re.compile(r"(?<!\d)(1[5-9]\d{8}|2[01]\d{8})(?:\d{3})?(?!\d)")
# Words that say what a file is, not whose.
_WORDS = re.compile(
    r"nvidia[-_]?smi|smi|dmesg|kmsg|kern(?:el)?|log|messages|metrics|dcgm|proc|stat"
)
_READING = ("machine_id", "gpu_serial", "gpu_uuid", "pci", "timestamp")  # what tells two apart
_METRIC = re.compile(r"^(?:# (?:HELP|TYPE) )?DCGM_FI_\w+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DroppedText:
    """One file as text.

    Attributes
    ----------
    name : str
        For reports.
    text : str
    time : int or None
        Nanoseconds since 1970 UTC that its name tells.
    """

    name: str
    text: str
    time: int | None


@dataclass(slots=True)
class Dropped:
    """What the files of one host held.

    Attributes
    ----------
    readings, events : list of dict
        Rows of READINGS and EVENTS.
    boards : list of dict
        Rows of PLACES.
    files : dict of str to int
        Files by kind.
    unread : Unread
    until : int or None
        Rows that are later than this are of a clock that is wrong, and left out.
    doubled : Counter of (str, str)
        Rows of a file that stand in another one, or in the same one, before.
    """

    readings: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    boards: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    unread: Unread = field(default_factory=Unread)
    until: int | None = None
    doubled: Counter[tuple[str, str]] = field(default_factory=Counter)
    _first: dict[Hashable, str] = field(default_factory=dict, repr=False)

    def take_reading(self, row: dict[str, Any], file: DroppedText) -> None:
        """Add a row of READINGS."""
        if self._is_new(row["timestamp"], tuple(row.get(name) for name in _READING), file):
            self.readings.append(row)

    def take_event(self, row: dict[str, Any], file: DroppedText) -> None:
        """Add a row of EVENTS."""
        if self._is_new(row["timestamp"], row["id"], file):
            self.events.append(row)

    def take_file(self, file: DroppedText) -> DroppedText:
        """Return a file without the time of its name where that is of the future."""
        if file.time is None or not self.is_ahead(file.time):
            return file
        self.unread.add("a time of the future in the name of a file", _at(file, file.time))
        return replace(file, time=None)

    def is_ahead(self, time: int) -> bool:
        """Tell whether a time is of the future."""
        return self.until is not None and time > self.until

    def _is_new(self, time: int, key: Hashable, file: DroppedText) -> bool:
        if self.is_ahead(time):
            self.unread.add("a row of the future", _at(file, time))
            return False
        if key in self._first:
            self.doubled[file.name, self._first[key]] += 1
            return True  # the later row of two wins when it lands
        self._first[key] = file.name
        return True


def _at(file: DroppedText, time: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=time // 1000)
    return f"{file.name}: {moment.isoformat()}Z"


def time_in_name(name: str) -> int | None:
    """Return the nanoseconds since 1970 that the name of a file tells, None if it tells none.

    Examples
    --------
    >>> time_in_name("smi_19700101.csv"), time_in_name("smi-2025-01-01T00:10.csv")
    (None, 1735690200000000000)
    """
    if match := _CLOCK_IN_NAME.search(name):
        year, month, day, hour, minute, second = (part or "00" for part in match.groups())
        return clock_time(f"{year}/{month}/{day} {hour}:{minute}:{second}")
    if match := _EPOCH_IN_NAME.search(name):
        return int(match[1]) * 1_000_000_000
    return None


def host_in_name(name: str) -> str | None:
    """Return the host that the name of a file tells beside a time and what it is.

    Examples
    --------
    >>> host_in_name("node-7_smi_2025-01-01T00:10.csv"), host_in_name("dmesg.log")
    ('node-7', None)
    """
    stem = re.sub(r"(?:\.[A-Za-z]{1,5})+$", "", name)
    stem = _EPOCH_IN_NAME.sub("", _CLOCK_IN_NAME.sub("", stem))
    parts = [part for part in re.split(r"[_ ]+|--+", stem) if not _WORDS.fullmatch(part)]
    host = next((part.strip(".-Z") for part in parts if part.strip(".-Z")), "")
    return host if is_host_name(host) and not _WORDS.fullmatch(host) else None


def kind_of_text(text: str) -> Kind | None:
    """Return what a file is by what it holds; None if it is nothing that we know."""
    head = text.lstrip("\ufeff \r\n\0")[:2000]
    if is_kernel_log(head):  # first: a log can hold any phrase, and a table no line like a log's
        return "kernel_log"
    if head.startswith(("{", "[{")):
        return "batch"
    if "<nvidia_smi_log" in head:
        return "xml"
    if _METRIC.search(head):
        return "metrics"
    if boot_times(text):
        return "stat"
    lines = [line for line in head.splitlines()[:-1] or head.splitlines() if line.strip()]
    headers = ("," in line and parse_query_gpu(line)[1].counts == {} for line in lines)
    return "csv" if lost_gpus(head) or any(headers) else None


def read_host(
    host: str | None,
    files: Sequence[DroppedText],
    *,
    offset: int = 0,
    until: int | None = None,
) -> Dropped:
    """Read the files of one host, its kernel logs first: they say where silence means no Xid.

    Parameters
    ----------
    host : str or None
        Where nothing but the content could tell.
    files : sequence of DroppedText
    offset : int
        Nanoseconds by which clocks without a zone are ahead of UTC.
    until : int, optional
        Nanoseconds since 1970 UTC; what is later was written by a clock that is wrong.

    Returns
    -------
    Dropped
        What could not be read, or has no time, is counted in `unread`.
    """
    dropped, spans = Dropped(until=until), []
    sorted_files: dict[str, list[DroppedText]] = {}
    for file in map(dropped.take_file, files):
        kind = kind_of_text(file.text)
        if kind is None and blindness(file.text):
            _read_blindness(dropped, host, file)
        elif kind is None:
            dropped.unread.add("a file of no known kind", file.name)
        else:
            sorted_files.setdefault(kind, []).append(file)
    dropped.files = {kind: len(some) for kind, some in sorted(sorted_files.items())}
    boots = [boot for file in sorted_files.get("stat", []) for boot in boot_times(file.text)]
    for file in sorted_files.get("kernel_log", []):
        spans += _read_log(dropped, host, file, _boot_before(boots, file.time), offset)
    for of_gpus in ("csv", "xml", "metrics"):
        for file in sorted_files.get(of_gpus, []):
            _read_gpus(dropped, host, file, of_gpus, offset, spans)
    for file in sorted_files.get("batch", []):
        _read_batch(dropped, file)
    return dropped


def _boot_before(boots: Iterable[int], time: int | None) -> int | None:
    known = [boot for boot in boots if time is None or boot <= time]
    return max(known, default=None)


def _read_log(
    dropped: Dropped, host: str | None, file: DroppedText, boot: int | None, offset: int
) -> list[tuple[int, int]]:
    """Add the events of a log; return the spans that it covers."""
    log = parse_kernel_log(file.text, boot_time=boot, offset=offset, before=file.time)
    dropped.unread.join(log.unread)
    for event, number in numbered(log.events):
        time = event.line.time
        if time is None:
            dropped.unread.add(
                "an event without a time (no year, or no boot time of its host)", file.name
            )
            continue
        name = event_id(host, time, event.line.message, number)
        known = max(time, file.time or time)
        dropped.take_event(event_row(event, host, name) | {"known_at": known}, file)
    if log.first is None or log.last is None or dropped.is_ahead(log.last):
        return []
    if host is not None:
        for pci, (uuid, serial) in log.boards.items():
            span = {"first": log.first, "last": log.last}
            dropped.boards.append(
                {"machine_id": host, "pci": pci, "gpu_serial": serial or uuid, **span}
            )
    return [(log.first, max(log.last, file.time or 0))]


def _read_gpus(
    dropped: Dropped,
    host: str | None,
    file: DroppedText,
    kind: str,
    offset: int,
    covered: Sequence[tuple[int, int]],
) -> None:
    for reading in _gpus(dropped.unread, file.text, kind):
        time = file.time if reading.time is None else reading.time - offset
        if time is None:
            dropped.unread.add(
                "a reading without a time, in it or in the name of its file", file.name
            )
            continue
        machine = host or (reading.host if reading.host and is_host_name(reading.host) else None)
        logged = any(first <= time <= last for first, last in covered)
        dropped.take_reading(reading_row(reading, HostState(machine, time, log_read=logged)), file)
    for pci in lost_gpus(file.text) if kind == "csv" else ():
        if file.time is None:
            dropped.unread.add("a lost GPU without a time in the name of its file", file.name)
        else:
            state = HostState(host, file.time)
            row = finding_row("lost", f"nvidia-smi: GPU {pci} is lost", state, GpuReading(pci=pci))
            dropped.take_event(row | {"known_at": file.time}, file)


def _read_blindness(dropped: Dropped, host: str | None, file: DroppedText) -> None:
    """Note that no GPU of a host could be read: that says nothing of any of them."""
    message = blindness(file.text)
    dropped.unread.add("a file in which nvidia-smi could read no GPU", f"{file.name}: {message}")
    if file.time is not None:
        row = finding_row("blind", f"nvidia-smi: {message}", HostState(host, file.time))
        dropped.events.append(row | {"known_at": file.time})


def _gpus(unread: Unread, text: str, kind: str) -> list[GpuReading]:
    """Read the GPUs of a file; a job may have added one document after the other."""
    if kind == "xml":
        parts = [part for part in re.split(r"(?=<\?xml)", text) if part.strip()]
        results = [parse_nvidia_smi_xml(part) for part in parts]
    elif kind == "csv":
        results = [parse_query_gpu(text)]
    else:
        results = [parse_metrics(text)]
    for _, left in results:
        unread.join(left)
    return [reading for readings, _ in results for reading in readings]


def _read_batch(dropped: Dropped, file: DroppedText) -> None:
    """Add the rows of what an agent would have sent, one JSON object or one on each line."""
    try:
        batches = [json.loads(file.text)]
    except (ValueError, RecursionError):
        batches = []
        for line in filter(str.strip, file.text.splitlines()):
            try:
                batches.append(json.loads(line))
            except (ValueError, RecursionError):
                dropped.unread.add("a line that is no JSON", file.name)
    for batch in batches:
        try:
            rows = batch_rows(batch)
            readings, events = table_of(rows[0], READINGS), table_of(rows[1], EVENTS)
        except TableError as error:
            dropped.unread.add(f"JSON that is no batch of an agent ({error})", file.name)
            continue
        for row in _with_whole_times(readings):
            dropped.take_reading(row, file)
        for row in _with_whole_times(events):
            dropped.take_event(row, file)


def _with_whole_times(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, times as nanoseconds."""
    kinds = [pa.int64() if pa.types.is_timestamp(kind) else kind for kind in table.schema.types]
    rows: list[dict[str, Any]] = table.cast(
        pa.schema(list(zip(table.column_names, kinds, strict=True)))
    ).to_pylist()
    return rows
