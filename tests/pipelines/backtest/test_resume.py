from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.features.records.fleet_timeline import FleetSlice
from forewarn.pipelines.backtest import backtest_run, windowed_records
from forewarn.pipelines.backtest.progress_folder import PROGRESS, ProgressFolder
from forewarn.pipelines.backtest.windowed_records import WindowedRecords, fingerprint
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.storage.records.compaction import compact_date
from forewarn.pipelines.storage.records.stored_fleet import StoredFleet

pytestmark = pytest.mark.long

SCORES = ("scores.parquet", "scores_fixed.parquet", "scores_expanding.parquet")
CHOICES = ("--models", "gbdt", "--strategies", "fixed,variable,expanding")

# Runs the command line, and kills its process with SIGKILL when the n-th part is stored: before or
# after its rename. `write` kills between two of the result files.
KILLED = """
import os, pathlib, signal, sys
import forewarn.models.prediction.trees.tree_model as trees
from forewarn.pipelines.cli.main import main
when, number, *arguments = sys.argv[1:]
trees._N_TREES, left, rename = 6, int(number), pathlib.Path.rename
replace = pathlib.Path.replace
def die_at(before, name, move):
    def moved(path, target):
        global left
        if before:
            left -= 1
            if left == 0: os.kill(os.getpid(), signal.SIGKILL)
        result = move(path, target)
        if not before:
            left -= 1
            if left == 0: os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(pathlib.Path, name, moved)
if when in ("before", "after"):
    die_at(when == "before", "rename", rename)
elif when == "write":
    def only_results(path, target):
        if path.name.startswith(".scores"): os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, target)
    pathlib.Path.replace = only_results
sys.exit(main(arguments))
"""


@pytest.fixture(autouse=True, scope="module")
def few_trees() -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("forewarn.models.prediction.trees.tree_model._N_TREES", 6)
        yield


@pytest.fixture(scope="module")
def short(
    fleet: pd.DataFrame, write: Callable[[pd.DataFrame, Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """Return records of three retrainings, with missing and duplicate rows."""
    some = fleet[(fleet["timestamp"] < "2025-01-16") & (fleet["gpu_serial"] < "S024")]
    some = some[some.index % 61 != 0]
    return write(pd.concat([some, some[::97]]), tmp_path_factory.mktemp("short") / "records")


def arguments(records: Path, config: Path, out: Path) -> list[str]:
    paths = ["--records", str(records), "--config", str(config), "--out", str(out)]
    return ["backtest", *paths, *CHOICES]


@pytest.fixture(scope="module")
def uninterrupted(short: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    assert main(arguments(short, config, out)) == 0
    return out


def assert_same(out: Path, expected: Path) -> None:
    for name in SCORES:
        assert (out / name).read_bytes() == (expected / name).read_bytes()
    reports = [json.loads((folder / "report.json").read_text()) for folder in (out, expected)]
    for cost in ("stages", "seconds", "peak_rss_bytes"):
        for report in reports:
            del report[cost]
    assert reports[0] == reports[1]
    assert not (out / PROGRESS).exists()


def test_killed_backtest_resumes_with_same_bytes(
    short: Path, config: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    out, done = tmp_path / "out", []
    for when, number in (("after", 4), ("before", 11), ("write", 0)):
        command = [sys.executable, "-c", KILLED, when, str(number), *arguments(short, config, out)]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert not any((out / name).exists() for name in SCORES[:1])
        done.append(sorted(path.name for path in (out / PROGRESS).glob("retraining-*[0-9]")))
    assert [len(names) for names in done] == [0, 1, 3]
    assert main(arguments(short, config, out)) == 0
    assert_same(out, uninterrupted)


def stop_before_the_result(patched: pytest.MonkeyPatch, asked: list[str]) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    patched.setattr(backtest_run, "_write", stop)
    assert main(asked) != 0
    patched.undo()


@pytest.mark.parametrize("rows", [500, 3000])
def test_damaged_parts_are_computed_again(
    short: Path,
    config: Path,
    uninterrupted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: int,
) -> None:
    asked = arguments(short, config, tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(windowed_records, "_MAX_SPAN_ROWS", rows)
        with pytest.MonkeyPatch.context() as inner:
            stop_before_the_result(inner, asked)
        first, second, _ = sorted((tmp_path / PROGRESS).glob("retraining-*"))
        path = next(first.rglob("*.txt")) if rows == 500 else second / "window.npz"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
        capsys.readouterr()
        assert main(asked) == 0
    damaged = first if rows == 500 else second
    assert f"{damaged}: is damaged and will be computed again" in capsys.readouterr().err
    assert_same(tmp_path, uninterrupted)


def test_compacted_records_give_same_bytes(
    short: Path,
    config: Path,
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.pipelines.storage.records.date_merge._MIN_ROWS_PER_GROUP", 16)
    monkeypatch.setattr(
        "forewarn.pipelines.storage.records.file_slice._TARGET_ROWS_PER_SLICE", 1000
    )
    monkeypatch.setattr(windowed_records, "_MAX_SPAN_ROWS", 3000)
    monkeypatch.setattr(
        "forewarn.evaluation.prediction.walk_forward.window_scores._MAX_BATCH_INSTANCES", 500
    )
    shutil.copytree(short, tmp_path / "records")
    for folder in sorted((tmp_path / "records").glob("date=*"))[:-1]:
        compact_date(tmp_path / "records", dt.date.fromisoformat(folder.name[5:]))
    asked = arguments(tmp_path / "records", config, tmp_path / "out")
    slices, read = StoredFleet.slices, []

    def counted(self: StoredFleet[Any]) -> Iterator[FleetSlice]:
        read.append(self.n_slices)
        return slices(self)

    monkeypatch.setattr(StoredFleet, "slices", counted)
    assert main(asked) == 0
    assert max(read) > 1
    # The report counts duplicate rows; compaction keeps one of each.
    for name in SCORES:
        assert (tmp_path / "out" / name).read_bytes() == (uninterrupted / name).read_bytes()


def test_progress_of_other_inputs_is_discarded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_of = {"records": [["a", 1, 2]], "configuration": [1]}
    progress = ProgressFolder.open(tmp_path, made_of)
    progress.keep("part", lambda folder: {"bytes": (folder / "x").write_bytes(b"x")})
    assert ProgressFolder.open(tmp_path, made_of).facts("part") == {"bytes": 1}
    assert capsys.readouterr().err == ""
    changed = ProgressFolder.open(tmp_path, made_of | {"records": [["a", 1, 3]]})
    assert changed.facts("part") is None
    assert "was made from other records; the backtest starts again" in capsys.readouterr().err


def test_changed_records_are_refused(
    short: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowed_records, "_MAX_SPAN_ROWS", 3000)
    job = open_job(short, load_settings(config), ["gbdt"])
    before = fingerprint(job.store)
    records = WindowedRecords.from_store(job.store, job.walk_settings, lambda fleet: [fleet.last])
    records.refuse_changes(before)
    later = short / "date=2025-01-16"
    later.mkdir()
    (later / "part-0.parquet").write_bytes(b"a date added meanwhile")
    try:
        records.refuse_changes(before)
        changed = short / "date=2025-01-04" / "part-0.parquet"
        os.utime(changed)
        with pytest.raises(JobError, match=f"{changed}: was added, removed or changed during the"):
            records.refuse_changes(before)
    finally:
        shutil.rmtree(later)
