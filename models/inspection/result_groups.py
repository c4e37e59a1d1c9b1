"""Results of one check on machines of equal hardware and software, as quantile functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.features.errors import InputError
from forewarn.features.inspection.check_table import CheckTable
from forewarn.models.inspection.distributions import quantile_functions

__all__ = ["UNIT", "ResultGroup", "hardware_of", "newest_runs", "result_groups"]

UNIT: Final = ["check", "machine", "slot"]
"""Columns that identify what a check measures: a machine, or a part of it."""

_RUNS: Final = 2  # the newest run is judged, the one before confirms it
_ACCEPTED: Final = -1
_INVENTORY: Final = frozenset({"identity", "software"})
_HARDWARE: Final = ("hardware", "board", "cpu", "gpu")


@dataclass(frozen=True, slots=True)
class ResultGroup:
    """Values of one check on comparable units, a row for each run of a unit.

    Attributes
    ----------
    check : str
    rows : pandas.DataFrame
        `machine`, `slot`, `run` and `age` of each row: 0 for the newest run of the unit, 1 for the
        one before, -1 for its accepted values.
    quantiles : Float64Array of shape (n_rows, n_levels)
    counts : Int64Array of shape (n_rows,)
        Values of each row.
    """

    check: str
    rows: pd.DataFrame
    quantiles: Float64Array
    counts: Int64Array

    def at_age(self, age: int) -> BoolArray:
        """Tell which rows have an age."""
        return (self.rows["age"] == age).to_numpy()

    @property
    def newest(self) -> BoolArray:
        """Rows of newest runs."""
        return self.at_age(0)

    def accepted_rows(self) -> Int64Array:
        """Return for each row the number of the row with accepted values, -1 without."""
        units = pd.MultiIndex.from_frame(self.rows[["machine", "slot"]])
        numbers = np.flatnonzero(self.at_age(_ACCEPTED))
        positions = units[numbers].get_indexer(units)
        return np.where(positions < 0, -1, np.append(numbers, -1)[positions])


def newest_runs(results: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the two newest runs of each unit, with their `age`.

    Parameters
    ----------
    results : pandas.DataFrame
        In the columns of `check_results`, with an empty `slot` for a whole machine.

    Raises
    ------
    InputError
        If a row occurs twice: it would count as two measurements.
    """
    identity = [*UNIT, "run", "timestamp"]
    doubled = results.duplicated(identity)
    if doubled.any():
        row = results.loc[doubled, identity].iloc[0]
        raise InputError(
            f"the results have two rows of check {row['check']!r} on {row['machine']} at "
            f"{row['timestamp']}, expected one."
        )
    starts = results.groupby([*UNIT, "run"], sort=False, observed=True)["timestamp"].min()
    ages = starts.groupby(UNIT, sort=False).rank(method="first", ascending=False) - 1
    aged = results.join(ages.astype(np.int64).rename("age"), on=[*UNIT, "run"])
    return aged[aged["age"] < _RUNS]


def result_groups(
    runs: pd.DataFrame, accepted: pd.DataFrame, checks: Mapping[str, CheckTable]
) -> Iterator[ResultGroup]:
    """Yield the groups that have values, by check, hardware and software.

    Parameters
    ----------
    runs : pandas.DataFrame
        Of `newest_runs`.
    accepted : pandas.DataFrame
        Accepted values in the same columns; those of other versions are not used.
    checks : mapping of str to CheckTable
        Checks without a definition are left out.
    """
    everything = pd.concat([runs, accepted.assign(age=_ACCEPTED, run="")], ignore_index=True)
    usable = everything[everything["value"].notna() & everything["check"].isin(list(checks))]
    inventory = [name for name, check in checks.items() if check.category in _INVENTORY]
    versions = usable["versions"].fillna("")
    hardware = {text: _definition_on_hardware(text) for text in versions.unique()}
    alike = versions.where(~usable["check"].isin(inventory), versions.map(hardware))
    for (check, _), rows in usable.groupby([usable["check"], alike], sort=True):
        yield _group(str(check), rows)


def hardware_of(versions: str) -> str:
    """Return the hardware that the versions of a result name; empty if they name none.

    Examples
    --------
    >>> hardware_of('{"board": "X12", "gpu": "H100", "driver": "550.54"}')
    'X12, H100'
    """
    content = _parsed(versions)
    return ", ".join(str(content[name]) for name in _HARDWARE if content.get(name))


def _parsed(versions: str) -> dict[str, object]:
    try:
        content = json.loads(versions)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _definition_on_hardware(versions: str) -> str:
    """Return what makes an inventory comparable, whatever software is installed."""
    return f"{_parsed(versions).get('definition', '')} {hardware_of(versions)}"


def _group(check: str, rows: pd.DataFrame) -> ResultGroup:
    ordered = rows.sort_values(["machine", "slot", "age", "run"], kind="stable")
    sizes = ordered.groupby(["machine", "slot", "age", "run"], sort=True).size()
    counts = sizes.to_numpy().astype(np.int64)
    values = ordered["value"].to_numpy(dtype=np.float64)
    units = sizes.index.to_frame(index=False)
    return ResultGroup(check, units, quantile_functions(values, counts), counts)
