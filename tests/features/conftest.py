"""Fixtures that build records, failures and timelines from hand-written rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from tests.features.table_source import TableSource

from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.record_table import FeatureKinds, Records
from forewarn.features.time_units import MINUTE, Nanoseconds

Row = dict[str, Any]

# A midnight; tests give times in minutes after it.
START = 20_500 * 24 * 60 * MINUTE


def _at(minute: float) -> int:
    return START + round(minute * MINUTE)


def _minutes(moments: Any) -> list[float]:
    return [(int(moment) - START) / MINUTE for moment in np.atleast_1d(moments)]


def _rows(serial: str | None, minutes: Iterable[float | None], **columns: Any) -> list[Row]:
    moments = [None if minute is None else _at(minute) for minute in minutes]
    made = [{"gpu_serial": serial, "timestamp": moment} for moment in moments]
    for name, values in columns.items():
        listed = values if isinstance(values, list) else [values] * len(made)
        for one, value in zip(made, listed, strict=True):
            one[name] = value
    return made


def _table(rows: Sequence[Row]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    arrays = {name: pa.array([row.get(name) for row in rows]) for name in names}
    arrays["gpu_serial"] = arrays["gpu_serial"].cast(pa.string())
    arrays["timestamp"] = arrays["timestamp"].cast(pa.timestamp("ns", "UTC"))
    return pa.table(arrays)


def _assembled(
    *files: Sequence[Row] | pa.Table,
    kinds: FeatureKinds | None = None,
    texts: Sequence[str] = (),
    interval: float = 10,
) -> Records:
    kinds = kinds or FeatureKinds()
    tables = [one if isinstance(one, pa.Table) else _table(one) for one in files]
    sources = [TableSource(f"{number}", table) for number, table in enumerate(tables)]
    query = RecordsQuery("tables", kinds, Nanoseconds(round(interval * MINUTE)), tuple(texts))
    records = assemble(sources, query)
    return records


def _failures(records: Records, *found: tuple[Any, ...]) -> Failures:
    whole = [(*one, *(None,) * (6 - len(one))) for one in found]

    def moments(values: Iterable[float | None]) -> npt.NDArray[np.int64]:
        return np.array([NEVER if v is None else _at(v) for v in values], dtype=np.int64)

    return Failures(
        np.array([records.serials.index(one[0]) for one in whole], dtype=np.int32),
        moments(failed for _, failed, *_ in whole),
        moments(repaired for _, _, repaired, *_ in whole),
        moments(failed if known is None else known for _, failed, _, known, *_ in whole),
        moments(repaired if end is None else end for _, _, repaired, _, end, _ in whole),
        moments(failed if until is None else until for _, failed, *_, until in whole),
    )


@pytest.fixture(scope="session")
def at() -> Callable[[float], int]:
    """Return `at(minute)`: a time in nanoseconds since 1970."""
    return _at


@pytest.fixture(scope="session")
def minutes() -> Callable[[Any], list[float]]:
    """Return `minutes(moments)`: times in minutes after the start of the tests."""
    return _minutes


@pytest.fixture(scope="session")
def rows() -> Callable[..., list[Row]]:
    """Return `rows(serial, minutes, **columns)`: one value for all rows, or a list."""
    return _rows


@pytest.fixture(scope="session")
def table() -> Callable[[Sequence[Row]], pa.Table]:
    """Return `table(rows)`, as read from a Parquet file."""
    return _table


@pytest.fixture(scope="session")
def assembled() -> Callable[..., Records]:
    """Return `assembled(*files, kinds=, texts=, interval=10)`; a file is rows or a table."""
    return _assembled


@pytest.fixture(scope="session")
def failures() -> Callable[..., Failures]:
    """Return `failures(records, (serial, failed[, repaired[, known]]), ...)`, in minutes."""
    return _failures
