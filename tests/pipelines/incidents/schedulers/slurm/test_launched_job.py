"""`forewarn launch` over `srun` of a real Slurm."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.recovery.simulated_torch import write_job

from forewarn.pipelines.recovery.job_launcher import JobLauncher

NODES = ("node-00000", "node-00001", "node-00002")
SRUN = ["srun", "--nodelist={host}", "--nodes=1", "--ntasks=1", "--job-name={host}"]


def test_node_that_slurm_takes_away_is_replaced(
    slurm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    path = write_job(tmp_path, "hang", hosts=list(NODES), on_host=SRUN, silence="5min")
    events: list[dict[str, Any]] = []
    launcher = threading.Thread(target=JobLauncher(path, events.append).run)
    launcher.start()
    log = tmp_path / "job" / "attempt-0001/logs" / NODES[1] / "job-1/attempt_0/0/stdout.log"
    slurm.until(lambda: log.exists() and "step 5 " in log.read_text(), "rank 1 hangs")
    slurm.call("scancel", "--name", NODES[1])
    launcher.join()
    starts = [event for event in events if event["event"] == "start"]
    assert [start["machines"] for start in starts] == [list(NODES[:2]), [NODES[0], NODES[2]]]
    assert events[-1]["ended"] == "completed"
    slurm.until(lambda: slurm.jobs() == {}, "no step is left")
