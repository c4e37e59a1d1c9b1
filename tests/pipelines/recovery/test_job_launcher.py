"""`forewarn launch` with processes that stand for torchrun, on hosts that are this machine."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.recovery.simulated_dlrover import write_dlrover_job
from tests.pipelines.recovery.simulated_torch import write_job

from forewarn.features.diagnosis.log_lines.dlrover_rounds import completed_rounds
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.recovery.attempt_watch import AttemptWatch, Trouble
from forewarn.pipelines.recovery.launch_record import read_attempts
from forewarn.pipelines.recovery.lost_job import lost_by_job
from forewarn.response.recovery.job_run import RunEnd


def _launch(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = main(["launch", "--json", "--job", str(path)])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def _advise(job: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["advise", "recovery", "--json", "--job", str(job), *options]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


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


def test_advice_knows_what_the_launcher_blamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_job(tmp_path, "ecc")
    killed = subprocess.run([sys.executable, "-c", _KILLED, path], stdout=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL  # with the replacement recorded, not begun
    line = _advise(tmp_path / "job", capsys)
    assert (line["state"], line["rung"], line["machine"]) == ("under_way", "replace", "n1")
    assert (line["origin"], line["tried"]) == ("explicit", ["replace"])
    first, second = line["attempts"]
    assert (first["machines"], first["blamed"]) == (["n0", "n1"], ["n1"])
    assert (second["machines"], second["end"]) == (["n0", "n2"], None)


def test_advice_requeues_what_the_launcher_gave_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_job(tmp_path, "none")
    (tmp_path / "worker.py").write_text("raise ImportError('no module named trainer')")
    (tmp_path / "forewarn.toml").write_text("[respond.recovery]\nrungs = ['requeue']\n")
    runs = tmp_path / "runs.txt"
    header = "JobIDRaw|JobName|Start|End|State|NodeList"

    def advise() -> dict[str, Any]:
        attempts = read_attempts(tmp_path / "job")
        end = dt.datetime.fromtimestamp((attempts[-1].end or 0) // SECOND + 1, dt.UTC)
        runs.write_text(f"{header}\n42|job|2026-01-01T00:00:00|{end:%FT%T}|FAILED|n[0-1]\n")
        options = ("--runs", str(runs), "--config", str(tmp_path / "forewarn.toml"), "--begin")
        _await(lambda: dt.datetime.now(dt.UTC) > end)  # Slurm's times are in whole seconds
        return _advise(tmp_path / "job", capsys, *options)

    assert _launch(path, capsys)[0] == 75
    line = advise()
    assert (line["rung"], line["tried"], line["recorded"]) == ("requeue", ["restart"], True)
    assert _launch(path, capsys)[0] == 1  # in its next allocation
    line = advise()
    assert (line["rung"], line["tried"]) == ("resubmit", ["restart", "requeue"])


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
    page = Path(events[-1]["page"])
    assert page == tmp_path / "job" / "stopped.html"
    assert f"Why: {events[-1]['reason']}." in page.read_text()
    line = _advise(tmp_path / "job", capsys)
    assert (line["state"], line["reason"]) == ("stop", events[-1]["reason"])
    assert (len(line["attempts"]), line["budget"]["restarts"]) == (4, 3)
    (tmp_path / "worker.py").write_text("print('step 12', flush=True)")
    code, events = _launch(tmp_path / "job.toml", capsys)  # the program was corrected
    assert code == 0
    assert events[0]["rung"] == "resubmit"
    assert not page.exists()


def test_silence_restarts_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, events = _launch(write_job(tmp_path, "hang"), capsys)
    assert code == 0
    assert events[1]["reason"].startswith("no output for 3 s")
    assert events[2]["rung"] == "restart"
    report = lost_by_job(tmp_path / "job")
    [interruption] = report["interruptions"]
    assert interruption["rung"] == "restart"
    assert 3 <= interruption["seconds"]["detect"] < 30


def test_ladder_of_the_site_limits_retries_and_the_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.toml").write_text('[ladder]\nretries = 1\n[ladder.limits]\nrestart = "2s"\n')
    config = tmp_path / "forewarn.toml"
    config.write_text('[respond]\npolicy = ["site.toml"]\n')
    path = write_job(tmp_path, "none", silence="60s")
    (tmp_path / "worker.py").write_text(_SECOND_HANGS)
    code = main(["launch", "--json", "--job", str(path), "--config", str(config)])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 1
    reasons = [event["reason"] for event in events if event["event"] == "end"]
    assert reasons[1:] == ["no step within the 2 s of the rung"]
    assert "no retry is left: 1 restarts" in events[-1]["reason"]
    assert main(["launch", "--job", str(path), "--config", str(tmp_path / "none.toml")]) == 2


_SECOND_HANGS = """
import os, time
if os.environ["FOREWARN_ATTEMPT"] == "1":
    raise ValueError("label 7 is out of range")
time.sleep(600)
"""


def test_job_saves_before_it_leaves_a_slow_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [str(tmp_path / "worker.py"), str(tmp_path), "100", "none"]
    path = write_job(tmp_path, "none", save="20s", program=program)

    def look(watch: AttemptWatch, now: Nanoseconds) -> Trouble | None:
        is_slow = watch.attempt.number == 1 and 5 in _steps(path)
        return Trouble(now, "slow", leaves="n1") if is_slow else None

    monkeypatch.setattr(AttemptWatch, "_look", look)
    code, _ = _launch(path, capsys)
    assert code == 0
    first, _ = read_attempts(tmp_path / "job")
    assert first.saved is not None
    assert 5 <= first.saved < 100
    assert _steps(path) == [*range(1, 101)]  # none was made twice


def test_spare_takes_the_rank_of_a_lost_agent_of_dlrover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, events = _launch(write_dlrover_job(tmp_path, "agent"), capsys)
    assert code == 0
    assert [event["event"] for event in events] == ["start", "replace", "join", "end"]
    assert [event["machines"] for event in events[1:]] == [["n0", "n2"]] * 3
    [attempt] = read_attempts(tmp_path / "job")
    assert (attempt.machines, attempt.out) == (("n0", "n2"), ("n1",))
    log = (tmp_path / "job" / "attempt-0001" / "logs" / "master.log").read_bytes()
    assert [each.ranks for each in completed_rounds(log)] == [{0: 0, 1: 1}, {0: 0, 2: 1}]


def test_lost_agent_of_dlrover_without_a_spare_ends_the_attempt(tmp_path: Path) -> None:
    path = write_dlrover_job(tmp_path, "agent", hosts=["n[0-1]"])
    launcher = subprocess.Popen(
        [Path(sys.executable).with_name("forewarn"), "launch", "--job", path],
        stdout=subprocess.DEVNULL,
    )
    _await(lambda: [*map(str, _ends(tmp_path / "job"))] == ["failed"])
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait() == 128 + 15
    [attempt] = read_attempts(tmp_path / "job")
    assert attempt.blamed == "n1"
    assert not _processes(tmp_path)


def test_loss_of_the_master_of_dlrover_ends_the_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_dlrover_job(tmp_path, "none")
    (tmp_path / "worker.py").write_text("import time; time.sleep(600)")
    master = tmp_path / "packages" / "dlrover" / "python" / "master" / "main.py"
    master.write_text("raise SystemExit(1)")
    code, events = _launch(path, capsys)
    assert code == 75
    reasons = {event["reason"] for event in events if event["event"] == "end"}
    assert reasons == {"DLRover's master has ended"}


def _ends(job: Path) -> list[RunEnd]:
    return [attempt.ended for attempt in read_attempts(job)]


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
    assert read_attempts(tmp_path / "job")[0].is_started == begun


_KILLED = """
import os, signal, sys
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.recovery import job_launcher
plain = job_launcher.write_start
def write_start(folder, attempt):
    plain(folder, attempt)
    if attempt.number > 1:
        os.kill(os.getpid(), signal.SIGKILL)
job_launcher.write_start = write_start
main(["launch", "--job", sys.argv[1]])
"""


def test_launcher_killed_before_the_attempt_starts_goes_on_with_its_rung(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_job(tmp_path, "ecc")
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", _KILLED, path], stdout=subprocess.DEVNULL)
        assert killed.returncode == -signal.SIGKILL
    code, events = _launch(path, capsys)
    assert code == 0
    assert [attempt.rung for attempt in read_attempts(tmp_path / "job")] == [None, *["replace"] * 3]
    assert (events[0]["machines"], events[0]["out"]) == (["n0", "n2"], ["n1"])


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
