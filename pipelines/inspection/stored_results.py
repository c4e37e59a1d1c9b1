"""Results of inspections in files, and the values with which machines were accepted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa

from forewarn.features.inspection.check_results import RESULTS, CheckResultsError, check_results
from forewarn.features.inspection.check_table import UNITS, CheckTable
from forewarn.models.inspection.result_groups import hardware_of
from forewarn.pipelines.inspection.result_files import read_results
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.pipelines.storage.records.parquet_files import read_parquet

__all__ = ["check_units", "read_accepted", "read_result_frame", "require_same_hardware"]

ACCEPTED_FILE = "accepted.parquet"
"""File of the values with which a machine was accepted, in the folder of its certificate."""


def read_result_frame(path: Path, machine: str | None = None) -> pd.DataFrame:
    """Read results, with an empty `slot` for a whole machine.

    Parameters
    ----------
    path : Path
        A Parquet file, or a folder of `inspect run`.
    machine : str, optional
        Only results of this machine.

    Raises
    ------
    InputError
        If there is no result, or a file is invalid.
    """
    results = _frame([read_results(path)], machine)
    if results.empty:
        about = "" if machine is None else f" about {machine}"
        raise CheckResultsError(f"{path}: holds no result{about}, expected some.")
    return results


def read_accepted(folder: Path | None) -> pd.DataFrame:
    """Read the values with which machines were accepted; none without a folder.

    Raises
    ------
    InputError
        If a file is invalid.
    """
    files = [] if folder is None else matching_paths(folder, f"*/{ACCEPTED_FILE}")
    return _frame([check_results(read_parquet(file), file) for file in files], None)


def _frame(tables: list[pa.Table], machine: str | None) -> pd.DataFrame:
    table = pa.concat_tables([RESULTS.empty_table(), *tables])
    frame: pd.DataFrame = table.to_pandas()
    frame["slot"] = frame["slot"].fillna("")
    frame["versions"] = frame["versions"].fillna("")
    return frame if machine is None else frame[frame["machine"] == machine]


def check_units(results: pd.DataFrame, checks: Mapping[str, CheckTable], source: Path) -> None:
    """Reject results in another unit than that of their check.

    Raises
    ------
    CheckResultsError
        If there is one.
    """
    stated = results.loc[results["unit"].notna(), ["check", "unit"]].drop_duplicates()
    for name, unit in stated.itertuples(index=False):
        if unit not in UNITS:
            raise CheckResultsError(
                f"{source}: column `unit` has {unit[:60]!r}, expected one of "
                f"{', '.join(sorted(UNITS))}."
            )
        if name in checks and unit != checks[name].value.unit:
            raise CheckResultsError(
                f"{source}: column `unit` has {unit!r} for check {name!r}, expected "
                f"{checks[name].value.unit!r}."
            )


def require_same_hardware(results: pd.DataFrame, accepted: pd.DataFrame, source: Path) -> list[str]:
    """Return the machines that were accepted with other hardware than they have now.

    Raises
    ------
    CheckResultsError
        If one run states two kinds of hardware for a machine, or no machine has the hardware with
        which it was accepted: then the values are of another fleet.
    """
    now = _hardware_by_machine(results)
    several = now.groupby(["machine", "run"])["hardware"].nunique()
    if (several > 1).any():
        machine, run = several[several > 1].index[0]
        raise CheckResultsError(
            f"{source}: run {run!r} has results of {machine} with two kinds of hardware, "
            "expected one."
        )
    before = _hardware_by_machine(accepted).groupby("machine")["hardware"].agg(set)
    newest = now.groupby("machine")["hardware"].last()
    both = newest.index.intersection(before.index)
    changed = [name for name in both if newest[name] not in before[name]]
    if changed and len(changed) == len(both):
        name = changed[0]
        raise CheckResultsError(
            f"{source}: {name} has the hardware {newest[name]!r}, but was accepted with "
            f"{min(before[name])!r}. Accept it again, or leave out `--accepted`."
        )
    return changed


def _hardware_by_machine(results: pd.DataFrame) -> pd.DataFrame:
    stated = results[["machine", "run", "versions", "timestamp"]].drop_duplicates(
        ["machine", "run", "versions"]
    )
    known = {text: hardware_of(text) for text in stated["versions"].unique()}
    return stated.sort_values("timestamp", kind="stable").assign(
        hardware=stated["versions"].map(known)
    )
