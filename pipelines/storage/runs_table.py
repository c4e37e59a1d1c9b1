"""The runs of a compacted file, as they are kept in a file beside it and read from there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.file_check import check_keys
from forewarn.features.records.key_runs import KeyRuns
from forewarn.features.records.table import (
    FAILURE,
    SERIAL,
    TIMESTAMP,
    Column,
    IntArray,
    RecordsError,
)
from forewarn.features.records.text_columns import array_of, texts_in_common

__all__ = ["ROWS", "STEP", "RunsTable", "StoredRuns", "other_runs", "runs_table"]


ROWS, STEP = "forewarn.rows", "forewarn.step"
_KEYS = (SERIAL, TIMESTAMP, FAILURE, ROWS, STEP)
# In the metadata: the first run of each row group, and last their number.
_GROUPS = "forewarn.runs"


def other_runs(file: str) -> RecordsError:
    """Return the line that says which file of runs does not fit its records."""
    return RecordsError(
        f"{file}: holds other runs than those of the records beside it, expected what "
        "`forewarn compact` writes. Delete it: it is made anew."
    )


def runs_table(parts: Sequence[KeyRuns]) -> pa.Table:
    """Return the runs of all row groups as a table; without parts, one that says there are none."""
    begin = np.cumsum([0, *(len(part.n_rows) for part in parts)]).tolist()
    tables = [_table(part) for part in parts]
    table = pa.concat_tables(tables).unify_dictionaries() if tables else pa.table({})
    return table.replace_schema_metadata({_GROUPS: json.dumps(begin)})


def _table(runs: KeyRuns) -> pa.Table:
    keys, n = runs.first, len(runs.n_rows)
    zone = None if keys.naive_time else "UTC"
    step = pa.nulls(n, pa.int64()) if runs.step is None else pa.array(runs.step)
    return pa.table(
        {
            SERIAL: array_of(keys.serial),
            TIMESTAMP: pa.array(keys.time, pa.timestamp("ns", zone)),
            FAILURE: pa.array(keys.failed.view(np.int8)),
            ROWS: pa.array(runs.n_rows.astype(np.int32)),
            STEP: step,
            **{name: array_of(column) for name, column in runs.texts.items()},
        }
    )


class StoredRuns(NamedTuple):
    """The runs of a file as they are read.

    Attributes
    ----------
    name : str
        Of the file that they lie in, for messages.
    table : pyarrow.Table
    begin : list of int
        The first run of each row group, and last their number.
    rows_of_groups : sequence of int
        How many rows each row group has.
    """

    name: str
    table: pa.Table
    begin: list[int]
    rows_of_groups: Sequence[int]

    @classmethod
    def of(
        cls,
        file: pq.ParquetFile,
        name: str,
        rows_of_groups: Sequence[int],
        *,
        with_texts: bool,
    ) -> Self | None:
        """Read the runs of row groups of so many rows; None if there are none.

        Raises
        ------
        RecordsError
            If they are of other rows.
        """
        table = file.read() if with_texts else file.read([*_KEYS])
        try:
            begin = json.loads((table.schema.metadata or {})[_GROUPS.encode()])
        except (KeyError, ValueError):
            raise other_runs(name) from None
        stored = cls(name, table, begin, rows_of_groups)
        if begin == [0]:
            return None
        if not all(_is_numbered(table, text) for text in stored.texts):
            raise other_runs(name)
        return stored

    @property
    def texts(self) -> list[str]:
        """The columns of texts, the serial first."""
        return [SERIAL, *(name for name in self.table.column_names if name not in _KEYS)]


def _is_numbered(table: pa.Table, name: str) -> bool:
    """Tell whether a column has texts as a dictionary, none of which is null."""
    kind = table.schema.field(name).type if name in table.column_names else pa.null()
    if not pa.types.is_dictionary(kind) or kind.value_type != pa.string():
        return False
    return not any(part.dictionary.null_count for part in table[name].chunks)


@dataclass(frozen=True, slots=True)
class RunsTable:
    """All runs of a file.

    Attributes
    ----------
    runs : KeyRuns
    begin : list of int
        The first run of each row group, and last their number.
    """

    runs: KeyRuns
    begin: list[int]

    @classmethod
    def of_files(cls, stored: Sequence[StoredRuns]) -> list[Self]:
        """Make the runs of several files of what was read, with the same texts for all of them.

        Raises
        ------
        RecordsError
            If runs are of other rows than those of the records beside them.
        """
        texts: list[dict[str, Column]] = [{} for _ in stored]
        for name in dict.fromkeys(name for file in stored for name in file.texts):
            having = [number for number, file in enumerate(stored) if name in file.texts]
            columns = texts_in_common([stored[number].table[name] for number in having])
            for number, column in zip(having, columns, strict=True):
                texts[number][name] = column
        return [cls._of(*file) for file in zip(stored, texts, strict=True)]

    @classmethod
    def _of(cls, stored: StoredRuns, texts: dict[str, Column]) -> Self:
        name, table, begin, rows_of_groups = stored
        try:
            runs = _runs_of(table, name, texts)
            if _whole(runs, begin, rows_of_groups):
                return cls(runs, begin)
        except (KeyError, IndexError, TypeError, ValueError):
            pass
        raise other_runs(name)

    def part(self, groups: Sequence[int] | None) -> KeyRuns:
        """Return the runs of some row groups that follow one another; None stands for all."""
        if groups is None:
            return self.runs
        first, last = (groups[0], groups[-1] + 1) if groups else (0, 0)
        return self.runs.part(self.begin[first], self.begin[last])


def _runs_of(table: pa.Table, name: str, texts: dict[str, Column]) -> KeyRuns:
    keys = check_keys(table, file=name, serial=texts.pop(SERIAL))
    rows = table[ROWS].to_numpy().astype(np.int64)
    step = None if table[STEP].null_count else table[STEP].to_numpy()
    return KeyRuns(keys, rows, step, texts)


def _whole(runs: KeyRuns, begin: Sequence[int], rows_of_groups: Sequence[int]) -> bool:
    """Tell whether runs are of row groups of so many rows, each run of at least one."""
    n_rows: IntArray = np.diff(np.append(0, np.cumsum(runs.n_rows))[begin])
    return (
        begin[-1] == len(runs.n_rows)
        and runs.n_rows.min(initial=1) >= 1
        and n_rows.tolist() == list(rows_of_groups)
        and bool(runs.first.keep.all())
        and not len(runs.first.odd)
    )
