"""Writes a simulated fleet to a folder, like a collector and a CMDB would."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from forewarn.evaluation.simulation.fleet.fleet_simulator import simulate_fleet
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.csv_table import write_csv
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["simulate_fleet_to"]


def _write_records(records: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(records, preserve_index=False).replace_schema_metadata(None)
    with replacing(path) as hidden:
        pq.write_table(table, arrow_path(hidden), compression="zstd")


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    with replacing(path) as hidden:
        write_csv(table, hidden)


def simulate_fleet_to(
    out: Path, *, n_gpus: int, n_days: int, seed: int, progress: bool = True
) -> None:
    """Simulate a fleet and write its records, its CMDB and the ground truth about its failures.

    Writes `out/records/date=YYYY-MM-DD/part-0.parquet`, `out/cmdb.csv` and `out/truth.csv`. Files
    of these names are replaced atomically; nothing else in `out` is changed.

    Parameters
    ----------
    out : pathlib.Path
        Folder; created if it does not exist.
    n_gpus, n_days : int
        At least 1.
    seed : int
        Not negative; the same seed gives identical files.
    progress : bool
        Show progress on stderr if it is a terminal.

    Raises
    ------
    ValueError
        If a number is out of range; nothing is written then.
    """
    options = (("--gpus", n_gpus, 1), ("--days", n_days, 1), ("--seed", seed, 0))
    for option, value, lowest in options:
        if value < lowest:
            raise ValueError(f"`{option}` must be at least {lowest}, got {value}.")
    run = simulate_fleet(n_gpus=n_gpus, n_days=n_days, seed=seed)
    hide = None if progress else True  # None: tqdm shows itself only on a terminal
    days = tqdm(run, desc="simulate", unit="day", file=sys.stderr, disable=hide)
    for day in days:
        _write_records(day.records, out / "records" / f"date={day.date}" / "part-0.parquet")
    _write_csv(run.cmdb(), out / "cmdb.csv")
    _write_csv(run.truth(), out / "truth.csv")
