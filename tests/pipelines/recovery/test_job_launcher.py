"""`forewarn launch` with processes that stand for torchrun, on hosts that are this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.recovery.simulated_torch import write_job

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.recovery.lost_job import lost_by_job


def _launch(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = main(["launch", "--json", "--job", str(path)])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def _steps(path: Path) -> list[int]:
    """Return the steps that rank 0 made, over all attempts."""
    logs = sorted(path.parent.glob("job/attempt-*/logs/n0/*/attempt_0/0/stdout.log"))
    lines = [line.split() for log in logs for line in log.read_text().splitlines()]
    return [int(words[4]) for words in lines if words[3] == "step"]


def test_job_without_fault_runs_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_job(tmp_path, "none")
    code, events = _launch(path, capsys)
    assert code == 0
    assert [event["event"] for event in events] == ["start", "end"]
    assert _launch(path, capsys) == (0, [])  # nothing is left to do


def test_command_for_a_host_survives_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_host = ["sh", "-c", "{command}", "{host}"]  # as sshd runs it
    folder = tmp_path / "it's a $HOME; folder"
    folder.mkdir()
    code, events = _launch(write_job(folder, "none", on_host=on_host), capsys)
    assert code == 0
    assert events[-1]["ended"] == "completed"
    assert _steps(folder / "job.toml")[-1] == 12


def test_spare_replaces_a_damaged_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_job(tmp_path, "ecc")
    code, events = _launch(path, capsys)
    assert code == 0
    assert [event["rung"] for event in events if event["event"] == "start"] == [None, "replace"]
    assert events[1]["blamed"] == "n1"
    assert events[2]["machines"] == ["n0", "n2"]
    [line] = (tmp_path / "diagnoses.jsonl").read_text().splitlines()
    assert json.loads(line)["culprits"][0]["machine"] == "n1"
    steps = _steps(path)
    assert steps[steps.index(5) + 1] in (5, 6)  # rank 0 may have made a step more
    assert 4 < steps[steps.index(12) - 1] < 12


def test_job_without_spare_shrinks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_job(tmp_path, "ecc", hosts=["n[0-1]"], minimum=1)
    code, events = _launch(path, capsys)
    assert code == 0
    assert events[2]["machines"] == ["n0"]
    report = lost_by_job(tmp_path / "job")
    assert sum(report["gpu_ns"].values()) == report["elapsed_gpu_ns"]


def test_error_of_the_program_uses_up_the_retries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, events = _launch(write_job(tmp_path, "program"), capsys)
    assert code in (1, 75)
    assert {tuple(e["machines"]) for e in events if e["event"] == "start"} == {("n0", "n1")}
    assert events[-1]["event"] == "stop"
    (tmp_path / "worker.py").write_text("print('step 12', flush=True)")
    code, events = _launch(tmp_path / "job.toml", capsys)  # the program was corrected
    assert code == 0
    assert events[0]["rung"] == "resubmit"


def test_silence_restarts_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, events = _launch(write_job(tmp_path, "hang"), capsys)
    assert code == 0
    assert events[1]["reason"].startswith("no output for 3 s")
    assert events[2]["rung"] == "restart"
    report = lost_by_job(tmp_path / "job")
    [interruption] = report["interruptions"]
    assert interruption["rung"] == "restart"
    assert 3 <= interruption["seconds"]["detect"] < 30


@pytest.mark.parametrize("begun", [False, True])
def test_killed_launcher_leaves_no_process_and_goes_on(
    begun: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_job(tmp_path, "none")
    forewarn = Path(sys.executable).with_name("forewarn")
    launcher = subprocess.Popen([forewarn, "launch", "--job", path], stdout=subprocess.DEVNULL)
    _await(lambda: (tmp_path / "job" / "launch.jsonl").exists())
    if begun:
        _await(lambda: 3 in _steps(path))
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    _await(lambda: not _processes(tmp_path))
    code, events = _launch(path, capsys)
    assert code == 0
    assert events[0]["attempt"] == 2
    assert _steps(path)[-1] == 12


def _await(condition: Any) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen")


def _processes(folder: Path) -> list[int]:
    """Return the processes that a launcher has started for a job."""
    mark = f"FOREWARN_GUARD={folder / 'job'}@".encode()
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _has(pid, mark)]


def _has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
