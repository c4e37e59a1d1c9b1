"""The table of results: what is accepted, and one line for what is not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from forewarn.features.inspection.check_results import RESULTS, CheckResultsError, check_results

ROW: dict[str, Any] = {
    "timestamp": 1_740_787_200_000_000_000,
    "machine": "node-1",
    "slot": None,
    "check": "disk_read",
    "run": "a1",
    "value": 5.0,
    "unit": "KiB/s",
    "status": "ok",
    "seconds": 1.5,
    "versions": "{}",
    "set": "weekly",
}


def table(**changes: Any) -> pa.Table:
    return pa.Table.from_pylist([{**ROW, **changes}])


def test_row_has_the_schema() -> None:
    checked = check_results(table(), "x")
    assert checked.schema == RESULTS
    assert checked["text"].to_pylist() == [None]
    assert checked["timestamp"].cast(pa.int64()).to_pylist() == [ROW["timestamp"]]


def test_empty_table_and_unknown_columns() -> None:
    assert check_results(RESULTS.empty_table(), "x").num_rows == 0
    assert check_results(table(other=1), "x").schema == RESULTS
    assert check_results(table(value=None), "x")["value"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "passed"}, "column `status` has 'passed', expected one of ok"),
        ({"machine": "../etc"}, "column `machine` has '../etc'"),
        ({"machine": None}, "column `machine` has no value"),
        ({"value": "fast"}, "column `value` is string, expected double"),
        ({"value": float("nan")}, "not finite"),
    ],
)
def test_bad_row_is_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckResultsError, match=r"^part\.parquet: ") as raised:
        check_results(table(**changes), "part.parquet")
    assert words in str(raised.value)


def test_missing_column() -> None:
    with pytest.raises(CheckResultsError, match="column `run` is missing"):
        check_results(table().drop_columns(["run"]), "x")
