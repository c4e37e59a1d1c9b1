"""Converts a table of ../shared/data/drives to GPU records (formats.md, section 1).

A site with its own telemetry would write such a converter once; the packages know nothing of it. It
is a script, so that tests, the notebook and people run it in the same way:

    python tests/real_data/drives_records.py ../shared/data/drives/ST31500541AS.parquet RECORDS

- A drive is what fails, so its serial is the GPU's. It has no host, so there is no `machine_id`.
- A row of the table is a span of power-on hours without a change. It becomes one record a day:
  the k-th is stamped with midnight k days after the drive's first day.
- A failed drive was last read on the day of its failure. `failed_at` is one day after that
  record, so that the record counts as seen before the failure, as it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["write_records"]

DAY = pd.Timedelta("1D")
HOURS = 24


def _records(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one record for each day that starts in a span."""
    first, last = (
        -(-(spans[name] - spans["first_hours"]) // HOURS) for name in ("from_hours", "to_hours")
    )
    days = last - first
    records = spans.loc[spans.index.repeat(days)].reset_index(drop=True)
    before = np.repeat((days.cumsum() - days - first).to_numpy(), days.to_numpy())
    day = np.arange(len(records)) - before + 1
    begin = pd.to_datetime(records["first_day"]).dt.tz_localize("UTC")
    smart = [name for name in spans.columns if name.startswith("smart_")]
    return pd.DataFrame(
        {
            "gpu_serial": records["serial"],
            "timestamp": (begin + pd.to_timedelta(day, unit="D")).astype("datetime64[us, UTC]"),
            **{name: records[name] for name in smart},
        }
    )


def _failures(spans: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    failed = spans.loc[spans["failed"] == 1, "serial"]
    last = records[records["gpu_serial"].isin(failed)].groupby("gpu_serial")["timestamp"].max()
    return pd.DataFrame({"gpu_serial": last.index, "failed_at": last.to_numpy() + DAY})


def write_records(table: Path, folder: Path) -> None:
    """Write `folder`/date=.../part-0.parquet and `folder`/failures.parquet."""
    spans = pd.read_parquet(table).sort_values(["serial", "from_hours"]).reset_index(drop=True)
    records = _records(spans)
    for date, rows in records.groupby(records["timestamp"].dt.date):
        partition = folder / f"date={date}"
        partition.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(partition / "part-0.parquet", index=False)
    _failures(spans, records).to_parquet(folder / "failures.parquet", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write GPU records of a table of drives.")
    parser.add_argument("table", type=Path, help="ST31500541AS.parquet or another model's")
    parser.add_argument("records", type=Path, help="folder to write")
    arguments = parser.parse_args()
    write_records(arguments.table, arguments.records)
