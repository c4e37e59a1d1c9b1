"""Reader of the files of a host: their kind, host, time and rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa

from forewarn.features.telemetry.event_folding import fold_notices
from forewarn.features.telemetry.exporter_files import read_exporter_files
from forewarn.features.telemetry.host_files.file_forms import FORMS, HostFileForm, detect_form
from forewarn.features.telemetry.host_files.file_parts import split_host_file, with_csv_headers
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.host_files.tool_files import read_no_gpu_message, read_tool_file
from forewarn.features.telemetry.host_files.unsupported_files import describe_json, describe_text
from forewarn.features.telemetry.network.counter_files import read_port_counters
from forewarn.features.telemetry.nvidia_smi.faults import no_gpu_message
from forewarn.features.telemetry.parsers.collected_log import is_collected_log
from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log
from forewarn.features.telemetry.parsers.proc_files import boot_times
from forewarn.features.telemetry.telemetry_rows import (
    event_id,
    event_row,
    is_host_name,
    number_repeats,
)
from forewarn.features.telemetry.telemetry_tables import (
    EVENTS,
    READINGS,
    TableError,
    batch_rows,
    build_table,
)

__all__ = ["read_host_files"]


def read_host_files(
    host: str | None,
    files: Sequence[HostFileText],
    *,
    offset: int = 0,
    until: int | None = None,
    csv_fields: Sequence[Sequence[str]] = (),
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
    csv_fields : sequence of sequence of str
        Fields of `nvidia-smi --query-gpu` of CSV files without a header.

    Returns
    -------
    HostFileRows
        `unread` counts what could not be read or has no time.
    """
    dropped, spans = HostFileRows(until=until), []
    files_by_form: dict[HostFileForm, list[HostFileText]] = {}
    parts = [part for file in files for part in split_host_file(dropped.without_future_time(file))]
    for file in with_csv_headers(parts, csv_fields, dropped.unread):
        form = detect_form(file.text)
        if form is None and no_gpu_message(file.text):
            read_no_gpu_message(dropped, host, file)
        elif form is None:
            dropped.unread.add(describe_text(file.text), file.name)
        else:
            files_by_form.setdefault(form, []).append(file)
    by_kind = {form.kind: some for form, some in files_by_form.items()}
    dropped.files = {kind: len(some) for kind, some in sorted(by_kind.items())}
    boots = [boot for file in by_kind.get("stat", []) for boot in boot_times(file.text)]
    for file in by_kind.get("kernel_log", []):
        own_host, own_offset = _host_and_offset(file, host, offset)
        spans += _read_log(dropped, own_host, file, _boot_before(boots, file.time), own_offset)
    read_exporter_files(dropped, host, by_kind.get("metrics", []), spans)
    read_port_counters(dropped, host, by_kind.get("ports", []))
    for form in FORMS:
        for file in files_by_form.get(form, []):
            own_host, own_offset = _host_and_offset(file, host, offset)
            read_tool_file(dropped, own_host, file, form, offset=own_offset, covered=spans)
    for file in by_kind.get("batch", []):
        _read_batch(dropped, file)
    dropped.name_gpus()
    return dropped


def _host_and_offset(file: HostFileText, host: str | None, offset: int) -> tuple[str | None, int]:
    """Return the host of a file, which its folder names first, and the offset of its clock."""
    named = file.host if file.host and is_host_name(file.host) else None
    return host or named, offset if file.offset is None else file.offset


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
    rows = []
    for event, number in number_repeats(log.events):
        time = event.line.time
        if time is None:
            dropped.unread.add(
                "an event without a time (year or boot time of the host unknown)", file.name
            )
            continue
        machine = _machine(host, event.line.host, log.hosts, file)
        name = event_id(machine, time, event.line.message, number)
        known = max(time, file.time or time)
        rows.append(event_row(event, machine, name) | {"known_at": known})
    for row in fold_notices(rows):
        dropped.add_event(row, file)
    is_selection = bool(log.hosts) or is_collected_log(file.text)
    if log.first is None or log.last is None or dropped.is_future(log.last) or is_selection:
        return []
    if host is not None:
        for pci, (uuid, serial) in log.boards.items():
            gpu = {"gpu_serial": serial, "gpu_uuid": uuid, "first": log.first, "last": log.last}
            dropped.boards.append({"machine_id": host, "pci": pci, **gpu})
    return [(log.first, max(log.last, file.time or 0))]


def _machine(
    host: str | None, in_line: str | None, in_log: Collection[str], file: HostFileText
) -> str | None:
    """Return the machine of a line: a log collector's file is of a fleet unless a folder names it.

    A folder of one machine may name it otherwise than the machine names itself.
    """
    is_of_folder = host is not None and "/" in file.name and len(in_log) <= 1
    is_named = in_line is not None and is_host_name(in_line)
    return in_line if is_named and not is_of_folder else host


def _read_batch(dropped: HostFileRows, file: HostFileText) -> None:
    """Add the rows of agent batches, one JSON object per file or per line."""
    try:
        batches = [json.loads(file.text)]
    except (ValueError, RecursionError):
        if what := describe_text(file.text, ""):
            dropped.unread.add(what, file.name)
            return
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
            what = f"JSON that is not an agent batch ({error})"
            what = describe_json(batch) or describe_text(file.text, what)
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
