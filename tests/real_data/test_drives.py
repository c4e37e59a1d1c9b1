"""A sample of ../shared/data/drives through the commands, with only a configuration."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main

TESTS = Path(__file__).parent
DAY = pd.Timedelta("1D")
GBDT_ALONE = '[ensembles]\nparallel = ["gbdt"]\ncascade = [["gbdt", 0.05]]\n'
START, END, LISTED = "2014-10-01", "2014-12-01", "2014-12-15"
DRIVES = 500


@pytest.fixture(scope="module")
def spans(shared_data: Path) -> pd.DataFrame:
    table = pd.read_parquet(shared_data / "drives" / "ST31500541AS.parquet")
    return table[table["serial"].isin(sorted(table["serial"].unique())[:DRIVES])]


@pytest.fixture(scope="module")
def records(spans: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drives")
    spans.to_parquet(folder / "spans.parquet", index=False)
    arguments = [str(TESTS / "drives_records.py"), str(folder / "spans.parquet")]
    subprocess.run([sys.executable, *arguments, str(folder / "records")], check=True)
    return folder / "records"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "drives.toml"
    path.write_text((TESTS / "drives.toml").read_text() + GBDT_ALONE)
    return path


@pytest.fixture(scope="module")
def report(records: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("backtest")
    arguments = ["--records", str(records), "--config", str(config), "--out", str(out)]
    more = ["--strategies", "sliding,expanding", "--start", START, "--end", END]
    assert main(["backtest", *arguments, *more]) == 0
    assert {path.name for path in out.glob("*.parquet")} == {
        "scores_sliding.parquet",
        "scores_expanding.parquet",
    }
    return dict(json.loads((out / "report.json").read_text()))


def test_packages_do_not_name_data_set() -> None:
    words = re.compile(r"smart_\d|\bdrives?\b.*(disk|SMART)|ST31500541AS|ST4000DM000")
    names = ("features", "models", "evaluation", "response", "pipelines")
    paths = [path for name in names for path in (TESTS.parents[1] / name).rglob("*.py")]
    assert [path.name for path in paths if words.search(path.read_text())] == []


def test_drive_has_one_record_per_day(spans: pd.DataFrame, records: Path) -> None:
    failed = spans[spans["failed"] == 1].iloc[0]
    mine = spans[spans["serial"] == failed["serial"]]
    everything = pd.concat([pd.read_parquet(path) for path in sorted(records.glob("date=*/*"))])
    found = everything[everything["gpu_serial"] == failed["serial"]].reset_index(drop=True)
    hours = failed["to_hours"] - failed["first_hours"]
    assert len(found) == -(-hours // 24)
    assert set(found["timestamp"].diff().dropna()) == {DAY}
    assert found["timestamp"].iloc[0] == pd.Timestamp(failed["first_day"], tz="UTC") + DAY
    assert found["smart_5"].iloc[-1] == failed["smart_5"]
    # The day that starts at hour h shows the span that contains h.
    for number in (0, len(found) // 2, len(found) - 1):
        begin = failed["first_hours"] + 24 * number
        (span,) = mine[(mine["from_hours"] <= begin) & (begin < mine["to_hours"])].to_dict(
            "records"
        )
        assert found["smart_5"].iloc[number] == span["smart_5"]
    table = pd.read_parquet(records / "failures.parquet").set_index("gpu_serial")
    assert table.loc[failed["serial"], "failed_at"] == found["timestamp"].iloc[-1] + DAY
    assert len(table) == spans["failed"].sum()


def test_failures_are_predicted_above_chance(report: dict[str, Any]) -> None:
    fleet = report["fleet"]
    for strategy in ("sliding", "expanding"):
        gbdt, random = (fleet[f"{name}_{strategy}"] for name in ("gbdt", "random"))
        assert gbdt["average_precision"] > 5 * random["average_precision"]
        assert gbdt["failures_caught"] >= random["failures_caught"]


def test_lists_are_made_and_reviewed(
    records: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--records", str(records), "--model", str(tmp_path / "model")]
    assert main(["train", *given, "--config", str(config), "--at", END]) == 0
    assert main(["score", *given, "--at", LISTED, "--out", str(tmp_path / "lists")]) == 0
    (path,) = (tmp_path / "lists").glob("date=*/at_risk.parquet")
    listed = pd.read_parquet(path)
    assert listed["flagged"].sum() >= 1
    assert listed["probability"].between(0, 1).all()
    capsys.readouterr()
    failures = str(records / "failures.parquet")
    assert (
        main(["review", "--at-risk", str(tmp_path / "lists"), "--failures", failures, "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["flagged"] == listed["flagged"].sum()
