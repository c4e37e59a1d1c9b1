"""What `forewarn doctor` finds in one file, as plain values that any worker can return."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.records.column_survey import (
    ColumnSurvey,
    FloatSurvey,
    day_extremes,
    day_starts,
)
from forewarn.features.records.file_check import Columns, check_keys, check_values
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.table import DAY, MACHINE, SLOT, Column, FeatureKinds
from forewarn.features.time_units import midnight_of
from forewarn.pipelines.storage.parquet_files import work_on_parts
from forewarn.pipelines.storage.remote_path import Location

__all__ = ["survey_file"]

_ROWS_AT_ONCE = 500_000  # of a compacted file
_NEVER = int(np.iinfo(np.int64).max)


def survey_file(item: tuple[Location, dt.date, dict[str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Read a file of a date with the columns that it has, and count what is wrong with it.

    A compacted one is read in parts of some GPUs each, so that what is held does not grow with it.

    Parameters
    ----------
    item : tuple
        Path, date of its folder, and the columns by kind.

    Returns
    -------
    list of dict
        Of each part plain values: `serials` and `machines` are texts, `rows` those with a key and
        `first` and `last` their times, `columns` and `floats` the fields of `ColumnSurvey` and of
        `FloatSurvey`, where GPUs are positions in `serials`, `absent` the names of columns that the
        file lacks.

    Raises
    ------
    RecordsError
        If it cannot be read, or a column has the wrong type.
    """
    path, date, by_kind = item
    survey = partial(_survey, str(path), date, FeatureKinds(**by_kind))
    return work_on_parts(path, survey, _ROWS_AT_ONCE)


def _survey(file: str, date: dt.date, kinds: FeatureKinds, columns: Columns) -> dict[str, Any]:
    keys = check_keys(columns, file=file)
    rows = np.flatnonzero(keys.keep)
    rows = rows[stable_order(keys.serial.codes[rows], keys.time[rows])]
    time, days = keys.time[rows], keys.time[rows] // DAY
    texts = {name: _texts_of(columns, name, file) for name in (*kinds.categorical, MACHINE, SLOT)}
    return {
        "rows": len(rows),
        "first": int(time.min(initial=_NEVER)),
        "last": int(time.max(initial=-_NEVER)),
        "serials": keys.serial.texts,
        "machines": texts[MACHINE],
        "without_key": len(keys.keep) - len(rows),
        "odd_states": keys.n_odd_states,
        "misfiled": int((days != midnight_of(date) // DAY).sum()),
        "days": np.unique(days, return_counts=True),
        "absent": sorted(set(kinds.names) - set(columns.column_names)),
        **_surveys(file, kinds, columns, keys.serial, rows),
    }


def _texts_of(columns: Columns, name: str, file: str) -> tuple[str, ...]:
    """Check a column of texts, and return those that it has; none where it is missing."""
    values = check_values(columns, file=file, kinds=FeatureKinds(), optional=(name,))
    return values.texts[name].texts if name in values.texts else ()


def _surveys(
    file: str,
    kinds: FeatureKinds,
    columns: Columns,
    serial: Column,
    rows: npt.NDArray[np.int64],
) -> dict[str, Any]:
    """Return the fields of the surveys of all columns of numbers, of which one is held at a time.

    `rows` are those with keys, by GPU and time.
    """
    gpu, surveys, extremes = serial.codes[rows], [], {}
    starts = day_starts(gpu)
    numbers = (*kinds.float, *kinds.binary, *kinds.code, *kinds.date, *kinds.counter)
    for name in numbers:
        if name not in columns.column_names:
            continue
        values = check_values(
            columns, file=file, kinds=replace(kinds.among({name}), categorical=())
        )
        column: npt.NDArray[Any] = (values.numbers | values.counts)[name][rows]
        if name in kinds.counter:
            survey = ColumnSurvey.of_counter(name, column, gpu)
        else:
            survey = ColumnSurvey.of(name, column, code=name in kinds.code)
        if name in kinds.float:
            extremes[name] = day_extremes(column, starts)
        surveys.append(_plain(survey))
    return {"columns": surveys, "floats": _plain(FloatSurvey.of(extremes, gpu[starts]))}


def _plain(survey: ColumnSurvey | FloatSurvey) -> dict[str, Any]:
    return {field.name: getattr(survey, field.name) for field in fields(survey)}
