"""The runs of numbers of a compacted file, gathered while its row groups are in memory."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from forewarn.features.records.file_check import Columns
from forewarn.features.records.number_columns import numbers_into
from forewarn.features.records.number_runs import FEWEST_PER_RUN, NumberRuns
from forewarn.features.records.table import FAILURE
from forewarn.pipelines.storage.numbers_index import COLUMNS
from forewarn.pipelines.storage.runs_table import ROWS

__all__ = ["NumbersBuilder"]

_SCHEMA = pa.schema({"forewarn.value": pa.float64(), ROWS: pa.int32()})


class NumbersBuilder:
    """The runs of all columns of numbers that hardly change, gathered row group by row group."""

    def __init__(self) -> None:
        self._names: list[str] | None = None
        self._groups: list[dict[str, NumberRuns]] = []
        self._n_rows = 0

    def add(self, rows: Columns, schema: pa.Schema) -> None:
        """Add a row group. What has changed too often by its end is let go of."""
        names = _number_names(schema) if self._names is None else self._names
        runs = {name: _runs_of(rows, name) for name in names}
        self._groups.append(runs)
        self._n_rows += len(rows)
        self._names = [name for name in names if self._is_worth_it(name)]
        self._groups = [{name: group[name] for name in self._names} for group in self._groups]

    def tables(self) -> list[pa.Table]:
        """Return a table for each row group; without any where no column is worth it."""
        names = self._names or []
        groups = self._groups if names else []
        begin = [[0, *np.cumsum([len(g[n].n_rows) for n in names]).tolist()] for g in groups]
        schema = _SCHEMA.with_metadata({COLUMNS: json.dumps({"names": names, "begin": begin})})
        tables = [NumberRuns.joined([group[name] for name in names]) for group in groups]
        return [pa.table([*runs], schema=schema) for runs in tables] or [schema.empty_table()]

    def _is_worth_it(self, name: str) -> bool:
        return FEWEST_PER_RUN * sum(len(g[name].n_rows) for g in self._groups) <= self._n_rows


def _number_names(schema: pa.Schema) -> list[str]:
    """Return the columns whose values are numbers, but for the state."""
    kinds = {field.name: field.type for field in schema if field.name != FAILURE}
    return [name for name, kind in kinds.items() if _is_plain_number(kind)]


def _is_plain_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _runs_of(rows: Columns, name: str) -> NumberRuns:
    values = np.empty(len(rows), dtype=np.float64)
    numbers_into(values, rows[name])
    return NumberRuns.of(values)
