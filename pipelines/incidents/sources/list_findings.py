"""Findings from past at-risk lists: the flagged GPUs of each day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.parquet_files import read_parquet
from forewarn.pipelines.storage.records.table_columns import read_serials, read_times
from forewarn.response.replay.fleet_history import PastFinding
from forewarn.response.state.finding import Finding, FindingKind

__all__ = ["PastList", "list_findings", "read_list"]

_TEXTS = ("machine_id", "model_version")
_NEEDED = ("gpu_serial", "window_end", "valid_until", "flagged")


@dataclass(frozen=True, slots=True)
class PastList:
    """A daily list.

    Attributes
    ----------
    known_at : int
        End of its newest window, in nanoseconds since 1970 UTC; the end of its day if it is empty.
    findings : list of PastFinding
        The flagged GPUs, possibly none.
    """

    known_at: Nanoseconds
    findings: list[PastFinding]


def list_findings(at_risk: Path, machine_of: Mapping[str, str]) -> Iterator[PastFinding]:
    """Yield the flagged GPUs of all lists below a folder, except lists made in hindsight.

    The time of a list is the end of its newest window.

    Parameters
    ----------
    at_risk : Path
    machine_of : mapping of str to str
        Machines by serial, for lists without machines.

    Raises
    ------
    RecordsError, JobError
        If there is no list, or one cannot be used.
    """
    paths = matching_paths(at_risk, "date=*/at_risk.parquet")
    if not paths:
        raise JobError(f"{at_risk}: contains no list, expected date=YYYY-MM-DD/at_risk.parquet.")
    for path in paths:
        past = read_list(path, machine_of)
        if past is None:
            note(f"{path}: made in hindsight, skipped")
        else:
            yield from past.findings


def read_list(path: Path, machine_of: Mapping[str, str]) -> PastList | None:
    """Read one list; return None if it was made in hindsight.

    Raises
    ------
    RecordsError, JobError
        If it cannot be used.
    """
    table = _checked(read_parquet(path), path)
    if "hindsight" in table.column_names and pc.any(table["hindsight"]).as_py():
        return None
    known = pc.max(read_times(table, "window_end", path)).as_py()
    if known is None:
        known = _end_of_day(path)
    return PastList(Nanoseconds(known), list(_flagged(table, path, machine_of, known)))


def _end_of_day(path: Path) -> int:
    """Return the end of the day in a list's folder name."""
    day = path.parent.name.removeprefix("date=")
    try:
        return parse_moment(day) + DAY
    except ValueError:
        raise JobError(f"{path}: found day {day!r}, expected one such as 2025-03-01.") from None


def _checked(table: pa.Table, path: Path) -> pa.Table:
    absent = [name for name in _NEEDED if name not in table.column_names]
    if absent:
        raise JobError(f"{path}: column `{absent[0]}` is missing.")
    if not pa.types.is_boolean(table["flagged"].type):
        kind = table["flagged"].type
        raise JobError(f"{path}: column `flagged` is {kind}, expected true or false in every row.")
    for name in _TEXTS:
        if name in table.column_names and not _is_text(table[name].type):
            raise JobError(f"{path}: column `{name}` is {table[name].type}, expected text.")
    return table


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        fits(kind) for fits in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    )


def _flagged(
    table: pa.Table, path: Path, machine_of: Mapping[str, str], known: int
) -> Iterator[PastFinding]:
    rows = table.filter(pc.fill_null(table["flagged"], False))
    until = read_times(rows, "valid_until", path).to_pylist()
    empty = [None] * len(rows)
    machines, probabilities, versions = (
        rows[name].to_pylist() if name in rows.column_names else empty
        for name in ("machine_id", "probability", "model_version")
    )
    serials = read_serials(rows, path).to_pylist()
    for serial, machine, valid_until, probability, version in zip(
        serials, machines, until, probabilities, versions, strict=True
    ):
        if serial is None or valid_until is None:
            continue
        finding = Finding(
            source="at_risk",
            id=f"{serial} {path.parent.name[5:]}",
            kind=FindingKind.AT_RISK,
            cause="at_risk",
            machine=machine or machine_of.get(serial, serial),
            at=Nanoseconds(known),
            valid_until=Nanoseconds(valid_until),
            gpu_serial=serial,
            evidence={} if probability is None else {"probability": probability},
            model_version=version or "",
        )
        yield PastFinding(Nanoseconds(known), finding)
