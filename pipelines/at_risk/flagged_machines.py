"""The machines that the newest list flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.at_risk.review import read_lists
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import iso

__all__ = ["FlaggedMachines", "newest_flagged"]


@dataclass(frozen=True, slots=True)
class FlaggedMachines:
    """What one list says.

    Attributes
    ----------
    date : str
        Of the list.
    valid_until : int
        Nanoseconds since 1970 UTC: when the first of its rows ends to be valid.
    machines : tuple of str
        The machine of each flagged GPU that has one, the GPU most at risk first.
    """

    date: str
    valid_until: Nanoseconds
    machines: tuple[str, ...]


def newest_flagged(at_risk: Path, at: int) -> FlaggedMachines:
    """Return what the newest list says that is valid at a moment.

    Raises
    ------
    JobError
        If there is none, or it does not name machines.
    """
    lists = read_lists(at_risk)
    if "machine_id" not in lists:
        raise JobError(f"{at_risk}: the lists have no column `machine_id`, expected machines.")
    moment = pd.Timestamp(at, tz="UTC")
    begins = pd.to_datetime(lists["window_end"], utc=True)
    ends = pd.to_datetime(lists["valid_until"], utc=True)
    valid = lists[(begins <= moment) & (moment < ends)]
    if valid.empty:
        newest = lists["list"].max() if len(lists) else "none"
        raise JobError(
            f"{at_risk}: no list is valid at {iso(at)}, the newest is that of {newest}; expected "
            "what `forewarn score` writes each day."
        )
    date = str(valid["list"].max())
    rows = valid[valid["list"] == date]
    named = rows[rows["flagged"].astype(bool) & rows["machine_id"].notna()]
    return FlaggedMachines(
        date,
        Nanoseconds(int(ends[rows.index].min().as_unit("ns").value)),
        tuple(named["machine_id"].astype(str)),
    )
