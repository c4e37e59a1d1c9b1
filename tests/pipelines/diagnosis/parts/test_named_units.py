"""Ranks and machines that launchers and components name in words, whatever the product."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.loaded_job import read_job


def verdict(files: dict[str, str]) -> Diagnosis:
    """Return the verdict on a job with these logs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, "job", "logs", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_job(Path(folder, "job")).judge(None)[1]


def named(files: dict[str, str]) -> set[Any]:
    """Return the ranks, or else the machines, of the culprits."""
    culprits = verdict(files).culprits
    return {c.machine if c.rank is None else c.rank for c in culprits}


AWAITED = "2026-03-01 04:0{n}:00.1: I master.cc:9] Create still waiting for response from worker: "
TASK = "/job:worker/replica:0/task:{task}\n"


@settings(deadline=None, max_examples=10)
@given(world=st.integers(5, 9), missing=st.sets(st.integers(0, 4), min_size=1, max_size=2))
def test_tasks_that_all_wait_for(world: int, missing: set[int]) -> None:
    """A line for each missing task; those that wait for the same ones agree."""
    lines = "".join(
        AWAITED.format(n=n) + TASK.format(task=task) for n in range(4) for task in sorted(missing)
    )
    files = {f"w-{n}.log": lines for n in range(world) if n not in missing}
    files |= {f"w-{n}.log": "2026-03-01 04:00:00.1: I server.cc:3] begun\n" for n in missing}
    assert named(files) == missing


def test_wait_that_was_over_names_none() -> None:
    """A rank that came late was awaited for a while."""
    wait = "[2026-03-01 04:00:10] store: still waiting for rank 3\n"
    steps = "".join(f"[2026-03-01 04:{n:02}:00] step {n} loss 2.{n}\n" for n in range(2, 30))
    assert verdict({"job.log": wait + steps}).kind == "none"


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("ssh: connect to host cn-7 port 22: No route to host", {"cn-7"}),
        ("ssh: Could not resolve hostname cn-7: Name or service not known", {"cn-7"}),
        ("the node(s) 'cn-7_881_0' have been removed from the rendezvous 'a' since they had "
         "no heartbeat.", {"cn-7"}),
        ("Detected that rank 6 has died", {6}),
        ("barrier: no heartbeat from rank 6", {6}),
        ("worker process of rank 6 exited with code 3", {6}),
        ("worker process of rank 6 exited with code 0", set()),
    ],
)  # fmt: skip
def test_launcher_names_unit(line: str, who: set[Any]) -> None:
    assert named({"job.log": f"starting 8 processes\n{line}\n"}) == who


LIMIT = "RuntimeError: can't start new thread\n"
LOST = (
    "(raylet) A worker died or was killed while executing a task. Worker IP address: 10.0.0.6 "
    "Worker port: 7 Worker PID: 4 Worker exit type: SYSTEM_ERROR\n"
)


@pytest.mark.parametrize(("text", "who"), [(LOST, {"10.0.0.6"}), (LIMIT + LOST, set())])
def test_stated_cause_outweighs_launcher(text: str, who: set[Any]) -> None:
    """A launcher names the process that it missed first, not the one that states a cause."""
    assert named({"job.log": text}) == who
