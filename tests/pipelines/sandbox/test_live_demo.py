from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from forewarn.evaluation.simulation.operations.month_plan import Breakdown, MonthPlan
from forewarn.evaluation.simulation.operations.simulated_cluster import Cluster, StopCosts
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.sandbox.live_clock import LiveClock
from forewarn.pipelines.sandbox.live_demo import LiveOptions, run_live
from forewarn.pipelines.sandbox.live_fleet import FleetFailure
from forewarn.pipelines.sandbox.live_hangs import diagnose_hang
from forewarn.pipelines.sandbox.live_month import LiveMonth
from forewarn.pipelines.sandbox.strategy_comparison import (
    StrategyMonth,
    comparison_lines,
    run_drains,
)
from forewarn.response.state.finding import Finding

pytestmark = pytest.mark.long

START = Nanoseconds(parse_moment("2025-03-01"))


class Closing(logging.Handler):
    """A handler that closes more than itself, like that of TensorFlow's log."""

    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def test_month_is_played_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too few failures to train on: the built-in rules make the lists."""
    handler = Closing()
    small = LiveOptions(gpus=160, past_days=10, days=3, speed=1e6, port=0, stay=False)
    run_live(tmp_path / "live", small)
    story = "".join(capsys.readouterr())
    for words in (
        "3/3 the month begins. Console: http://127.0.0.1:",
        "token: ",
        "the built-in rules",
    ):
        assert words in story
    assert story.count("list of ") == 3
    for name in ("do nothing", "forewarn", "by threshold", "at random"):
        assert f"\n{name}" in story
    assert "An illustration" in story
    site = tmp_path / "live" / "site"
    assert (site / "mlflow").is_dir()
    extracts = sorted((site / "lists").glob("date=*/gpu_extracts.parquet"))
    assert len(extracts) == 3
    assert pd.read_parquet(extracts[-1])["rack"].nunique() == 5  # 20 machines, four a rack
    with pytest.raises(JobError, match="expected a new folder"):
        run_live(tmp_path / "live", small)
    assert not handler.closed
    handler.close()


_INTERRUPTED_TRAINING = """
import sys, time
from pathlib import Path
from tqdm import tqdm
from forewarn.pipelines.sandbox.live_models import LiveModels

def train(begun):
    list(tqdm(range(2)))
    Path(begun).touch()
    time.sleep(600)

if __name__ == "__main__":
    models = LiveModels(Path("site.toml"))
    models._running = models._pool.submit(train, sys.argv[1])
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    models.close()
"""


def test_interrupted_training_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "demo.py"
    script.write_text(_INTERRUPTED_TRAINING)
    command = [sys.executable, str(script), str(tmp_path / "begun")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "leaked" not in ended.stderr


def test_threads_that_step_a_stopped_clock() -> None:
    clock, passed = LiveClock(1e6), threading.Event()
    clock.act("stop")

    def play() -> None:
        clock.pass_time(Nanoseconds(HOUR))
        passed.set()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    assert not passed.is_set()
    clock.act("step")
    assert passed.wait(10)
    thread.join()
    assert clock.stopped
    clock.act("go")
    assert not clock.stopped
    clock.act("faster")
    assert clock.speed == 1e6
    clock.act("slower")
    assert clock.speed == 5e5


def plan() -> MonthPlan:
    """Two machines and two days; the second machine breaks at noon of the second day."""
    at = Nanoseconds(START + DAY + 12 * HOUR)
    broken = (Breakdown(1, at, Nanoseconds(at + HOUR)),)
    return MonthPlan(2, START, Nanoseconds(START + 2 * DAY), broken, (), ())


def test_drained_machine_costs_its_idle_hours() -> None:
    at = START + DAY + 6 * HOUR
    drained = run_drains(plan(), StopCosts(), "list", {at: frozenset({1})})
    assert (drained.drains, drained.emptied) == (1, 1)
    # From 6:00 to midnight, without the hour in which it is down: 17 h of 8 GPUs.
    assert drained.cost.tolist() == [0.0, pytest.approx(17 * 8)]
    idle = run_drains(plan(), StopCosts(), "do nothing", {})
    assert idle.cost.tolist() == [0.0, 0.0]


def test_machine_returns_when_its_gpu_is_repaired() -> None:
    """The second machine breaks at noon of the second day, for an hour."""
    month_plan, told = plan(), list[str]()
    broken = month_plan.breakdowns[0]
    failure = FleetFailure("S1", broken.machine, broken.at, broken.repaired, 79)
    fleet: Any = SimpleNamespace(failures=[failure], start=START)
    cluster, other, reported = Cluster(month_plan), cast("Any", None), list[Finding]()
    ledger = SimpleNamespace(record_findings=lambda findings, **_: reported.extend(findings))
    responder: Any = SimpleNamespace(ledger=ledger)
    month = LiveMonth(fleet, other, cluster, responder, other, 0.0, told.append, _next_failure=1)
    cluster.advance(Nanoseconds(broken.at))
    cluster.drained |= {0, 1}
    month.return_repaired()
    assert (cluster.drained, told, reported) == ({0, 1}, [], [])
    cluster.advance(broken.repaired)
    month.return_repaired()
    assert cluster.drained == {0}
    (end,) = reported  # nothing is drained for a fault that has ended
    assert (end.gpu_serial, end.cause, end.count) == ("S1", "xid 79", 0)
    assert end.at == end.valid_until == broken.repaired
    assert told == ["day  2 13:00: node-00001 was repaired and returned to service"]
    cluster.drained.add(1)  # for another reason
    month.return_repaired()
    assert cluster.drained == {0, 1}


def test_drained_machine_without_a_fault_returns_after_a_day() -> None:
    """The second machine breaks at noon of the second day; both were drained a day before."""
    cluster, told, other = Cluster(plan()), list[str](), cast("Any", None)
    fleet: Any = SimpleNamespace(failures=[], start=START)
    month = LiveMonth(fleet, other, cluster, other, other, 0.0, told.append)
    cluster.advance(Nanoseconds(START + 12 * HOUR + HOUR // 2))
    cluster.drained |= {0, 1}
    month.return_examined()
    cluster.advance(Nanoseconds(START + DAY + 12 * HOUR))
    month.return_examined()
    assert (cluster.drained, told) == ({0, 1}, [])
    cluster.advance(Nanoseconds(START + DAY + 12 * HOUR + HOUR // 2))
    month.return_examined()
    assert cluster.drained == {1}  # it is down
    assert told == ["day  2 12:00: node-00000 has no fault after a day and returned to service"]
    month.return_examined()
    assert len(told) == 1


def test_differences_have_paired_intervals() -> None:
    base, other = np.array([10.0, 20.0, 30.0]), np.array([9.0, 19.0, 29.0])
    months = [StrategyMonth("do nothing", 0, 3, 0, base), StrategyMonth("list", 2, 1, 1, other)]
    _, nothing, listed, _, conclusion = comparison_lines(months, "do nothing")
    assert "60" in nothing
    assert "-3 [-3 to -3]" in listed
    assert conclusion == "list: 3 GPU-hours fewer than do nothing."


@pytest.mark.parametrize(
    ("days", "words"),
    [
        ([11.0, 21.0, 31.0], "3 GPU-hours more than do nothing."),
        ([0.0, 40.0, 30.0], "not distinguishable from do nothing, the interval contains 0."),
    ],
)
def test_conclusion_says_which_strategy_was_better(days: list[float], words: str) -> None:
    nothing = StrategyMonth("do nothing", 0, 3, 0, np.array([10.0, 20.0, 30.0]))
    lines = comparison_lines(
        [nothing, StrategyMonth("list", 2, 1, 1, np.array(days))], nothing.name
    )
    assert [*lines][-1] == f"list: {words}"


def test_hang_is_diagnosed_with_the_machines_of_the_cluster(tmp_path: Path) -> None:
    machines = ["node-00007", "node-00003", "node-00021", "node-00008"]
    line = diagnose_hang(tmp_path / "job", "12", machines, "node-00003", START, 2)
    assert not (tmp_path / "job").exists()
    assert (line["job"], line["kind"]) == ("12", "hang")
    assert [row["machine"] for row in line["culprits"]] == ["node-00003"]
    assert "node-00003" in line["machines"]
    assert parse_moment(line["at"]) >= START
