"""Days whose records are complete, so that their at-risk list can be made."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.record_table import SERIAL, TIMESTAMP
from forewarn.features.time_units import DAY
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.records.mapped_columns import read_named
from forewarn.pipelines.storage.records.table_columns import read_times

__all__ = ["complete_days"]


def complete_days(
    records: Path, interval: int, now: int, names: ColumnNames = OUR_NAMES
) -> list[str]:
    """Return the past days on which most GPUs were seen until the end of the day.

    Days before a complete day are complete as well, since no more rows are awaited for them.

    Parameters
    ----------
    records : Path
    interval : int
        Nanoseconds between two records.
    now : int
        Days that end later are incomplete.
    names : ColumnNames, optional
        Names of the columns in the records.
    """
    dates = sorted(path.name.removeprefix("date=") for path in records.glob("date=*"))
    seen_later: set[str] = set()
    for date in reversed(dates):
        midnight = parse_moment(date) + DAY
        times = _last_seen(records / f"date={date}", now + MAX_CLOCK_SKEW, names)
        ended = {gpu for gpu, time in times.items() if time >= midnight - interval}
        if midnight <= now and 2 * len(times.keys() & (ended | seen_later)) > len(times):
            return [before for before in dates if before <= date]
        seen_later |= times.keys()
    return []


def _last_seen(partition: Path, latest: int, names: ColumnNames) -> dict[str, int]:
    """Return the last time of each GPU in a partition; rows after `latest` are ignored."""
    last_seen: dict[str, int] = {}
    for path in sorted(partition.glob("[!._]*.parquet")):
        table = read_named(path, (SERIAL, TIMESTAMP), names)
        times = read_times(table, TIMESTAMP, path).to_numpy(zero_copy_only=False)
        frame = pd.DataFrame({"gpu": table[SERIAL].to_pandas().to_numpy(), "time": times})
        newest = frame[frame["time"] <= latest].groupby("gpu", observed=True)["time"].max()
        for gpu, time in newest.items():
            last_seen[str(gpu)] = max(last_seen.get(str(gpu), 0), int(time))
    return last_seen
