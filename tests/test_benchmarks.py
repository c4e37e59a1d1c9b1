"""The benchmark history: which runs are recorded, discarded or failed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest


def load_history() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "run_benchmarks.py"
    spec = importlib.util.spec_from_file_location("benchmark_history", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


history_module = load_history()
run_all, parse_ratios = history_module.run_all, history_module.parse_ratios
PRINTS = 'print("fresh process read 1.0 s, ratio 1.46")\nprint("peak memory 9 MiB")\n'
WRONG = 'raise SystemExit("rank 5 stopped, the verdict names 3")\n'


@pytest.fixture
def scripts(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "quick.py", tmp_path / "wrong.py"]
    for path, text in zip(paths, (PRINTS, WRONG), strict=True):
        path.write_text(text)
    return paths


def test_run_on_idle_machine_is_recorded(scripts: list[Path], tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text('{"at": "before"}\n')
    assert run_all(scripts[:1], short=False, history=history, load=lambda: 2.9) == 0
    before, line = map(json.loads, history.read_text().splitlines())
    assert before == {"at": "before"}
    assert (line["benchmark"], line["load"]) == ("quick", 2.9)
    assert line["ratios"] == {"fresh process read": 1.46}
    assert line["output"][1] == "peak memory 9 MiB"
    assert line["peak_mib"] > 1
    assert line["machine"]["cores"] >= 1
    assert {"commit", "at", "seconds", "cpu_seconds"} <= set(line)


def test_run_on_busy_machine_is_discarded(
    scripts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = iter((0.5, 3.2))  # at the start and at the end
    history = tmp_path / "history.jsonl"
    assert run_all(scripts[:1], short=False, history=history, load=lambda: next(loads)) == 0
    assert not history.exists()
    assert "the load average was 3.2, above 3: this run is not recorded" in capsys.readouterr().out


def test_short_form_records_nothing(
    scripts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    assert run_all(scripts[:1], short=True, history=history, load=lambda: 99.0) == 0
    # The failing benchmark comes first; the others run all the same.
    assert run_all(scripts[::-1], short=True, history=history, load=lambda: 0.0) == 1
    answer = capsys.readouterr()
    assert answer.err.splitlines()[-1] == "failed: wrong"
    assert answer.out.count("ratio 1.46") == 2
    assert not history.exists()


def test_ratios_are_named_by_line_start() -> None:
    lines = ["peer, one Parquet file  0.031 s, ratio 12", "  read    0.4 s", "ratio x"]
    assert parse_ratios(lines) == {"peer": 12.0}


def test_shared_modules_are_not_benchmarks() -> None:
    names = {path.stem for path in history_module.benchmarks()}
    assert {"api", "compact", "daily_list", "executors", "training_set"} <= names
    assert not names & {"as_command", "history", "measured_fleet", "scaling"}
