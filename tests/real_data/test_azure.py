"""Real data set ../shared/data/azure_pdm through the commands, from CSV files to a review."""

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
HOUR = pd.Timedelta("1h")
HORIZON = 24 * HOUR
# Three test windows and the GBDT alone; each window chooses among three lengths.
START, END = pd.Timestamp("2015-02-12", tz="UTC"), pd.Timestamp("2015-03-05", tz="UTC")
NETWORKS = 'cascade = [["cnn", 0.2], ["mlp", 0.1]]'
GBDT_ALONE = 'parallel = ["gbdt"]\ncascade = [["gbdt", 0.1]]'
TRAINED_AT = "2015-03-16"
LIST_DAYS = tuple(f"2015-03-{day}" for day in range(16, 23))


@pytest.fixture(scope="module")
def source(shared_data: Path) -> Path:
    return shared_data / "azure_pdm"


@pytest.fixture(scope="module")
def records(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("azure") / "records"
    arguments = [str(TESTS / "azure_records.py"), str(source), str(folder)]
    subprocess.run([sys.executable, *arguments], check=True)
    return folder


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (TESTS / "azure.toml").read_text()
    assert NETWORKS in text
    path = tmp_path_factory.mktemp("config") / "azure.toml"
    path.write_text(text.replace(NETWORKS, GBDT_ALONE))
    return path


@pytest.fixture(scope="module")
def backtest(records: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("backtest")
    arguments = ["--records", str(records), "--config", str(config), "--out", str(out)]
    more = ["--strategies", "variable", "--end", str(END.date())]
    assert main(["backtest", *arguments, *more]) == 0
    return out


@pytest.fixture(scope="module")
def scores(backtest: Path) -> pd.DataFrame:
    return pd.read_parquet(backtest / "scores.parquet")


@pytest.fixture(scope="module")
def report(backtest: Path) -> dict[str, Any]:
    return dict(json.loads((backtest / "report.json").read_text()))


@pytest.fixture(scope="module")
def lists(records: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    model, out = folder / "model", folder / "at-risk"
    arguments = ["--records", str(records), "--model", str(model)]
    assert main(["train", *arguments, "--config", str(config), "--at", TRAINED_AT]) == 0
    for day in LIST_DAYS:
        assert main(["score", *arguments, "--at", day, "--out", str(out)]) == 0
    return out


def _csv(source: Path, name: str) -> pd.DataFrame:
    table = pd.read_csv(source / f"PdM_{name}.csv", parse_dates=["datetime"])
    table["datetime"] = table["datetime"].dt.tz_localize("UTC")
    return table.assign(serial=[f"M{number:03d}" for number in table["machineID"]])


def _failures(source: Path) -> dict[str, list[pd.Timestamp]]:
    table = _csv(source, "failures")
    return {str(s): sorted(set(rows["datetime"])) for s, rows in table.groupby("serial")}


def _labels(source: Path) -> dict[tuple[str, pd.Timestamp], int | None]:
    """Cut and label the instances of each life of a machine; None if the label is unknown."""
    failures = _failures(source)
    labels: dict[tuple[str, pd.Timestamp], int | None] = {}
    for serial, rows in _csv(source, "telemetry").groupby("serial"):
        hours = sorted(rows["datetime"])
        failed = failures.get(str(serial), [])
        births = [hours[0], *(moment + HOUR for moment in failed)]
        deaths = [*failed, hours[-1] + HOUR]
        for birth, death in zip(births, deaths, strict=True):
            life = [hour for hour in hours if birth <= hour < death]
            for end in life[23::3]:
                fails = any(end < moment <= end + HORIZON for moment in failed)
                known = fails or end + HORIZON <= hours[-1]
                labels[str(serial), end] = int(fails) if known else None
    return labels


def test_packages_do_not_name_data_set() -> None:
    words = re.compile(r"azure(?!\.com)|pdm|\brotate\b|vibration|\bvolt\b|machineID", re.IGNORECASE)
    names = ("features", "models", "evaluation", "response", "pipelines")
    files = [path for name in names for path in (TESTS.parents[1] / name).rglob("*.*")]
    paths = [path for path in files if path.suffix in {".py", ".html"}]
    assert len(paths) > 50
    assert [path.name for path in paths if words.search(path.read_text())] == []


def test_records_contain_all_table_rows(source: Path, records: Path) -> None:
    paths = sorted(records.glob("date=*/part-0.parquet"))
    found = pd.concat([pd.read_parquet(path) for path in paths])
    telemetry = _csv(source, "telemetry").rename(columns={"serial": "gpu_serial"})
    channels = ["volt", "rotate", "pressure", "vibration"]
    key = ["gpu_serial", "timestamp"]
    expected = telemetry.rename(columns={"datetime": "timestamp"}).set_index(key)[channels]
    found = found.set_index(key).sort_index()
    pd.testing.assert_frame_equal(found[channels], expected.sort_index(), check_index_type=False)
    machines = pd.read_csv(source / "PdM_machines.csv")
    seventh = found.loc["M007"]
    assert set(seventh["model"]) == set(machines.loc[machines["machineID"] == 7, "model"])
    assert set(seventh["age"]) == set(machines.loc[machines["machineID"] == 7, "age"])
    errors = _csv(source, "errors")
    codes = errors["errorID"].str[-1].astype(int).groupby([errors["serial"], errors["datetime"]])
    assert found.loc[found["error"] > 0, "error"].to_dict() == codes.max().to_dict()


def test_failure_record_is_failed_next_is_healthy(source: Path, records: Path) -> None:
    table = pd.read_parquet(records / "failures.parquet")
    assert len(table) == len(_csv(source, "failures"))
    assert (table["repaired_at"] - table["failed_at"] == HOUR).all()
    found = {str(s): sorted(set(rows["failed_at"])) for s, rows in table.groupby("gpu_serial")}
    assert found == _failures(source)


def test_scores_match_contract(
    backtest: Path, scores: pd.DataFrame, report: dict[str, Any]
) -> None:
    names = {path.name for path in backtest.iterdir()}
    assert names == {"scores.parquet", "scores_expanding.parquet", "report.json", "report.html"}
    wanted = {
        "test_window", "gpu_serial", "window_end", "label", "sampled", "train_length_days",
        "score_gbdt", "score_cascade_first", "score_random", "score_last_value", "score_logistic",
        "flag_parallel", "flag_cascade",
    }  # fmt: skip
    assert wanted <= set(scores.columns)
    assert "machine_id" not in scores.columns
    assert not scores.isna().any().any()
    assert list(scores["test_window"].drop_duplicates()) == [
        START,
        START + 168 * HOUR,
        END - 168 * HOUR,
    ]
    assert set(scores["train_length_days"]) <= {20.0, 30.0, 40.0}
    assert report["records"] == 43_200
    assert report["gpus"] == 20


def test_labels_match_tables(source: Path, scores: pd.DataFrame) -> None:
    expected = {key: label for key, label in _labels(source).items() if START <= key[1] < END}
    found = scores.set_index(["gpu_serial", "window_end"])["label"].to_dict()
    assert found == expected
    assert sum(found.values()) > 50


def test_instances_and_positives_are_counted(source: Path, report: dict[str, Any]) -> None:
    labels = _labels(source)
    assert report["instances"] == len(labels)
    assert report["positives"] == sum(label == 1 for label in labels.values())
    assert report["prevalence"] == pytest.approx(
        report["positives"] / sum(label is not None for label in labels.values())
    )


def test_failures_are_predicted_above_chance(scores: pd.DataFrame, report: dict[str, Any]) -> None:
    fleet, paper = report["fleet"], report["methods"]
    gbdt, random = (fleet[f"{name}_variable"] for name in ("gbdt", "random"))
    assert gbdt["average_precision_interval"][0] > 5 * scores["label"].mean()
    assert gbdt["average_precision_interval"][0] > random["average_precision_interval"][1]
    assert gbdt["list_precision_interval"][0] > random["list_precision_interval"][1]
    assert 2 * gbdt["failures_caught"] > gbdt["failures"] > 5
    gbdt, random = (paper[f"{name}_variable"] for name in ("gbdt", "random"))
    assert gbdt["precision_at_k_interval"][0] > 2 * random["precision_at_k_interval"][1]


def test_lists_match_contract(lists: Path) -> None:
    assert sorted(path.name for path in lists.iterdir()) == [f"date={day}" for day in LIST_DAYS]
    files = {f"at_risk.{kind}" for kind in ("parquet", "csv", "json", "html")}
    files |= {"unscored.csv", "summary.json", "gpu_extracts.parquet"}
    wanted = {
        "rank", "gpu_serial", "probability", "flagged", "flagged_by", "reasons", "window_end",
        "model_version", "valid_until",
    }  # fmt: skip
    for folder in lists.iterdir():
        assert {path.name for path in folder.iterdir()} == files
        table = pd.read_parquet(folder / "at_risk.parquet")
        assert wanted <= set(table.columns)
        assert list(table["rank"]) == list(range(1, len(table) + 1))
        assert table["flagged"].sum() == 1
        assert table["probability"].between(0, 1).all()
        left_out = pd.read_csv(folder / "unscored.csv")
        assert len(table) + len(left_out) == 20


def test_repaired_machine_is_too_new_for_list(lists: Path) -> None:
    # M002 fails on 19 March at 6:00, and at midnight its new life has 17 records instead of 24.
    left_out = pd.read_csv(lists / "date=2015-03-20" / "unscored.csv")
    assert left_out.to_dict("records") == [{"gpu_serial": "M002", "reason": "too new"}]


def test_review_counts_hits_and_misses(
    source: Path, records: Path, lists: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    failures = str(records / "failures.parquet")
    assert main(["review", "--at-risk", str(lists), "--failures", failures, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    tables = [pd.read_parquet(folder / "at_risk.parquet") for folder in sorted(lists.iterdir())]
    rows = pd.concat(tables)
    flagged = rows[rows["flagged"]]
    failed = _failures(source)
    spans = zip(flagged["gpu_serial"], flagged["window_end"], flagged["valid_until"], strict=True)
    caught = {
        (serial, moment)
        for serial, start, end in spans
        for moment in failed.get(serial, [])
        if start < moment <= end
    }
    first, last = rows["window_end"].min(), rows["valid_until"].max()
    happened = [moment for moments in failed.values() for moment in moments]
    assert figures["failures"] == sum(first < moment <= last for moment in happened) == 4
    assert figures["caught"] == figures["hits"] == len(caught) >= 2
    assert figures["flagged"] == len(LIST_DAYS)
    assert figures["precision_interval"][0] > figures["random_precision"]
