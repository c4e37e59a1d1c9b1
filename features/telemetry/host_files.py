"""Reader of the files of a host: their kind, host, time and rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import pyarrow as pa

from forewarn.features.telemetry.exporter_files import read_exporter_files
from forewarn.features.telemetry.host_file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log
from forewarn.features.telemetry.parsers.log_line import is_kernel_log
from forewarn.features.telemetry.parsers.nvidia_smi_csv import is_header, parse_query_gpu
from forewarn.features.telemetry.parsers.nvidia_smi_faults import (
    lost_gpus,
    measured_gpus,
    no_gpu_message,
)
from forewarn.features.telemetry.parsers.nvidia_smi_text import is_query_text, parse_query_text
from forewarn.features.telemetry.parsers.nvidia_smi_xml import parse_nvidia_smi_xml
from forewarn.features.telemetry.parsers.proc_files import boot_times
from forewarn.features.telemetry.telemetry_rows import (
    HostState,
    event_id,
    event_row,
    finding_row,
    is_host_name,
    number_repeats,
    reading_row,
    state_row,
)
from forewarn.features.telemetry.telemetry_tables import (
    EVENTS,
    READINGS,
    TableError,
    batch_rows,
    build_table,
)
from forewarn.features.telemetry.unsupported_files import describe_json, describe_text

__all__ = ["detect_kind", "read_host_files"]

Kind = Literal["xml", "csv", "text", "metrics", "kernel_log", "stat", "batch"]

_METRIC = re.compile(r"^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_\w+", re.MULTILINE)


def detect_kind(text: str) -> Kind | None:
    """Return the kind of a file by its content; None if it is unknown."""
    head = text.lstrip("\ufeff \r\n\0")[:2000].replace("\0", "")
    if is_kernel_log(head):  # first, since a log can quote any text while no table has log lines
        return "kernel_log"
    if head.startswith(("{", "[{")):
        return "batch"
    if "<nvidia_smi_log" in head:
        return "xml"
    if is_query_text(head):
        return "text"
    if _METRIC.search(head):
        return "metrics"
    if boot_times(text):
        return "stat"
    lines = [line for line in head.splitlines()[:-1] or head.splitlines() if line.strip()]
    return (
        "csv" if lost_gpus(head) or any("," in line and is_header(line) for line in lines) else None
    )


def read_host_files(
    host: str | None,
    files: Sequence[HostFileText],
    *,
    offset: int = 0,
    until: int | None = None,
) -> HostFileRows:
    """Read the files of one host, kernel logs first.

    A kernel log determines where the absence of an Xid is known.

    Parameters
    ----------
    host : str or None
        None if only the content can name the host.
    files : sequence of HostFileText
    offset : int
        Nanoseconds by which clocks without a zone are ahead of UTC.
    until : int, optional
        Nanoseconds since 1970 UTC; later rows have a wrong clock.

    Returns
    -------
    HostFileRows
        `unread` counts what could not be read or has no time.
    """
    dropped, spans = HostFileRows(until=until), []
    sorted_files: dict[str, list[HostFileText]] = {}
    for file in map(dropped.without_future_time, files):
        kind = detect_kind(file.text)
        if kind is None and no_gpu_message(file.text):
            _read_no_gpu_message(dropped, host, file)
        elif kind is None:
            dropped.unread.add(describe_text(file.text), file.name)
        else:
            sorted_files.setdefault(kind, []).append(file)
    dropped.files = {kind: len(some) for kind, some in sorted(sorted_files.items())}
    boots = [boot for file in sorted_files.get("stat", []) for boot in boot_times(file.text)]
    for file in sorted_files.get("kernel_log", []):
        spans += _read_log(dropped, host, file, _boot_before(boots, file.time), offset)
    read_exporter_files(dropped, host, sorted_files.get("metrics", []), spans)
    for of_gpus in ("csv", "xml", "text"):
        for file in sorted_files.get(of_gpus, []):
            _read_gpus(dropped, host, file, of_gpus, offset, spans)
    for file in sorted_files.get("batch", []):
        _read_batch(dropped, file)
    return dropped


def _boot_before(boots: Iterable[int], time: int | None) -> int | None:
    known = [boot for boot in boots if time is None or boot <= time]
    return max(known, default=None)


def _read_log(
    dropped: HostFileRows, host: str | None, file: HostFileText, boot: int | None, offset: int
) -> list[tuple[int, int]]:
    """Add the events of a log; return the spans that it covers."""
    log = parse_kernel_log(file.text, boot_time=boot, offset=offset, before=file.time)
    dropped.unread.join(log.unread)
    if not log.of_kernel:
        dropped.unread.add("a log without a line of the kernel", file.name)
    for event, number in number_repeats(log.events):
        time = event.line.time
        if time is None:
            dropped.unread.add(
                "an event without a time (year or boot time of the host unknown)", file.name
            )
            continue
        name = event_id(host, time, event.line.message, number)
        known = max(time, file.time or time)
        dropped.add_event(event_row(event, host, name) | {"known_at": known}, file)
    if log.first is None or log.last is None or dropped.is_future(log.last):
        return []
    if host is not None:
        for pci, (uuid, serial) in log.boards.items():
            gpu = {"gpu_serial": serial, "gpu_uuid": uuid, "first": log.first, "last": log.last}
            dropped.boards.append({"machine_id": host, "pci": pci, **gpu})
    return [(log.first, max(log.last, file.time or 0))]


def _read_gpus(
    dropped: HostFileRows,
    host: str | None,
    file: HostFileText,
    kind: str,
    offset: int,
    covered: Sequence[tuple[int, int]],
) -> None:
    readings = _gpus(dropped.unread, file.text, kind)
    moment = None if file.time else next((r.time for r in readings if r.time), None)
    addresses = lost_gpus(file.text, measured_gpus(readings))
    lost = [GpuReading(pci=pci, lost=True, time=moment) for pci in addresses]
    for reading in [*readings, *lost]:
        time = file.time if reading.time is None else reading.time - offset
        if time is None:
            what = "a lost GPU" if reading.lost else "a reading"
            dropped.unread.add(f"{what} without a time, in the content or the file name", file.name)
            continue
        machine = host or (reading.host if reading.host and is_host_name(reading.host) else None)
        logged = any(first <= time <= last for first, last in covered)
        state = HostState(machine, time, log_read=logged)
        if event := state_row(reading, state):
            dropped.add_event(event | {"known_at": max(time, file.time or time)}, file)
        elif reading.lost:
            dropped.unread.add("a lost GPU without an address", file.name)
        if not reading.lost:
            dropped.add_reading(reading_row(reading, state), file)
    if lost and no_gpu_message(file.text):
        _read_no_gpu_message(dropped, host, file)


def _read_no_gpu_message(dropped: HostFileRows, host: str | None, file: HostFileText) -> None:
    """Record that no GPU of a host could be read, which proves nothing about any GPU."""
    message = no_gpu_message(file.text)
    dropped.unread.add("a file in which nvidia-smi could read no GPU", f"{file.name}: {message}")
    if file.time is not None:
        row = finding_row("blind", f"nvidia-smi: {message}", HostState(host, file.time))
        dropped.events.append(row | {"known_at": file.time})


def _gpus(unread: Unread, text: str, kind: str) -> list[GpuReading]:
    """Read the GPUs of a file, which may consist of several documents."""
    if kind == "xml":
        parts = [part for part in re.split(r"(?<=</nvidia_smi_log>)", text) if part.strip()]
        results = [parse_nvidia_smi_xml(part) for part in parts]
    else:
        results = [parse_query_gpu(text) if kind == "csv" else parse_query_text(text)]
    for _, left in results:
        unread.join(left)
    return [reading for readings, _ in results for reading in readings]


def _read_batch(dropped: HostFileRows, file: HostFileText) -> None:
    """Add the rows of agent batches, one JSON object per file or per line."""
    try:
        batches = [json.loads(file.text)]
    except (ValueError, RecursionError):
        batches = []
        for line in filter(str.strip, file.text.splitlines()):
            try:
                batches.append(json.loads(line))
            except (ValueError, RecursionError):
                dropped.unread.add("a line that is not JSON", file.name)
    for batch in batches:
        try:
            rows = batch_rows(batch)
            readings, events = build_table(rows[0], READINGS), build_table(rows[1], EVENTS)
        except TableError as error:
            what = describe_json(batch) or f"JSON that is not an agent batch ({error})"
            dropped.unread.add(what, file.name)
            continue
        for row in _with_whole_times(readings):
            dropped.add_reading(row, file)
        for row in _with_whole_times(events):
            dropped.add_event(row, file)


def _with_whole_times(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, times as nanoseconds."""
    kinds = [pa.int64() if pa.types.is_timestamp(kind) else kind for kind in table.schema.types]
    rows: list[dict[str, Any]] = table.cast(
        pa.schema(list(zip(table.column_names, kinds, strict=True)))
    ).to_pylist()
    return rows
