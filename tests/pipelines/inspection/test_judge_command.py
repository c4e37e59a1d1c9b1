"""`forewarn inspect judge` on simulated results with planted defects, and on bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.inspection.check_results import RESULTS
from forewarn.pipelines.cli.main import main

CHECKS = """
[check.gemm]
command = ["gemm"]
value = {regex = '(\\d+)', unit = "TFLOP/s", better = "higher"}
category = "gpu"
compare = ["fleet", "own"]
[check.latency]
command = ["ping"]
value = {regex = '(\\d+)', unit = "us", better = "lower"}
category = "network"
compare = ["fleet", "own"]
level = "drain"
"""


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with the only checks that there are."""
    (tmp_path / "none.toml").write_text("")
    monkeypatch.setattr(
        "forewarn.pipelines.inspection.check_files.SHIPPED_CHECKS", tmp_path / "none.toml"
    )
    file = tmp_path / "checks.toml"
    file.write_text(CHECKS)
    return file


def judge_json(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, dict[str, Any]]:
    code = main(["inspect", "judge", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_planted_defects_are_named(
    tmp_path: Path, checks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--machines", "20", "--defects", "4", "--seed", "3"]
    arguments = ["simulate", "inspections", "--out", str(tmp_path), "--checks", str(checks)]
    assert main([*arguments, *sizes]) == 0
    capsys.readouterr()
    code, report = judge_json(capsys, tmp_path / "results", "--checks", checks)
    truth = pd.read_csv(tmp_path / "truth.csv", keep_default_na=False)
    bad = {(row["check"], row["machine"], row["slot"] or "") for row in report["verdicts"]}
    assert code == 1
    # A machine that is 5 % slower may be missed among 20; nothing else may be named.
    assert bad <= set(zip(truth["check"], truth["machine"], truth["slot"], strict=True))
    assert len(bad) >= 3
    assert {row["state"] for row in report["verdicts"]} == {"defective"}
    assert {row["level"] for row in report["verdicts"]} <= {"drain", "no_new_jobs"}
    assert report["states"]["ok"] + len(bad) == 20 * 9


def write(path: Path, **changes: Any) -> Path:
    row: dict[str, Any] = {
        **dict.fromkeys(RESULTS.names),
        "timestamp": pd.Timestamp("2025-01-06", tz="UTC"),
        **{"machine": "a", "check": "gemm", "run": "1", "value": 1.0, "unit": "TFLOP/s"},
        **{"status": "ok", "versions": '{"hardware": "h100"}', "set": "weekly"},
    }
    rows = [row | {"check": "latency", "unit": "us"}, row | changes]
    pq.write_table(pa.Table.from_pylist(rows, RESULTS), path)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine": "../etc"}, "column `machine` has '../etc', expected a name"),
        ({"unit": "parsecs"}, "column `unit` has 'parsecs', expected one of"),
        ({"unit": "GB/s"}, "column `unit` has 'GB/s' for check 'gemm', expected 'TFLOP/s'"),
        ({"status": "great"}, "column `status` has 'great', expected one of"),
        ({"check": "latency", "unit": "us"}, "two rows of check 'latency' on a at"),
        ({"versions": '{"hardware": "a100"}'}, "run '1' has results of a with two kinds of hard"),
    ],
)
def test_bad_results_are_refused_in_one_line(
    tmp_path: Path,
    checks: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    message: str,
) -> None:
    results = write(tmp_path / "results.parquet", **changes)
    assert main(["inspect", "judge", str(results), "--checks", str(checks)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_results_of_other_hardware_are_refused(
    tmp_path: Path, checks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = write(tmp_path / "results.parquet")
    (tmp_path / "accepted" / "a").mkdir(parents=True)
    other = {"versions": '{"hardware": "a100"}', "timestamp": pd.Timestamp("2024-01-01", tz="UTC")}
    write(tmp_path / "accepted" / "a" / "accepted.parquet", **other)
    table = pq.read_table(tmp_path / "accepted" / "a" / "accepted.parquet").slice(1)
    pq.write_table(table, tmp_path / "accepted" / "a" / "accepted.parquet")
    options = ["--checks", str(checks), "--accepted", str(tmp_path / "accepted")]
    assert main(["inspect", "judge", str(results), *options]) == 2
    assert "a has the hardware 'h100', but was accepted with 'a100'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('command = ["x"]\nvalue = {regex = "1", better = "sideways"}', "better"),
        ('command = ["x"]\nvalue = {regex = "1", unit = "furlongs"}', "unit"),
        ('command = "gemm --fast"', "command"),
    ],
)
def test_bad_definitions_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, message: str
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(f"[check.gemm]\n{lines}\n")
    results = write(tmp_path / "results.parquet")
    assert main(["inspect", "judge", str(results), "--checks", str(file)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("is_folder", [False, True])
def test_missing_results_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_folder: bool
) -> None:
    if is_folder:
        (tmp_path / "results").mkdir()
    assert main(["inspect", "judge", str(tmp_path / "results")]) == 2
    assert "has no results, expected" in capsys.readouterr().err
