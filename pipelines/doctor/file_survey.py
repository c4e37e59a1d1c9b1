"""What `forewarn doctor` finds in one file, as plain values that any worker can return."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.records.column_survey import ColumnSurvey, FloatSurvey
from forewarn.features.records.file_check import Columns, Keys, Values, check_keys, check_values
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.table import DAY, MACHINE, SLOT, FeatureKinds
from forewarn.pipelines.storage.parquet_files import work_on_columns
from forewarn.pipelines.storage.remote_path import Location

__all__ = ["survey_file"]

_EPOCH = dt.date(1970, 1, 1).toordinal()
_NEVER = int(np.iinfo(np.int64).max)


def survey_file(item: tuple[Location, dt.date, dict[str, tuple[str, ...]]]) -> dict[str, Any]:
    """Read a file of a date with the columns that it has, and count what is wrong with it.

    Parameters
    ----------
    item : tuple
        Path, date of its folder, and the columns by kind.

    Returns
    -------
    dict
        Plain values: `serials` and `machines` are texts, `rows` those with a key and `first` and
        `last` their times, `columns` and `floats` fields of surveys, `absent` the names of columns
        that the file lacks.

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
    days = keys.time[rows] // DAY
    return {
        "rows": len(rows),
        "first": int(keys.time[rows].min(initial=_NEVER)),
        "last": int(keys.time[rows].max(initial=-_NEVER)),
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
        return keys, check_values(columns, file=str(path), kinds=present, optional=(MACHINE, SLOT))

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
