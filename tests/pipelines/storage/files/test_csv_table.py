"""No cell of a CSV table is a formula; numbers and other formats are unchanged."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from forewarn.pipelines.at_risk.at_risk_list import AtRiskList
from forewarn.pipelines.storage.files.csv_table import write_csv

FORMULAS = ["=cmd|' /C calc'!A0", "+1+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-", "+"]
HARMLESS = ["-3.5", "+7", "-1e-3", "-.5", "node-1", "a=b", "", "'x", "3-4", " =1", "a\r=1"]


def cells(path: Path, name: str) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


@pytest.mark.parametrize("kind", ["object", "string", "category"])
def test_formulas_become_text(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    texts = pd.Series([*FORMULAS, *HARMLESS], dtype=kind)
    write_csv(pd.DataFrame({"name": texts, "number": range(len(texts))}), path)
    assert cells(path, "name") == [
        *(f"'{one}".replace("\r", "\\r") for one in FORMULAS),
        *HARMLESS[:-1],
        "a\\r=1",
    ]
    assert cells(path, "number") == [str(i) for i in range(len(texts))]


def test_negative_numbers_times_and_heads(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    times = pd.Series([pd.Timestamp("2025-03-01", tz="UTC"), pd.NaT])
    write_csv(pd.DataFrame({"=x": [-1.5, None], "at": times, "flag": [True, False]}), path)
    assert path.read_text().splitlines() == [
        "'=x,at,flag",
        "-1.5,2025-03-01T00:00:00Z,True",
        ",,False",
    ]


def test_at_risk_list_has_no_formula(tmp_path: Path) -> None:
    evil, end = FORMULAS[0], pd.to_datetime(["2025-03-01"], utc=True)
    rows = pd.DataFrame(
        {
            "rank": [1], "gpu_serial": [evil], "machine_id": [evil], "slot": ["-1"],
            "probability": [0.5], "flagged": [True], "flagged_by": [""], "reasons": [evil],
            "window_end": end, "model_version": ["v"], "valid_until": end,
        }
    )  # fmt: skip
    unscored = pd.DataFrame({"gpu_serial": [evil], "reason": ["stale"]})
    folder = AtRiskList(0, rows, unscored, 0.003, 24.0, "v").write(tmp_path)
    for name in ("gpu_serial", "machine_id", "reasons"):
        assert cells(folder / "at_risk.csv", name) == [f"'{evil}"]
    assert cells(folder / "at_risk.csv", "slot") == ["-1"]
    assert cells(folder / "unscored.csv", "gpu_serial") == [f"'{evil}"]
    (row,) = json.loads((folder / "at_risk.json").read_text())
    assert row["gpu_serial"] == row["machine_id"] == evil
    assert pd.read_parquet(folder / "at_risk.parquet")["gpu_serial"].tolist() == [evil]
