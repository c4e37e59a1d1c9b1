from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.doctor import data_problems

Write = Callable[[pd.DataFrame, Path], Path]


def _refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused; return its error line."""
    try:
        code = main(list(arguments))
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("note:")]
    assert len(lines) == 1, captured.err
    return lines[0]


def _backtest(records: Path, config: Path, out: Path) -> list[str]:
    return ["backtest", "--records", str(records), "--config", str(config), "--out", str(out)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bactest"], ["bactest"]),
        (["backtest", "--recods", "x"], ["--recods"]),
        (["backtest", "--records", "r", "--out", "o", "--models", "cnn,xgb"], ["xgb", "cnn,mlp"]),
        (["backtest", "--records", "r", "--out", "o", "--start", "soon"], ["--start", "soon"]),
        (["train", "--records", "r", "--at", "2025-13-01", "--model", "m"], ["--at", "2025-13-01"]),
        (["simulate", "fleet", "--out", "o", "--gpus", "0"], ["--gpus", "'0'", "at least 1"]),
        (["backtest", "--records", "r", "--out", "o", "--nonsense"], ["--nonsense"]),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = _refused(arguments, capsys)
    assert all(word in line for word in words)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("forewarn ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[windows]\nlenght = 3", ["windows.lenght"]),
        ("[windows]\nlength = 0", ["windows.length", "0", "greater than 0"]),
        ("[training]\nlengths = ['9 days']", ["training.lengths", "9 days", "10min"]),
        ("[features]\nfloat = ['a']\ncounter = ['a']", ["`a`", "twice"]),
        ("[ensembles]\nparallel = ['xgb']", ["ensembles.parallel", "xgb", "cnn"]),
        ("windows = ", ["TOML"]),
    ],
)
def test_invalid_configuration_is_one_line(
    text: str, words: list[str], records: Path, out: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    config = tmp_path / "bad.toml"
    config.write_text(text)
    line = _refused(_backtest(records, config, out), capsys)
    assert all(word in line for word in ["bad.toml", *words])
    assert not out.exists()


def test_configured_peers_must_exist(
    records: Path, config: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "peers.toml"
    changed.write_text(config.read_text().replace('peers = ["machine_id"]', 'peers = ["rack"]'))
    assert "`rack`" in _refused(_backtest(records, changed, out), capsys)


def test_missing_column(
    fleet: pd.DataFrame, config: Path, out: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    records = write(fleet.drop(columns="power_draw"), tmp_path / "records")
    line = _refused(_backtest(records, config, out), capsys)
    assert "power_draw" in line
    assert "part-0.parquet" in line
    assert not out.exists()


def test_wrong_type(
    fleet: pd.DataFrame, config: Path, out: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    frame = fleet[fleet["timestamp"] < "2025-01-03"].assign(power_draw="[N/A]")
    line = _refused(_backtest(write(frame, tmp_path / "records"), config, out), capsys)
    assert "power_draw" in line
    assert "number" in line
    assert not out.exists()


def test_truncated_file(
    fleet: pd.DataFrame, config: Path, out: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    records = write(fleet[fleet["timestamp"] < "2025-01-04"], tmp_path / "records")
    broken = records / "date=2025-01-02" / "part-0.parquet"
    broken.write_bytes(broken.read_bytes()[:2000])
    line = _refused(_backtest(records, config, out), capsys)
    assert "date=2025-01-02" in line
    assert "Parquet" in line
    assert not out.exists()


def test_empty_and_absent_folder(
    config: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "records").mkdir()
    assert "holds no records" in _refused(_backtest(tmp_path / "records", config, out), capsys)
    assert "no such folder" in _refused(_backtest(tmp_path / "nowhere", config, out), capsys)
    assert not out.exists()


def test_no_failure_in_any_training_span(
    fleet: pd.DataFrame, config: Path, out: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    records = write(fleet.assign(failure=0), tmp_path / "records")
    assert "retrainings is possible" in _refused(_backtest(records, config, out), capsys)
    without = write(fleet.drop(columns="failure"), tmp_path / "without")
    assert "`failure`" in _refused(_backtest(without, config, out), capsys)
    assert not out.exists()


def test_all_gpus_failed(
    fleet: pd.DataFrame, config: Path, out: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    records = write(fleet.assign(failure=1), tmp_path / "records")
    assert "retrainings is possible" in _refused(_backtest(records, config, out), capsys)
    assert not out.exists()


def test_wrong_cadence(
    fleet: pd.DataFrame, config: Path, out: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    sparse = fleet[fleet["timestamp"].dt.hour % 3 == 0]
    line = _refused(_backtest(write(sparse, tmp_path / "records"), config, out), capsys)
    assert "3 h apart" in line
    assert "= 1 h within" in line


def test_train_reports_available_days(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    records = write(fleet[fleet["timestamp"] < "2025-01-06"], tmp_path / "records")
    arguments = ["--records", str(records), "--config", str(config), "--at", "2025-01-06"]
    assert main(["train", *arguments, "--model", str(tmp_path / "model")]) == 0
    words = "trained on 5 days (all available; `training.lengths` asks for 6)\n"
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("n_enough", [0, 10_000])
def test_train_warns_about_few_failures(
    n_enough: int, fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(data_problems, "MIN_FAILURES_TO_TRAIN", n_enough)
    records = write(fleet[fleet["timestamp"] < "2025-01-06"], tmp_path / "records")
    arguments = ["--records", str(records), "--config", str(config), "--at", "2025-01-06"]
    assert main(["train", *arguments, "--model", str(tmp_path / "model")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("failures known at 2025-01-06") for line in lines)
    command = f"`forewarn score --records {records} --config {config} --model builtin:rules"
    ending = f"{command} --at 2025-01-06T00:00:00Z --out lists`"
    assert lines[-1].endswith(ending) == (n_enough > 0)


def test_train_counts_failures_of_its_span(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    before, counted = fleet[fleet["timestamp"] < "2025-01-06"], []
    for name, failed_at in (("old", "2024-06-01T00:00:00Z"), ("new", "2025-01-04T06:30:00Z")):
        records = write(before, tmp_path / name)
        healthy = before.groupby("gpu_serial")["failure"].max().eq(0).idxmax()
        known = pd.DataFrame({"gpu_serial": [healthy], "failed_at": pd.to_datetime([failed_at])})
        known.assign(known_at=known["failed_at"]).to_parquet(records / "failures.parquet")
        arguments = ["--records", str(records), "--config", str(config), "--at", "2025-01-06"]
        assert main(["train", *arguments, "--model", str(tmp_path / f"{name}-model")]) == 0
        text = capsys.readouterr().out.split("in the training span: ")[1]
        counted.append(int(text.split()[0]))
    assert counted[1] == counted[0] + 1


def test_too_few_failures_leave_no_folder(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    variable = tmp_path / "variable.toml"
    variable.write_text(
        config.read_text().replace("[training]", '[training]\nstrategy = "variable"')
    )
    week = fleet[fleet["timestamp"] < "2025-01-04T12:00"]  # fewer than the 6 days required
    records = write(week.assign(failure=0), tmp_path / "records")
    for config_file in (config, variable):
        arguments = ["--records", str(records), "--config", str(config_file), "--at", "2025-01-05"]
        line = _refused(["train", *arguments, "--model", str(tmp_path / "model")], capsys)
        assert "found 0 positives" in line
        assert "in the 4 days of records before 2025-01-05" in line
        assert "builtin:rules" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records", "variable.toml"]


def test_simulate_writes_contract_files(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--gpus", "16", "--days", "2", "--seed", "5"]
    assert main(["simulate", "fleet", *arguments]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cmdb.csv", "records", "truth.csv"]
    truth = pd.read_csv(tmp_path / "truth.csv")
    assert list(truth.columns) == ["gpu_serial", "failed_at", "mechanism"]
    assert len(np.unique(pd.read_csv(tmp_path / "cmdb.csv")["gpu_serial"])) >= 16


def test_unwritable_home_gives_no_warning() -> None:
    code = (
        "from forewarn.pipelines.cli.main import main\n"
        "main(['doctor', 'none'])\n"
        "import matplotlib\n"
        "matplotlib.get_cachedir()\n"
    )
    elsewhere = {"MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}
    variables = {name: value for name, value in os.environ.items() if name not in elsewhere}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=variables | {"HOME": "/proc"},
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("forewarn: error: none: ")
