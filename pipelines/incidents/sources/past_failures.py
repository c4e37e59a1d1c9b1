"""Past failures from records, the failures table, or another file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.telemetry.failure_evidence import PRESUMED
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.storage.records.parquet_files import read_parquet
from forewarn.pipelines.storage.records.table_columns import read_names, read_serials, read_times
from forewarn.pipelines.storage.records.text_tables import read_texts
from forewarn.response.replay.fleet_history import PastFailure

__all__ = ["failures_from_records", "merge_failures", "read_failures"]


def read_failures(path: Path, machine_of: Mapping[str, str]) -> list[PastFailure]:
    """Read a failures table, Parquet or CSV, with at least `gpu_serial` and `failed_at`.

    A presumed end is not a repair; the repair time of such a failure is unknown.

    Parameters
    ----------
    path : Path
    machine_of : mapping of str to str
        Machines by serial; a GPU without one counts as its own machine.

    Raises
    ------
    RecordsError, JobError
        If the file cannot be read or lacks a column.
    """
    table = read_texts(path) if path.suffix == ".csv" else read_parquet(path)
    for name in ("gpu_serial", "failed_at"):
        if name not in table.column_names:
            present = ", ".join(table.column_names)
            raise JobError(f"{path}: column `{name}` is missing, found {present}.")
    moments = [
        read_times(table, name, path).to_pylist()
        for name in ("failed_at", "repaired_at", "known_at")
    ]
    sources = read_names(table, "end_source", path).to_pylist()
    serials = read_serials(table, path).to_pylist()
    rows = zip(serials, *moments, sources, _causes(table), strict=True)
    return [
        PastFailure(
            machine_of.get(serial, serial),
            serial,
            failed,
            known or failed,
            None if source == PRESUMED else repaired,
            cause,
        )
        for serial, failed, repaired, known, source, cause in rows
        if serial is not None and failed is not None
    ]


def _causes(table: pa.Table) -> list[str]:
    if "cause" not in table.column_names:
        return [""] * len(table)
    return [str(cause or "") for cause in table["cause"].to_pylist()]


def failures_from_records(
    failures: Failures, serials: Sequence[str], machine_of: Mapping[str, str]
) -> list[PastFailure]:
    """Return the failures in the column `failure`."""
    rows = zip(
        failures.gpu.tolist(),
        failures.failed_at.tolist(),
        failures.repaired_at.tolist(),
        failures.known_at.tolist(),
        strict=True,
    )
    return [
        PastFailure(
            machine_of.get(serials[gpu], serials[gpu]),
            serials[gpu],
            Nanoseconds(failed),
            Nanoseconds(known),
            None if repaired == NEVER else Nanoseconds(repaired),
        )
        for gpu, failed, repaired, known in rows
    ]


def merge_failures(failures: Iterable[PastFailure]) -> list[PastFailure]:
    """Return the failures by GPU and time, with reports of the same failure merged.

    If the repair time is unknown, another failure within a day is the same one.
    """
    episodes: list[PastFailure] = []
    for failure in sorted(failures, key=lambda f: (f.gpu_serial, f.failed_at, f.cause)):
        last = episodes[-1] if episodes else None
        if last is None or last.gpu_serial != failure.gpu_serial or not _same(last, failure):
            episodes.append(failure)
            continue
        repairs = [f.repaired_at for f in (last, failure) if f.repaired_at is not None]
        episodes[-1] = replace(
            last,
            known_at=min(last.known_at, failure.known_at),
            repaired_at=max(repairs, default=None),
            # A cause from a person or the records is more specific than an Xid.
            cause=min(last.cause, failure.cause, key=_by_machine_alone),
        )
    return episodes


def _same(first: PastFailure, second: PastFailure) -> bool:
    until = first.failed_at + DAY if first.repaired_at is None else first.repaired_at
    return second.failed_at <= until


def _by_machine_alone(cause: str) -> bool:
    return cause.startswith(("xid ", GPU_ERROR)) or cause in ("lost", "needs_reset")
