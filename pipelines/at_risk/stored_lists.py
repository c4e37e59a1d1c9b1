"""Reading of past lists, and the machines flagged by the newest one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.parquet_files import read_parquet

__all__ = ["FlaggedMachines", "newest_flagged", "read_lists"]

_REQUIRED_COLUMNS = ("gpu_serial", "window_end", "valid_until", "flagged")
_COLUMNS = (*_REQUIRED_COLUMNS, "machine_id", "probability", "model_version", "action")


def read_lists(at_risk: Path) -> pd.DataFrame:
    """Read the lists of all days below `at_risk`, except those made in hindsight.

    Raises
    ------
    JobError
        If there is no such list, or one lacks a column.
    """
    paths = matching_paths(at_risk, "date=*/at_risk.parquet")
    if not paths:
        raise JobError(f"{at_risk}: holds no list, expected date=YYYY-MM-DD/at_risk.parquet.")
    frames = []
    for path in paths:
        table = read_parquet(path)
        absent = [name for name in _REQUIRED_COLUMNS if name not in table.column_names]
        if absent:
            raise JobError(f"{path}: column `{absent[0]}` is missing.")
        _check_types(path, table)
        if "hindsight" in table.column_names and pc.any(table["hindsight"]).as_py():
            note(f"{path}: was made in hindsight; skipped")
            continue
        present = [name for name in _COLUMNS if name in table.column_names]
        frames.append(table.select(present).to_pandas().assign(list=path.parent.name[5:]))
    if not frames:
        raise JobError(f"{at_risk}: every list was made in hindsight, expected one that was not.")
    lists: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return lists


def _check_types(path: Path, table: pa.Table) -> None:
    for name in ("window_end", "valid_until"):
        if not pa.types.is_timestamp(table[name].type):
            kind = table[name].type
            raise JobError(f"{path}: column `{name}` is {kind}, expected a timestamp.")
    if not pa.types.is_boolean(table["flagged"].type) or table["flagged"].null_count:
        kind = table["flagged"].type
        raise JobError(f"{path}: column `flagged` is {kind}, expected true or false in every row.")


@dataclass(frozen=True, slots=True)
class FlaggedMachines:
    """Flagged machines of one list.

    Attributes
    ----------
    date : str
        Date of the list.
    valid_until : int
        Nanoseconds since 1970 UTC at which the first of its rows expires.
    machines : tuple of str
        Known machines of the flagged GPUs, the highest risk first.
    """

    date: str
    valid_until: Nanoseconds
    machines: tuple[str, ...]


def newest_flagged(at_risk: Path, at: int) -> FlaggedMachines:
    """Return the flagged machines of the newest list that is valid at a moment.

    Raises
    ------
    JobError
        If there is none, or it does not contain machines.
    """
    lists = read_lists(at_risk)
    if "machine_id" not in lists:
        raise JobError(f"{at_risk}: the lists have no column `machine_id`, expected one.")
    moment = pd.Timestamp(at, tz="UTC")
    begins = pd.to_datetime(lists["window_end"], utc=True)
    ends = pd.to_datetime(lists["valid_until"], utc=True)
    valid = lists[(begins <= moment) & (moment < ends)]
    if valid.empty:
        newest = lists["list"].max() if len(lists) else "none"
        raise JobError(
            f"{at_risk}: no list is valid at {format_iso(at)}, the newest is from {newest}; "
            "expected a current list, which `forewarn score` writes each day."
        )
    date = str(valid["list"].max())
    rows = valid[valid["list"] == date]
    named = rows[rows["flagged"].astype(bool) & rows["machine_id"].notna()]
    return FlaggedMachines(
        date,
        Nanoseconds(int(ends[rows.index].min().as_unit("ns").value)),
        tuple(named["machine_id"].astype(str)),
    )
