"""Converts the tables of ../shared/data/azure_pdm to GPU records (formats.md, section 1).

A site with its own telemetry would write such a converter once; the packages know nothing of it. It
is a script, so that tests, the notebook and people run it in the same way:

    python tests/real_data/azure_records.py ../shared/data/azure_pdm RECORDS

- The machine is what fails, so its number is the serial. It has no host, so there is no
  `machine_id`.
- An event goes into the record of the hour that ends with it. A record has room for one code:
  of several errors in one hour (16 hours of 43,200 records) the largest number is stored.
- The machine keeps running: a failed component is replaced at once and the telemetry goes on.
  The record stamped with the hour of the failure still shows the old component (the readings jump
  back one record later), so `repaired_at` is one hour after `failed_at`: this record counts as
  failed, and the next one starts a new life.
- Times without a zone are UTC.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

__all__ = ["write_records"]

INTERVAL = pd.Timedelta("1h")
KEYS = ["machineID", "timestamp"]


def _table(source: Path, name: str) -> pd.DataFrame:
    """Read a table with a time; each time becomes the end of its hour."""
    table = pd.read_csv(source / f"PdM_{name}.csv", parse_dates=["datetime"])
    table["timestamp"] = table.pop("datetime").dt.tz_localize("UTC").dt.ceil(INTERVAL)
    return table


def _serial(machine: pd.Series[int]) -> pd.Series[str]:
    return "M" + machine.astype(str).str.zfill(3)


def _records(source: Path) -> pd.DataFrame:
    errors = _table(source, "errors")
    errors["error"] = errors.pop("errorID").str.removeprefix("error").astype(int)
    machines = pd.read_csv(source / "PdM_machines.csv").astype({"age": float})
    table = _table(source, "telemetry").merge(machines, on="machineID", validate="many_to_one")
    table = table.merge(errors.groupby(KEYS, as_index=False)["error"].max(), on=KEYS, how="left")
    table["error"] = table["error"].fillna(0).astype("int8")
    table.insert(0, "gpu_serial", _serial(table.pop("machineID")))
    return table


def _failures(source: Path) -> pd.DataFrame:
    table = _table(source, "failures").rename(columns={"failure": "cause"})
    table.insert(0, "gpu_serial", _serial(table.pop("machineID")))
    table = table.rename(columns={"timestamp": "failed_at"})
    return table.assign(repaired_at=table["failed_at"] + INTERVAL)


def write_records(source: Path, folder: Path) -> None:
    """Write `folder`/date=.../part-0.parquet and `folder`/failures.parquet."""
    records = _records(source)
    for date, rows in records.groupby(records["timestamp"].dt.date):
        partition = folder / f"date={date}"
        partition.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(partition / "part-0.parquet", index=False)
    _failures(source).to_parquet(folder / "failures.parquet", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write GPU records of the tables in a folder.")
    parser.add_argument("source", type=Path, help="folder with PdM_telemetry.csv and the others")
    parser.add_argument("records", type=Path, help="folder to write")
    arguments = parser.parse_args()
    write_records(arguments.source, arguments.records)
