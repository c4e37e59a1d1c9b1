"""Findings of past at-risk lists: the flagged GPUs of each day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.parquet_files import read_parquet
from forewarn.pipelines.storage.table_columns import moments_of, serials_of
from forewarn.response.finding import Finding, FindingKind
from forewarn.response.past import PastFinding

__all__ = ["list_findings"]

_NEEDED = ("gpu_serial", "window_end", "valid_until", "flagged")


def list_findings(
    at_risk: Path, machine_of: Mapping[str, str], *, since: str = ""
) -> Iterator[PastFinding]:
    """Yield the flagged GPUs of all lists below a folder; of what hindsight made, none.

    A list was known when its newest window ended.

    Parameters
    ----------
    at_risk : Path
    machine_of : mapping of str to str
        Of serials, where a list does not say.
    since : str, optional
        Date of the first list to read, YYYY-MM-DD.

    Raises
    ------
    RecordsError, JobError
        If there is no list, or one cannot be used.
    """
    paths = sorted(at_risk.glob("date=*/at_risk.parquet"))
    if not paths:
        raise JobError(f"{at_risk}: holds no list, expected date=YYYY-MM-DD/at_risk.parquet.")
    for path in paths:
        if path.parent.name < f"date={since}":
            continue
        table = _checked(read_parquet(path), path)
        if "hindsight" in table.column_names and pc.any(table["hindsight"]).as_py():
            note(f"{path}: made in hindsight and left out")
        else:
            yield from _flagged(table, path, machine_of)


def _checked(table: pa.Table, path: Path) -> pa.Table:
    absent = [name for name in _NEEDED if name not in table.column_names]
    if absent:
        raise JobError(f"{path}: column `{absent[0]}` is missing.")
    if not pa.types.is_boolean(table["flagged"].type):
        kind = table["flagged"].type
        raise JobError(f"{path}: column `flagged` is {kind}, expected true or false in every row.")
    return table


def _flagged(table: pa.Table, path: Path, machine_of: Mapping[str, str]) -> Iterator[PastFinding]:
    known = pc.max(moments_of(table, "window_end", path)).as_py()
    rows = table.filter(pc.fill_null(table["flagged"], False))
    until = moments_of(rows, "valid_until", path).to_pylist()
    empty = [None] * len(rows)
    machines, chances, versions = (
        rows[name].to_pylist() if name in rows.column_names else empty
        for name in ("machine_id", "probability", "model_version")
    )
    serials = serials_of(rows, path).to_pylist()
    for serial, machine, valid_until, chance, version in zip(
        serials, machines, until, chances, versions, strict=True
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
            evidence={} if chance is None else {"probability": chance},
            model_version=version or "",
        )
        yield PastFinding(Nanoseconds(known), finding)
