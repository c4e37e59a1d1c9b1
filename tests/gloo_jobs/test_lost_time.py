"""Accounts of real jobs that torchrun restarts in place, against what the job itself wrote down."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.conftest import skip_or_fail
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.pipelines.config.respond_tables import RecoveryTable
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.recovery.lost_job import lost_by_job
from forewarn.pipelines.recovery.recovery_advice import advise_recovery
from forewarn.pipelines.recovery.recovery_site import RecoverySite
from forewarn.pipelines.runtime.timestamps import parse_moment

pytestmark = pytest.mark.gloo
WORKER = Path(__file__).with_name("restarting_worker.py")
RANKS, STEPS = 4, 60
STEP = 0.3  # seconds, without what a busy machine adds


def _run(folder: Path, fault: str) -> tuple[Path, float, float]:
    """Run a job to its end; return its folder, and when it began and ended."""
    programs = torch_programs()
    if programs is None:
        skip_or_fail("no environment with torch: make it by .ci/setup_torch")
    job = folder / "job"
    (job / "logs").mkdir(parents=True)
    command = [
        *(str(programs / "torchrun"), "--standalone", "--nproc-per-node", str(RANKS)),
        *("--max-restarts", "1", "--log-dir", str(job / "logs" / "node-0"), "--redirects", "3"),
        *(str(WORKER), str(folder), str(STEPS), fault),
    ]
    begin = datetime.now(UTC).timestamp()
    with (job / "logs" / "torchrun.log").open("wb") as log:
        environment = os.environ | {"LOGLEVEL": "INFO", "TZ": "UTC", "OMP_NUM_THREADS": "1"}
        subprocess.run(
            command, stdout=log, stderr=log, env=environment, timeout=280, check=True, cwd=folder
        )
    return job, begin, datetime.now(UTC).timestamp()


def _truth(folder: Path) -> tuple[Counter[str], float]:
    """Return seconds by use, and the longest step."""
    spans = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    seconds: Counter[str] = Counter()
    for span in spans:
        seconds[span["use"]] += span["end"] - span["begin"]
    steps = [s["end"] - s["begin"] for s in spans if s["use"] in ("useful", "recompute")]
    return seconds, max(steps)


def _slurm_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_accounts_agree_with_the_job_within_a_step(fault: str, tmp_path: Path) -> None:
    job, begin, end = _run(tmp_path, fault)
    truth, longest = _truth(tmp_path)
    runs = tmp_path / "runs"
    row = f"7|job|{_slurm_time(begin)}|{_slurm_time(end + 1)}|COMPLETED|gres/gpu={RANKS}"
    runs.write_text(f"JobIDRaw|JobName|Start|End|State|AllocTRES\n{row}\n")
    report = lost_by_job(job, runs)
    seconds = {use: time / RANKS / 1e9 for use, time in report["gpu_ns"].items()}
    assert sum(report["gpu_ns"].values()) == report["elapsed_gpu_ns"]
    assert seconds["useful"] == pytest.approx(truth["useful"], abs=longest)
    assert seconds["recompute"] == pytest.approx(truth["recompute"], abs=longest)
    assert seconds["save"] == pytest.approx(truth["save"], abs=longest)
    [interruption] = report["interruptions"]
    assert interruption["rung"] == "restart"
    site = RecoverySite(RecoveryTable(), load_policy())
    moments = (parse_moment(interruption["at"]), parse_moment(report["end"]))
    plans = [advise_recovery(job, runs, site, at=at) for at in moments]
    assert [plan["state"] for plan in plans] == ["under_way", "training"]
    assert (plans[0]["rung"], plans[0]["next_rung"]) == ("restart", "requeue")
    assert plans[1]["furthest_saved"] > plans[0]["furthest_saved"]
    if fault == "hang":  # until gloo's time-out
        assert 10 < interruption["seconds"]["detect"] < 60
