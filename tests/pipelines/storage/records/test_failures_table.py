from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.features.records.failures import NEVER
from forewarn.features.records.record_table import RecordsError
from forewarn.features.time_units import DAY
from forewarn.pipelines.storage.records.failures_table import read_causes, read_failures_table


def write(path: Path, **columns: list[Any]) -> Path:
    """Write a failures table; times are days since 1970."""
    made = {
        name: pd.to_datetime(values, unit="D", utc=True)
        if name.endswith(("_at", "_until"))
        else values
        for name, values in columns.items()
    }
    pd.DataFrame(made).to_parquet(path / "failures.parquet", index=False)
    return path / "failures.parquet"


def test_old_table_knows_ends_immediately(tmp_path: Path) -> None:
    path = write(tmp_path, gpu_serial=["A", "B"], failed_at=[1, 2], repaired_at=[5, None])
    failures = read_failures_table(path, ["A", "B"])
    assert failures.end_known_at.tolist() == [5 * DAY, NEVER]
    assert failures.presumed.tolist() == [False, False]
    assert failures.known_before(5 * DAY).repaired_at.tolist() == [NEVER, NEVER]
    assert failures.known_before(5 * DAY + 1).repaired_at.tolist() == [5 * DAY, NEVER]


def test_ends_of_every_source(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        gpu_serial=["A", "B", "C", "D", "E"],
        failed_at=[1, 1, 1, 1, 1],
        repaired_at=[5, 5, None, 2, 2],
        end_known_at=[None, 7, 7, 3, 3],
        end_source=["ticket", "boot", None, "presumed", "presumed"],
        unknown_until=[None, None, None, 4, None],
    )
    failures = read_failures_table(path, ["A", "B", "C", "D", "E"])
    assert (failures.end_known_at // DAY).tolist()[:2] == [5, 7]
    assert failures.end_known_at[2] == NEVER
    assert (failures.unknown_until // DAY).tolist() == [1, 1, 1, 4, 8]
    assert failures.presumed.tolist() == [False, False, False, True, True]


def test_column_of_other_type_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "failures.parquet"
    columns = {"gpu_serial": ["A"], "failed_at": pd.to_datetime([1], unit="D", utc=True)}
    pd.DataFrame(columns | {"end_known_at": ["soon"]}).to_parquet(path, index=False)
    with pytest.raises(RecordsError, match=r"column `end_known_at` is .*, expected a timestamp"):
        read_failures_table(path, ["A"])


def test_causes_are_as_known(tmp_path: Path) -> None:
    serials, causes = ["A", "A", None, "B"], ["xid 79", None, "x", "fan"]
    times: dict[str, list[Any]] = {"failed_at": [1, 3, 1, 2], "known_at": [None, 9, 1, 2]}
    path = write(tmp_path, gpu_serial=serials, cause=causes, **times)
    assert read_causes(path) == {"A": [(DAY, "xid 79"), (3 * DAY, "")], "B": [(2 * DAY, "fan")]}
    assert read_causes(path, 2 * DAY) == {"A": [(DAY, "xid 79")]}
    assert read_causes(tmp_path / "none.parquet") == {}
