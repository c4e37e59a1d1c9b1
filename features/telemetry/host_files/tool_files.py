"""Output of tools of a host, such as nvidia-smi and dcgmi, as rows of readings and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.host_files.file_forms import HostFileForm
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.nvidia_smi.faults import (
    lost_gpus,
    measured_gpus,
    no_gpu_message,
)
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.log_time import HostClock
from forewarn.features.telemetry.telemetry_rows import (
    HostState,
    check_row,
    finding_row,
    is_host_name,
    reading_row,
    state_row,
)

__all__ = ["read_no_gpu_message", "read_tool_file"]

_REPEATED = (
    "a row without a time, before a later row of the same GPU (`nvidia-smi dmon -o DT`, or the "
    "field `timestamp` of a query, adds one)"
)


def read_tool_file(
    dropped: HostFileRows,
    host: str | None,
    file: HostFileText,
    form: HostFileForm,
    *,
    offset: int,
    covered: Sequence[tuple[int, int]],
) -> None:
    """Add the GPUs and the check results of one file.

    Parameters
    ----------
    dropped : HostFileRows
        Updated in place.
    host : str or None
        None if only the content can name the host.
    file : HostFileText
    form : HostFileForm
        Provides the parsers.
    offset : int
        Nanoseconds by which clocks without a zone are ahead of UTC.
    covered : sequence of (int, int)
        Spans covered by a kernel log; without an Xid in the log there was none.
    """
    if form.gpus is not None:
        readings, unread = form.gpus(file.text)
        dropped.unread.join(unread)
        if not form.names_only:
            readings = _last_without_time(dropped, file, readings)
        for reading in readings:
            if form.names_only or reading.names_only:
                _remember_name(dropped, _machine(host, reading.host), file, reading, offset)
                continue
            time = _moment(reading, offset)
            placed = replace(reading, time=file.time if time is None else time)
            _add_gpu(dropped, host, file, placed, covered)
        _add_lost_gpus(dropped, host, file, readings, offset=offset)
    if form.checks is not None:
        _add_checks(dropped, host, file, form.checks(file.text), offset=offset)
    if form.log_checks is not None:
        clock = HostClock(None, offset, file.time)
        _add_checks(dropped, host, file, form.log_checks(file.text, clock), offset=offset)


def _add_checks(
    dropped: HostFileRows,
    host: str | None,
    file: HostFileText,
    parsed: tuple[list[CheckResult], Unread],
    *,
    offset: int,
) -> None:
    results, unread = parsed
    dropped.unread.join(unread)
    hosts = {result.host for result in results if result.host}
    # The output of a cluster's tool names many hosts, a log of a host in its folder only one.
    folder = host if host is not None and "/" in file.name and len(hosts) <= 1 else None
    for result in results:
        time = _moment(result, offset)
        time = file.time if time is None else time
        if time is None:
            what = "the result of a check without a time, in the content or the file name"
            dropped.unread.add(what, file.name)
            continue
        machine = _machine(folder, result.host) or host
        row = check_row(result, HostState(machine, time))
        dropped.add_event(row | {"known_at": max(time, file.time or time)}, file)


def _last_without_time(
    dropped: HostFileRows, file: HostFileText, readings: Sequence[GpuReading]
) -> list[GpuReading]:
    """Leave out rows without a time of their own before the last one of the same GPU.

    All of them would have the time of the file.
    """
    untimed = [row for row in readings if row.time is None and not (row.lost or row.names_only)]
    last = {(row.host, row.uuid, row.serial, row.pci, row.slot): row for row in untimed}
    earlier = {id(row) for row in untimed}.difference(map(id, last.values()))
    for _ in earlier:
        dropped.unread.add(_REPEATED, file.name)
    return [row for row in readings if id(row) not in earlier]


def _remember_name(
    dropped: HostFileRows, machine: str | None, file: HostFileText, gpu: GpuReading, offset: int
) -> None:
    """Remember the GPU at an index or address, for rows that name it by these."""
    time = _moment(gpu, offset)
    time = file.time if time is None else time
    gpu_place = {"machine_id": machine, "pci": gpu.pci, "gpu_uuid": gpu.uuid}
    gpu_place |= {"gpu_serial": gpu.serial}
    listed = None if gpu.slot is None else True  # only a whole list of the host has indices
    position = {**gpu_place, "slot": gpu.slot, "listed": listed}
    dropped.names.add({**position, **gpu.texts, "timestamp": time})
    if gpu.pci is not None and machine is not None and time is not None:
        dropped.boards.append({**gpu_place, "first": time, "last": time})


def _moment(item: GpuReading | CheckResult, offset: int) -> int | None:
    """Return the time of a reading or a result in UTC; None if it has none."""
    return item.time if item.time is None or item.utc else item.time - offset


def _machine(host: str | None, in_content: str | None) -> str | None:
    return host or (in_content if in_content and is_host_name(in_content) else None)


def _add_gpu(
    dropped: HostFileRows,
    host: str | None,
    file: HostFileText,
    reading: GpuReading,
    covered: Sequence[tuple[int, int]],
) -> None:
    time = reading.time
    if time is None:
        what = "a lost GPU" if reading.lost else "a reading"
        dropped.unread.add(f"{what} without a time, in the content or the file name", file.name)
        return
    logged = any(first <= time <= last for first, last in covered)
    state = HostState(_machine(host, reading.host), time, log_read=logged)
    if event := state_row(reading, state):
        dropped.add_event(event | {"known_at": max(time, file.time or time)}, file)
    elif reading.lost:
        dropped.unread.add("a lost GPU without an address", file.name)
    if not reading.lost:
        dropped.add_reading(reading_row(reading, state), file)


def _add_lost_gpus(
    dropped: HostFileRows,
    host: str | None,
    file: HostFileText,
    readings: Sequence[GpuReading],
    *,
    offset: int,
) -> None:
    """Add the GPUs that lines of the file report as lost."""
    moment = next((_moment(r, offset) for r in readings if r.time is not None), None)
    lost = lost_gpus(file.text, measured_gpus(readings))
    for pci in lost:
        reading = GpuReading(pci=pci, lost=True, time=moment if file.time is None else file.time)
        _add_gpu(dropped, host, file, reading, ())
    if lost and no_gpu_message(file.text):
        read_no_gpu_message(dropped, host, file)


def read_no_gpu_message(dropped: HostFileRows, host: str | None, file: HostFileText) -> None:
    """Record that no GPU of a host could be read, which proves nothing about any GPU."""
    message = no_gpu_message(file.text)
    dropped.unread.add("a file in which nvidia-smi could read no GPU", f"{file.name}: {message}")
    if file.time is not None:
        row = finding_row("blind", f"nvidia-smi: {message}", HostState(host, file.time))
        dropped.events.append(row | {"known_at": file.time})
