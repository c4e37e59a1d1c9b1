"""What `forewarn doctor` finds in one file, as plain values that any worker can return."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
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

__all__ = ["column_survey", "float_survey", "survey_file"]

_ROWS_AT_ONCE = 500_000  # of a compacted file
_NEVER = int(np.iinfo(np.int64).max)
# The numbers of some serials of a file, and a value of each: as texts they would cross to another
# process once for every column.
_OfSerials = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]


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
        `first` and `last` their times, `columns` and `floats` what `column_survey` and
        `float_survey` read, `absent` the names of columns that the file lacks.

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
    number = {text: position for position, text in enumerate(serial.texts)}
    starts = day_starts(gpu)
    numbers = (*kinds.float, *kinds.binary, *kinds.code, *kinds.date, *kinds.counter)
    for name in numbers:
        if name not in columns.column_names:
            continue
        values = check_values(
            columns, file=file, kinds=replace(kinds.among({name}), categorical=())
        )
        column: npt.NDArray[Any] = (values.numbers | values.counts)[name][rows]
        survey, counter = ColumnSurvey(name), name in kinds.counter
        survey.add(column, counter=counter, code=name in kinds.code)
        if counter:
            survey.add_resets(column, gpu, serial.texts)
        if name in kinds.float:
            extremes[name] = day_extremes(column, starts)
        surveys.append(_plain_column(survey, number))
    floats = FloatSurvey()
    floats.add_days(extremes, [serial.texts[number] for number in gpu[starts].tolist()])
    still = {name: _numbered(days, number) for name, days in floats.still.items()}
    return {"columns": surveys, "floats": {"days": floats.days, "still": still}}


def _plain_column(survey: ColumnSurvey, number: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields of a survey of a file whose serials have these numbers."""
    ends = {name: _numbered(getattr(survey, name), number) for name in ("first", "last")}
    return {field.name: getattr(survey, field.name) for field in fields(survey)} | ends


def column_survey(plain: Mapping[str, Any], serials: Sequence[str]) -> ColumnSurvey:
    """Return the survey of a column from its plain fields and the serials of the file."""
    ends = {name: _named(plain[name], serials) for name in ("first", "last")}
    return ColumnSurvey(**{**plain, **ends})


def float_survey(plain: Mapping[str, Any], serials: Sequence[str]) -> FloatSurvey:
    """Return the survey of sensors that stood still, from its plain fields."""
    still = {name: _named(of_serials, serials) for name, of_serials in plain["still"].items()}
    return FloatSurvey(plain["days"], still)


def _numbered(values: Mapping[str, float], number: Mapping[str, int]) -> _OfSerials:
    numbers = np.array([number[serial] for serial in values], dtype=np.int64)
    return numbers, np.array(list(values.values()))


def _named(of_serials: _OfSerials, serials: Sequence[str]) -> dict[str, Any]:
    numbers, values = (part.tolist() for part in of_serials)
    return {serials[i]: value for i, value in zip(numbers, values, strict=True)}
