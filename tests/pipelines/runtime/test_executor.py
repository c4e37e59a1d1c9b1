from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster
from tests.pipelines.backtest.test_evaluated_scores import protocol, windows, write
from tests.pipelines.runtime.slice_tasks import (
    compact_killed_once,
    die,
    object_of_ours,
    refuse,
    squares,
    take_too_long,
)

from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.evaluation.prediction.metrics.window_average_precision import window_average_precision
from forewarn.pipelines.backtest.evaluated_scores import EvaluatedScores
from forewarn.pipelines.doctor.file_survey import survey_file
from forewarn.pipelines.runtime import executor as executor_module
from forewarn.pipelines.runtime.executor import Executor, ExecutorKind, SliceMap
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.storage.records.compaction_run import compact_to_dict

# A closing cluster sometimes leaves a socket to be collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ROOT = Path(__file__).parents[3]
KINDS: tuple[ExecutorKind, ...] = ("threads", "processes", "dask")
PARTS = [(letter, 3 + number) for number, letter in enumerate("abcdefghij")]


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Give workers the path of this process."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module", params=KINDS)
def slices(request: pytest.FixtureRequest) -> Iterator[SliceMap]:
    # A worker takes seconds to restart: a few deaths suffice.
    fewer = dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with fewer, Executor(request.param, 2).started() as slices:
        yield slices


in_processes = pytest.mark.parametrize("slices", ["processes", "dask"], indirect=True)


def test_results_are_ordered_and_equal(slices: SliceMap) -> None:
    results = list(slices.map(squares, PARTS))
    assert [text for text, _ in results] == [letter.upper() for letter, _ in PARTS]
    for (_, values), part in zip(results, PARTS, strict=True):
        np.testing.assert_array_equal(values, squares(part)[1])
        assert values.dtype == np.float64


def test_survey_is_equal_on_all_executors(slices: SliceMap, tmp_path: Path) -> None:
    kinds: dict[str, tuple[str, ...]] = {"counter": ("errors",), "float": ("load",)}
    items = []
    for number in range(3):
        path, times = (
            tmp_path / f"{number}.parquet",
            pd.date_range("2025-01-01", periods=20, tz="UTC"),
        )
        serials = ["a"] * 10 + [f"b{number}"] * 10
        errors = np.arange(20.0) % 7 + number
        frame = {"gpu_serial": serials, "timestamp": times, "errors": errors}
        pd.DataFrame(frame).to_parquet(path)
        items.append((path, dt.date(2025, 1, 1), kinds, ()))
    surveys = list(slices.map(survey_file, items))
    assert [part["columns"][0]["resets"] for (part,) in surveys] == [2, 2, 2]
    assert repr(surveys) == repr([survey_file(item) for item in items])


def test_test_window_is_equal_on_all_executors(slices: SliceMap, tmp_path: Path) -> None:
    paths = write(windows(3), tmp_path)
    scores = EvaluatedScores.from_files(paths, protocol(3), None, slices)
    averages = scores.averages["a"]
    expected = [
        window_average_precision(ScoreTable(frame, protocol(3)))["a"] for frame in windows(3)
    ]
    assert averages.precisions == [value for part in expected for value in part.precisions]
    assert None not in averages.precisions
    assert averages.draws.shape == (3, 200)


def test_task_error_is_raised_unchanged(slices: SliceMap) -> None:
    results = slices.map(refuse, [0, 1, 2])
    assert next(results) == 0
    with pytest.raises(ValueError, match="slice 1 is bad"):
        next(results)
    assert list(slices.map(refuse, [5])) == [5]


def test_objects_are_not_pickled(slices: SliceMap) -> None:
    with pytest.raises(TypeError, match=r"a slice contains object, expected paths"):
        list(slices.map(object_of_ours, [1]))
    with pytest.raises(TypeError, match=r"a slice contains Executor, expected paths"):
        list(slices.map(repr_of, [Executor()]))
    with pytest.raises(TypeError, match="a slice contains an array of objects"):
        list(slices.map(repr_of, [np.array([{}])]))


def repr_of(value: object) -> str:
    return repr(value)


def test_task_must_be_importable(slices: SliceMap) -> None:
    with pytest.raises(TypeError, match="must be a module-level function"):
        list(slices.map(lambda part: part, [1]))


def test_slices_are_read_on_demand() -> None:
    read = []

    def parts() -> Iterator[int]:
        for number in range(100, 1000):
            read.append(number)
            yield number

    with Executor("threads", 2).started() as slices:
        results = slices.map(refuse, parts())
        assert [next(results), next(results)] == [100, 101]
        assert len(read) <= 6


@in_processes
def test_killed_worker_changes_nothing(slices: SliceMap, tmp_path: Path) -> None:
    folders = tmp_path / "killed", tmp_path / "here"
    for folder in folders:
        write_dates(folder)
    killed = tmp_path / "was killed"
    items = [(folders[0], dt.date(2025, 1, day), killed) for day in (1, 2, 3)]
    results = list(slices.map(compact_killed_once, items))
    assert killed.exists()
    # A task killed after its work reports at the second try that nothing was left to do.
    assert [fields["date"] for fields in results] == [date for _, date, _ in items]
    for _, date, _ in items:
        compact_to_dict((folders[1], date, ()))
    # The unfinished file of a process that has not ended yet is left to the next run.
    paths = [sorted(folder.rglob("*.parquet")) for folder in folders]
    assert [len(few) for few in paths] == [3, 3]
    for ours, expected in zip(*paths, strict=True):
        assert ours.read_bytes() == expected.read_bytes()


def write_dates(folder: Path) -> None:
    """Write three dates of two files each, with identical modification times."""
    for day in (1, 2, 3):
        for number in range(2):
            times = pd.date_range(f"2025-01-{day:02}", periods=20, freq="10min", tz="UTC")
            frame = pd.DataFrame({"gpu_serial": [f"g{number}"] * 20, "timestamp": times})
            path = folder / f"date=2025-01-{day:02}" / f"part-{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            frame.assign(load=np.arange(20.0)).to_parquet(path)
            os.utime(path, (1_700_000_000, 1_700_000_000))


@in_processes
def test_slice_killing_every_worker_fails(slices: SliceMap) -> None:
    with pytest.raises(JobError, match=r"died.*; the host may be out of memory\.$"):
        list(slices.map(die, [1]))
    # The next map finds running workers.
    assert list(slices.map(refuse, [7])) == [7]


def test_cluster_without_workers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(executor_module, "_PATIENCE_SECONDS", 0.1)
    address = "127.0.0.1:0"
    empty = LocalCluster(
        n_workers=0, processes=False, dashboard_address=address, host="127.0.0.1", protocol="tcp"
    )
    executor = Executor("dask", address=empty.scheduler_address)
    with empty, executor.started() as slices, pytest.raises(JobError, match="has no worker"):
        next(slices.map(refuse, [0]))


def test_timeout_error_of_task_is_unchanged(slices: SliceMap) -> None:
    with pytest.raises(TimeoutError, match="slice 3 took too long"):
        list(slices.map(take_too_long, [3]))


def test_unreachable_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_CONNECT_TIMEOUT", "0.3s")
    executor = Executor("dask", address="tcp://127.0.0.1:9")
    line = r"`executor.address` 'tcp://127.0.0.1:9' is not a cluster"
    with pytest.raises(JobError, match=line), executor.started():
        pass


DAEMON = """
import multiprocessing
from forewarn.pipelines.runtime.executor import Executor

def start(kind):
    try:
        with Executor(kind).started() as slices:
            print("started")
    except ValueError as error:
        print(error)

if __name__ == "__main__":
    for kind in ("processes", "dask"):
        context = multiprocessing.get_context("fork")
        process = context.Process(target=start, args=(kind,), daemon=True)
        process.start()
        process.join()
"""


def test_daemonic_process_is_refused() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", DAEMON], capture_output=True, text=True, check=True
    )
    lines = answer.stdout.splitlines()
    assert len(lines) == 2
    for line, kind in zip(lines, ("processes", "dask"), strict=True):
        assert line.startswith(f'`executor.kind` is "{kind}" in a daemonic process')
        assert 'expected "threads", or "dask" and the `address` of a cluster.' in line


# Like Airflow's LocalExecutor: a non-daemonic worker that forks for each task.
SUPERVISED = """
import multiprocessing, os, sys
from forewarn.pipelines.runtime.executor import Executor
from distributed import LocalCluster
from tests.pipelines.backtest.test_evaluated_scores import protocol, windows, write
from tests.pipelines.runtime.slice_tasks import squares

def task():
    with Executor("dask", 2).started() as slices:
        return [int(values.sum()) for _, values in slices.map(squares, [("a", 3), ("b", 4)])]

def work():
    child = os.fork()
    if not child:
        code = 1
        try:
            print(task(), flush=True)
            code = 0
        finally:
            os._exit(code)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=work, daemon=False)
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""


def test_cluster_starts_in_local_executor_task(tmp_path: Path) -> None:
    script = tmp_path / "supervisor.py"
    script.write_text(SUPERVISED)
    answer = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (answer.returncode, answer.stdout) == (0, "[5, 14]\n"), answer.stderr
