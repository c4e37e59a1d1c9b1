"""What `forewarn doctor` finds in one file, as plain values that any worker can return."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.column_survey import ColumnSurvey, FloatSurvey
from forewarn.features.records.file_check import Columns, Keys, Values, check_keys, check_values
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.table import DAY, MACHINE, FeatureKinds
from forewarn.pipelines.storage.parquet_files import work_on_columns
from forewarn.pipelines.storage.remote_path import Location

__all__ = ["FileKeys", "survey_file"]

Codes = npt.NDArray[np.int32]
_EPOCH = dt.date(1970, 1, 1).toordinal()


class FileKeys(NamedTuple):
    """The keys of the rows of a file that have them, by GPU and time."""

    gpu: Codes
    time: npt.NDArray[np.int64]
    machine: Codes
    failed: npt.NDArray[np.bool_]


def survey_file(item: tuple[Location, dt.date, dict[str, tuple[str, ...]]]) -> dict[str, Any]:
    """Read a file of a date with the columns that it has, and count what is wrong with it.

    Parameters
    ----------
    item : tuple
        Path, date of its folder, and the columns by kind.

    Returns
    -------
    dict
        Plain values: `keys` number the texts in `serials` and `machines`, `columns` and `floats`
        are fields of surveys, `absent` names the columns that the file lacks.

    Raises
    ------
    RecordsError
        If it cannot be read, or a column has the wrong type.
    """
    path, date, by_kind = item
    kinds = FeatureKinds(**by_kind)
    keys, values = _checked(path, kinds)
    machine = values.texts.get(MACHINE)
    rows = np.flatnonzero(keys.keep)
    rows = rows[stable_order(keys.serial.codes[rows], keys.time[rows])]
    gpu, time = keys.serial.codes[rows], keys.time[rows]
    days = time // DAY
    machines = np.full(len(rows), -1, np.int32) if machine is None else machine.codes[rows]
    return {
        "keys": tuple(FileKeys(gpu, time, machines, keys.failed[rows])),
        "serials": keys.serial.texts,
        "machines": () if machine is None else machine.texts,
        "without_key": len(keys.keep) - len(rows),
        "misfiled": int((days != date.toordinal() - _EPOCH).sum()),
        "days": np.unique(days, return_counts=True),
        "absent": sorted(set(kinds.names) - set(values.nulls) - set(values.texts)),
        **_columns(kinds, keys, values, rows),
    }


def _checked(path: Location, kinds: FeatureKinds) -> tuple[Keys, Values]:
    def check(columns: Columns) -> tuple[Keys, Values]:
        present = kinds.among(columns.column_names)
        keys = check_keys(columns, file=str(path))
        return keys, check_values(columns, file=str(path), kinds=present, optional=(MACHINE,))

    return work_on_columns(path, check)


def _columns(
    kinds: FeatureKinds, keys: Keys, values: Values, rows: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Return the fields of the surveys of all columns of numbers."""
    numbers: dict[str, npt.NDArray[Any]] = values.numbers | values.counts
    gpu, serials = keys.serial.codes[rows], keys.serial.texts
    surveys = []
    for name, column in numbers.items():
        survey, counter = ColumnSurvey(name), name in kinds.counter
        survey.add(column[rows], counter=counter)
        if counter:
            survey.add_resets(column[rows], gpu, serials)
        surveys.append(asdict(survey))
    floats = FloatSurvey()
    moving = {name: numbers[name][rows] for name in kinds.float if name in numbers}
    floats.add(moving, gpu, serials)
    return {"columns": surveys, "floats": asdict(floats)}
