"""`forewarn ready` as the prolog of a real Slurm."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.agent.agent_state import AgentState
from forewarn.pipelines.agent.readiness import Readiness

NODE, OTHER = "node-00002", "node-00003"
READY = "import sys; from forewarn.pipelines.cli.entry import main; sys.exit(main())"
PROLOG = """#!/bin/sh
echo "$SLURMD_NODENAME" >>{folder}/asked
exec {python} -c '{code}' ready --for prolog --machine "$SLURMD_NODENAME" \\
    --state "{folder}/$SLURMD_NODENAME"
"""


@pytest.fixture
def prolog(slurm: Any, tmp_path: Path) -> Iterator[Path]:
    """Configure the prolog, as the documentation asks for, and restore the configuration."""
    script, before = tmp_path / "prolog", slurm.conf.read_text()
    script.write_text(PROLOG.format(folder=tmp_path, python=sys.executable, code=READY))
    script.chmod(0o755)
    conf = before.replace("batch_sched_delay=0", "nohold_on_prolog_fail,batch_sched_delay=0")
    slurm.conf.write_text(f"{conf}Prolog={script}\nPrologFlags=Alloc\n")
    assert slurm.call("scontrol", "reconfigure") == ""
    try:
        yield tmp_path
    finally:
        slurm.call("scancel", "-u", slurm.user)
        slurm.until(lambda: slurm.call("squeue", "-h") == "", "jobs")
        slurm.conf.write_text(before)
        slurm.call("scontrol", "reconfigure")


def test_prolog_refuses_damaged_machine_only(slurm: Any, prolog: Path) -> None:
    slurm.submit("-w", NODE)  # no agent has written anything
    assert NODE in (prolog / "asked").read_text()
    state, now = AgentState(prolog / OTHER, print), time.time_ns()
    event = {"kind": "xid", "code": 79, "gpu_uuid": "GPU-1", "timestamp": now}
    Readiness(state, OTHER).add([event], now=now, interval=600 * 10**9)
    options = ("--parsable", "--requeue", "-o", "/dev/null", "-w", OTHER, "--wrap", "sleep 999")
    job = slurm.call("sbatch", *options).strip()
    slurm.until(lambda: "DRAIN" in slurm.line(OTHER), "Slurm drains the damaged machine")
    assert "Prolog error" in slurm.line(OTHER)
    slurm.until(lambda: slurm.jobs().get(job) == "PD", "the job is requeued")
    assert "Reason=JobHeld" not in slurm.call("scontrol", "show", "job", job)
