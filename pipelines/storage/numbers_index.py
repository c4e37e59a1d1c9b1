"""Where the runs of numbers of a compacted file lie in the file beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.number_runs import NumberRuns
from forewarn.features.records.table import IntArray
from forewarn.pipelines.storage.runs_table import other_runs

__all__ = ["COLUMNS", "NumbersIndex"]

# In the metadata: names of columns, and for each row group where the runs of each begin.
COLUMNS = "forewarn.columns"


@dataclass(frozen=True, slots=True)
class NumbersIndex:
    """What the file says of itself; without names there are no runs.

    Attributes
    ----------
    file : str
        For messages.
    metadata : FileMetaData
        At its end.
    names : list of str
        The columns that it has runs of.
    begin : list of ndarray of shape (n_names + 1,)
        Of each row group: the first run of each column, and last their number.
    n_rows : list of int
        How many rows each row group of the compacted file has.
    """

    file: str
    metadata: pq.FileMetaData
    names: list[str]
    begin: list[IntArray]
    n_rows: list[int]

    @classmethod
    def of(cls, file: str, metadata: pq.FileMetaData, rows_of_groups: Sequence[int]) -> Self:
        """Read the metadata.

        Raises
        ------
        RecordsError
            If it is not of so many row groups.
        """
        n_rows = list(rows_of_groups)
        try:
            entry = json.loads((metadata.metadata or {})[COLUMNS.encode()])
            names = [str(name) for name in entry["names"]]
            begin = [np.array(runs, dtype=np.int64) for runs in entry["begin"]]
        except (KeyError, TypeError, ValueError):
            raise other_runs(file) from None
        fits = len(begin) == len(n_rows) == metadata.num_row_groups
        if names and not (fits and all(runs.shape == (len(names) + 1,) for runs in begin)):
            raise other_runs(file)
        return cls(file, metadata, names, begin, n_rows)

    def read(
        self, opened: pq.ParquetFile, row_groups: Sequence[int] | None
    ) -> dict[str, NumberRuns]:
        """Read the runs of each column in some row groups; None stands for all.

        Raises
        ------
        RecordsError
            If they are of other rows.
        """
        groups = list(range(len(self.begin)) if row_groups is None else row_groups)
        if not self.names or not groups:
            return {}
        table = opened.read_row_groups(groups, use_threads=False)
        try:
            columns = [table.column(number).to_numpy() for number in (0, 1)]
            if [column.dtype for column in columns] == [np.float64, np.int32]:
                parts = zip(*self._parts(NumberRuns(*columns), groups), strict=True)
                return dict(zip(self.names, map(NumberRuns.joined, parts), strict=True))
        except (IndexError, pa.ArrowInvalid):
            pass
        raise other_runs(self.file)

    def _parts(self, runs: NumberRuns, groups: Sequence[int]) -> Iterator[list[NumberRuns]]:
        """Yield the runs of each column, row group after row group."""
        start = 0
        for group in groups:
            begin, n_rows = self.begin[group], self.n_rows[group]
            part = slice(start, start + int(begin[-1]))
            start = part.stop
            value, length = runs.value[part], runs.n_rows[part]
            rows_before = np.append(0, np.cumsum(length, dtype=np.int64))[begin]
            if length.min(initial=1) < 1 or (np.diff(rows_before) != n_rows).any() or begin[0]:
                raise other_runs(self.file)
            yield [NumberRuns(value[low:high], length[low:high]) for low, high in pairwise(begin)]
        if start != len(runs.value):
            raise other_runs(self.file)
