"""A running job is asked to save before it leaves a machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.recovery.launch_table import LaunchTable
from forewarn.pipelines.recovery.launched_attempt import LaunchedAttempt
from forewarn.pipelines.recovery.save_request import saved_on_request


class JobClock:
    """A clock on which the job acts while the launcher waits."""

    def __init__(self, job: Callable[[], None]) -> None:
        self.job, self.waited = job, 0.0

    def now(self) -> int:
        return round(self.waited * SECOND)

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.waited += seconds
        self.job()
        return until.is_set()


@pytest.fixture
def run(tmp_path: Path) -> LaunchedAttempt:
    values = {"hosts": ["n[1-3]"], "nodes": 2, "processes": 1, "program": ["t.py"], "save": "5s"}
    table = LaunchTable.model_validate({**values, "folder": tmp_path / "train"})
    return LaunchedAttempt(table, tmp_path / "train" / "attempt-0002", 2)


@pytest.mark.parametrize("step", [1200, None])
def test_answer_ends_the_wait(run: LaunchedAttempt, step: int | None) -> None:
    notices = run.table.folder / "notices"
    read: list[dict[str, Any]] = []

    def answer() -> None:
        read.append(json.loads((notices / "train-2.json").read_text()))
        (notices / "train-2.answer").write_text(json.dumps({"step": step}))

    clock = JobClock(answer)
    assert saved_on_request(run, "n2", "slow", clock, threading.Event()) == step
    [notice] = read
    assert notice["save_now"]
    [machine] = notice["machines"]
    assert (machine["machine"], machine["why"], machine["leaves_at"]) == (
        *("n2", "slow"),
        "1970-01-01T00:00:05Z",
    )
    assert list(notices.iterdir()) == []


def test_wait_is_bounded(run: LaunchedAttempt) -> None:
    clock = JobClock(lambda: None)
    assert saved_on_request(run, "n2", "slow", clock, threading.Event()) is None
    assert 5.0 <= clock.waited < 5.5
    stopped = threading.Event()
    stopped.set()
    assert saved_on_request(run, "n2", "slow", clock, stopped) is None
    assert clock.waited < 6.0


def test_job_that_cannot_save_on_notice_is_not_asked(run: LaunchedAttempt) -> None:
    run.table = run.table.model_copy(update={"save": None})
    clock = JobClock(lambda: None)
    assert saved_on_request(run, "n2", "slow", clock, threading.Event()) is None
    assert clock.waited == 0.0
    assert not run.table.folder.exists()
