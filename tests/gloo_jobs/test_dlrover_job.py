"""A real job under `forewarn launch` with DLRover: a spare takes the rank of a lost agent."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import skip_or_fail
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.features.diagnosis.log_lines.dlrover_rounds import completed_rounds
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.recovery.job_launcher import JobLauncher
from forewarn.pipelines.recovery.job_life import read_life
from forewarn.pipelines.recovery.launch_record import read_attempts
from forewarn.response.state.rung import Rung

pytestmark = pytest.mark.gloo
WORKER, STEPS = Path(__file__).with_name("dlrover_worker.py"), 20


@pytest.fixture
def programs() -> Path:
    programs = torch_programs()
    if programs is None or not (programs.parent / "dlrover").is_dir():
        skip_or_fail("no environment with torch and DLRover: make it by .ci/setup_torch")
    assert programs is not None
    return programs


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_spare_takes_the_rank_of_a_lost_agent_within_the_attempt(
    programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text(f"""
hosts = ["n[0-2]", "spare"]
nodes = 3
minimum = 2
processes = 1
launcher = "dlrover"
program = {json.dumps([str(WORKER), str(tmp_path), str(STEPS)])}
folder = "job"
python = "{programs / "python"}"
port = {_free_port()}
grace = "3s"
[environment]
PYTHONPATH = "{programs.parent / "dlrover"}"
OMP_NUM_THREADS = "1"
GLOO_SOCKET_IFNAME = "lo"
TZ = "UTC"
""")
    events: list[dict[str, Any]] = []
    assert JobLauncher(tmp_path / "job.toml", events.append).run() == 0
    assert [event["event"] for event in events] == ["start", "replace", "join", "end"]
    assert events[-1]["machines"] == ["n0", "spare", "n2"]
    assert events[-1]["out"] == ["n1"]
    [attempt] = read_attempts(tmp_path / "job")
    assert attempt.machines == ("n0", "spare", "n2")
    log = tmp_path / "job" / "attempt-0001" / "logs" / "master.log"
    rounds = completed_rounds(log.read_bytes())
    assert rounds[0].ranks == {0: 0, 1: 1, 2: 2}
    assert rounds[-1].ranks == {0: 0, 3: 1, 2: 2}
    assert int((tmp_path / "checkpoint").read_text()) == STEPS
    before, after = read_life(tmp_path / "job", [])
    assert (before.machines, after.rung) == (("n1",), Rung.REPLACE)
    assert before.noticed == before.end == after.submitted
    assert before.end <= after.begin < after.end == attempt.end
    assert diagnose(tmp_path / "job" / "attempt-0001").diagnosis.kind == "none"
