"""Survey of a single file for `forewarn doctor`, returned as plain values by workers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.column_names import ColumnNames
from forewarn.features.records.column_survey import (
    ColumnSurvey,
    Extremes,
    FloatSurvey,
    day_extremes,
    day_starts,
)
from forewarn.features.records.file_check import Columns, Keys, check_keys, check_values
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.record_table import DAY, MACHINE, SLOT, FeatureKinds, RawTextColumn
from forewarn.features.time_units import midnight_of
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.parquet_files import map_parts

__all__ = ["SurveyItem", "survey_file"]

SurveyItem = tuple[Location, dt.date, dict[str, tuple[str, ...]], tuple[tuple[str, str], ...]]

_MAX_PART_ROWS = 500_000
_NEVER = int(np.iinfo(np.int64).max)


def survey_file(item: SurveyItem) -> list[dict[str, Any]]:
    """Read a file of a date with the columns it has, and count its problems.

    A compacted file is read in parts of some GPUs, so memory does not grow with the file. For other
    files the row order and one column are in memory.

    Parameters
    ----------
    item : tuple
        Path, date of its folder, the columns by kind, and their names in the file.

    Returns
    -------
    list of dict
        Plain values of each part. `serials` and `machines` are texts. `rows` counts rows with a
        key, `first` and `last` are their times. `columns` and `floats` hold the fields of
        `ColumnSurvey` and `FloatSurvey`, with GPUs as positions in `serials`. `absent` lists
        missing columns.

    Raises
    ------
    RecordsError
        If it cannot be read, or a column has the wrong type.
    """
    path, date, by_kind, names = item
    survey = partial(_survey, str(path), date, FeatureKinds(**by_kind))
    return map_parts(path, survey, _MAX_PART_ROWS, ColumnNames(names))


def _survey(file: str, date: dt.date, kinds: FeatureKinds, columns: Columns) -> dict[str, Any]:
    keys = check_keys(columns, file=file)
    rows = _by_gpu(keys)
    time = keys.time if len(rows) == len(keys.time) else keys.time[rows]
    gpu, serials = _occurring(keys.serial.codes[rows], keys.serial.texts)
    texts = {name: _texts_of(columns, name, file) for name in (*kinds.categorical, MACHINE, SLOT)}
    machine = texts[MACHINE]
    counts = {
        "rows": len(rows),
        **_moments(time, date),
        "serials": serials,
        "machines": () if machine is None else _occurring(machine.codes[rows], machine.texts)[1],
        "without_key": len(keys.keep) - len(rows),
        "odd_states": keys.n_odd_states,
        "absent": sorted(set(kinds.names) - set(columns.column_names)),
    }
    parts = _parts(rows, gpu)
    del keys, time, texts, machine  # each is as large as a column
    return counts | _surveys(file, kinds, columns, parts)


def _by_gpu(keys: Keys) -> npt.NDArray[np.signedinteger]:
    """Return the rows to keep, by GPU and time."""
    if keys.keep.all():
        return stable_order(keys.serial.codes, keys.time)
    rows = np.flatnonzero(keys.keep)
    order = stable_order(keys.serial.codes[rows], keys.time[rows])
    by_gpu: npt.NDArray[np.signedinteger] = rows.astype(order.dtype)[order]
    return by_gpu


def _moments(time: npt.NDArray[np.int64], date: dt.date) -> dict[str, Any]:
    """Return first and last time, and the number of rows of each day."""
    day, days = midnight_of(date) // DAY, time // DAY
    others, counts = np.unique(days[days != day], return_counts=True)
    by_day = dict(zip(others.tolist(), counts.tolist(), strict=True))
    misfiled = sum(by_day.values())
    return {
        "first": int(time.min(initial=_NEVER)),
        "last": int(time.max(initial=-_NEVER)),
        "misfiled": misfiled,
        "days": by_day | ({day: len(time) - misfiled} if misfiled < len(time) else {}),
    }


def _texts_of(columns: Columns, name: str, file: str) -> RawTextColumn | None:
    """Check and return a text column; None if it is missing."""
    values = check_values(columns, file=file, kinds=FeatureKinds(), optional=(name,))
    return values.texts.get(name)


def _occurring(
    codes: npt.NDArray[np.int32], texts: tuple[str, ...]
) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Return codes renumbered to the texts that occur, and these texts."""
    occurs = np.full(len(texts) + 1, False)
    occurs[codes] = True
    number = (np.cumsum(occurs) - 1).astype(np.int32)
    number[-1] = -1  # code of null
    return number[codes], tuple(compress(texts, occurs[:-1].tolist()))


class _SomeGpus(NamedTuple):
    """Rows of some GPUs, by GPU and time.

    Attributes
    ----------
    row : ndarray of shape (n,)
        Row number in the file.
    gpu : ndarray of shape (n,), int32
    starts : ndarray of int
        First row of each GPU.
    """

    row: npt.NDArray[np.signedinteger]
    gpu: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]


def _parts(row: npt.NDArray[np.signedinteger], gpu: npt.NDArray[np.int32]) -> list[_SomeGpus]:
    """Divide rows into parts of some GPUs each; a single empty part without rows."""
    begin = np.append(day_starts(gpu), len(gpu))
    cuts = begin[np.searchsorted(begin, np.arange(0, len(gpu), _MAX_PART_ROWS))]
    ends = np.unique(np.append(cuts, len(gpu)))[1:].tolist() or [0]
    slices = [slice(first, end) for first, end in pairwise([0, *ends])]
    return [_SomeGpus(row[part], gpu[part], day_starts(gpu[part])) for part in slices]


def _surveys(
    file: str, kinds: FeatureKinds, columns: Columns, parts: Sequence[_SomeGpus]
) -> dict[str, Any]:
    """Return the survey fields of all numeric columns, reading one column at a time."""
    surveys, extremes = [], {}
    numbers = (*kinds.float, *kinds.binary, *kinds.code, *kinds.date, *kinds.counter)
    for name in (name for name in numbers if name in columns.column_names):
        survey, sensor = _column_survey(name, kinds, _values(name, kinds, columns, file), parts)
        surveys.append(_plain(survey))
        if sensor:
            low, high, n = map(np.concatenate, zip(*sensor, strict=True))
            extremes[name] = low, high, n
    gpu = np.concatenate([part.gpu[part.starts] for part in parts])
    return {"columns": surveys, "floats": _plain(FloatSurvey.from_extremes(extremes, gpu))}


def _values(name: str, kinds: FeatureKinds, columns: Columns, file: str) -> npt.NDArray[Any]:
    only = replace(kinds.among({name}), categorical=())
    values = check_values(columns, file=file, kinds=only)
    return (values.numbers | values.counts)[name]


def _column_survey(
    name: str, kinds: FeatureKinds, values: npt.NDArray[Any], parts: Sequence[_SomeGpus]
) -> tuple[ColumnSurvey, list[Extremes]]:
    """Return the survey of a column and, for a sensor, its extremes in each part."""
    surveys, extremes = [], []
    for part in parts:
        column = values[part.row]
        if name in kinds.counter:
            surveys.append(ColumnSurvey.from_counter(name, column, part.gpu))
        else:
            surveys.append(ColumnSurvey.from_values(name, column, code=name in kinds.code))
        if name in kinds.float:
            extremes.append(day_extremes(column, part.starts))
    return ColumnSurvey.joined(surveys), extremes


def _plain(survey: ColumnSurvey | FloatSurvey) -> dict[str, Any]:
    return {field.name: getattr(survey, field.name) for field in fields(survey)}
