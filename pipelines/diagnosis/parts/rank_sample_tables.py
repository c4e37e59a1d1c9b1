"""Parquet tables of rank samples, for the parts `metrics` and `kernel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.array_types import Float64Array
from forewarn.features.diagnosis.rank_samples import RankSamples
from forewarn.features.diagnosis.ranks import MAX_RANKS
from forewarn.features.records.text_columns import is_text
from forewarn.features.records.timestamp_columns import as_nanoseconds
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolderError
from forewarn.pipelines.storage.records.parquet_files import read_parquet

__all__ = ["SampledPart", "read_samples"]

_NO_TIMES, _NO_VALUES = np.zeros(0, np.int64), np.zeros(0)


@dataclass(frozen=True, slots=True)
class SampledPart:
    """A part that is a table of samples."""

    samples: RankSamples

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with a sample."""
        return frozenset(self.samples.rank.tolist())

    @property
    def last(self) -> int | None:
        """Time of the last sample."""
        return int(self.samples.time.max()) if len(self.samples.time) else None


def read_samples(folder: Path, channels: Sequence[str], state: str | None = None) -> RankSamples:
    """Read a table, or all tables below a folder.

    Parameters
    ----------
    folder : Path
    channels : sequence of str
        Numeric columns; missing ones are filled with NaN.
    state : str, optional
        Column of process states, converted to the channels `in_d` and `is_stopped`.

    Raises
    ------
    JobFolderError
        If a table lacks `timestamp` or `rank`, or a column has the wrong type.
    """
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    tables = [_samples(file, read_parquet(file), channels, state) for file in files]
    names = [*channels, *(["in_d", "is_stopped"] if state else [])]
    return RankSamples.from_columns(
        np.concatenate([_NO_TIMES, *(table.rank for table in tables)]),
        np.concatenate([_NO_TIMES, *(table.time for table in tables)]),
        {n: np.concatenate([_NO_VALUES, *(t.values[n] for t in tables)]) for n in names},
    )


def _samples(
    file: Path, table: pa.Table, channels: Sequence[str], state: str | None
) -> RankSamples:
    for name in ("timestamp", "rank"):
        if name not in table.column_names:
            raise JobFolderError(f"{file}: column `{name}` is missing.")
    try:
        time, rank = as_nanoseconds(table["timestamp"]), table["rank"].cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise JobFolderError(
            f"{file}: `timestamp` is {table['timestamp'].type} and `rank` {table['rank'].type}, "
            "expected a timestamp and integers."
        ) from None
    extent = pc.min_max(rank).as_py()
    if time.null_count or rank.null_count or not _is_valid_rank_range(extent["min"], extent["max"]):
        raise JobFolderError(
            f"{file}: a row has no timestamp or no rank, expected ranks from 0 to {MAX_RANKS - 1}."
        )
    values = {name: _number_column(file, table, name) for name in channels}
    if state is not None:
        values["in_d"] = _is_in_state(file, table, state, "D")
        values["is_stopped"] = _is_in_state(file, table, state, "T", "t")
    return RankSamples(rank.to_numpy(), time.to_numpy(), values)


def _is_valid_rank_range(lowest: int | None, highest: int | None) -> bool:
    return lowest is None or highest is None or (lowest >= 0 and highest < MAX_RANKS)


def _number_column(file: Path, table: pa.Table, name: str) -> Float64Array:
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column = table[name]
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise JobFolderError(f"{file}: column `{name}` is {kind}, expected numbers.")
    filled = pc.fill_null(column.cast(pa.float64(), safe=False), float("nan"))
    values: Float64Array = filled.to_numpy()
    return values


def _is_in_state(file: Path, table: pa.Table, name: str, *letters: str) -> Float64Array:
    """Return 1 if a process is in one of the states, 0 if not, and NaN if unknown."""
    if name not in table.column_names or pa.types.is_null(table[name].type):
        return np.full(table.num_rows, np.nan)
    if not is_text(table[name].type):
        raise JobFolderError(
            f"{file}: column `{name}` is {table[name].type}, expected a letter such as D."
        )
    first = pc.utf8_slice_codeunits(table[name].cast(pa.string()), 0, 1)
    is_in = pc.if_else(pc.is_null(first), None, pc.is_in(first, pa.array(letters)))
    values: Float64Array = pc.fill_null(is_in.cast(pa.float64()), float("nan")).to_numpy()
    return values
