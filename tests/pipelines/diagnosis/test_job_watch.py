"""`diagnose watch`: each verdict once, across failures and restarts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.stopping import StoppingAfterTwo

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.diagnosis.job_watch import JobWatch
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.sandbox.simulate_job import simulate_job_to


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = tmp_path_factory.mktemp("watch") / "hung"
    simulate_job_to(job, 8, "sigstop", 1, "plain", "files")
    return job


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = tmp_path_factory.mktemp("watch") / "healthy"
    simulate_job_to(job, 8, "none", 1, "plain", "files")
    return job


def become(job: Path, other: Path) -> None:
    shutil.rmtree(job, ignore_errors=True)
    shutil.copytree(other, job)


def test_verdict_and_recovery_are_reported_once(tmp_path: Path, hung: Path, healthy: Path) -> None:
    jobs, state = tmp_path / "jobs", tmp_path / "said.json"
    become(jobs / "llm", healthy)
    watch = JobWatch(jobs, state=state)
    assert list(watch.look()) == []
    become(jobs / "llm", hung)
    (line,) = watch.look()
    assert (line["job"], line["kind"]) == ("llm", "hang")
    (jobs / "llm" / "logs" / "0.log").touch()  # diagnosed again without a new verdict
    assert list(watch.look()) == []
    assert list(JobWatch(jobs, state=state).look()) == []
    become(jobs / "llm", healthy)
    (over,) = watch.look()
    assert over["kind"] == "none"


def test_job_being_killed_has_not_recovered(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "llm"
    simulate_job_to(job, 8, "collective", 1, "plain", "files")
    for part in ("logs", "metrics", "kernel"):
        shutil.rmtree(job / part)
    watch = JobWatch(tmp_path / "jobs")
    (line,) = watch.look()
    assert line["kind"] == "hang"
    last = max(parse_moment(sample.name) for sample in (job / "stacks").iterdir())
    for stack in (job / "stacks" / format_iso(last)).iterdir():  # all ranks leave their call
        leaving = job / "stacks" / format_iso(last + 20 * SECOND) / stack.name
        leaving.parent.mkdir(exist_ok=True)
        leaving.write_text(
            '[{"frames": [{"name": "_exit_function", "filename": "util.py", "line": 300}]}]'
        )
    assert diagnose(job).line()["kind"] == "none"
    assert list(watch.look()) == []
    (job / "logs").mkdir()
    cancelled = format_iso(last + 21 * SECOND).removesuffix("Z")
    (job / "logs" / "slurm.out").write_text(
        f"slurmstepd: error: *** JOB 7 ON node-1 CANCELLED AT {cancelled} ***\n"
    )
    assert [line["kind"] for line in watch.look()] == ["ended"]


def test_further_evidence_is_reported_once(tmp_path: Path, hung: Path) -> None:
    job, state = tmp_path / "jobs" / "llm", tmp_path / "said.json"
    become(job, hung)
    (job / "stacks").rename(tmp_path / "stacks")
    watch = JobWatch(tmp_path / "jobs", state=state)
    (first,) = watch.look()
    (tmp_path / "stacks").rename(job / "stacks")
    (second,) = JobWatch(tmp_path / "jobs", state=state).look()
    assert first["culprits"] != []
    assert {*first["evidence_from"]} < {*second["evidence_from"]}
    (job / "stacks").rename(tmp_path / "stacks")  # less evidence is no news
    assert list(JobWatch(tmp_path / "jobs", state=state).look()) == []


@pytest.mark.parametrize("is_single", [False, True])
def test_log_of_any_name_is_watched(tmp_path: Path, is_single: bool) -> None:
    log = tmp_path / "jobs" / "llm" / "slurm-812.out"
    log.parent.mkdir(parents=True)
    steps = [f"0: 2026-01-05 10:00:{n:02} step {n} loss {9 / (n + 1):.3f}\n" for n in range(50)]
    log.write_text("".join(steps))
    watch = JobWatch(log.parent if is_single else tmp_path / "jobs")
    assert [line["kind"] for line in watch.look() if line["kind"] == "crash"] == []
    error = ["Traceback (most recent call last):", '  File "t.py", line 3, in <module>']
    error += ["ValueError: label 12 is out of range"]
    with log.open("a") as file:
        file.writelines(f"0: {text}\n" for text in error)
    assert [(line["job"], line["kind"]) for line in watch.look()] == [("llm", "crash")]


def test_unreadable_job_is_noted_once(tmp_path: Path, hung: Path, capsys: Any) -> None:
    (tmp_path / "a").mkdir()
    become(tmp_path / "b", hung)
    lines = list(JobWatch(tmp_path).run(0.0, StoppingAfterTwo()))
    assert [line["job"] for line in lines] == ["b"]
    assert capsys.readouterr().err.count("contains no file of a job") == 1


def test_watch_command_with_single_job(tmp_path: Path, hung: Path, capsys: Any) -> None:
    state = tmp_path / "said.json"
    command = ["diagnose", "watch", "--jobs", str(hung), "--once", "--json", "--state", str(state)]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "hung"
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    state.write_text("[]")
    assert main(command) == 2
    assert "is not a state file" in capsys.readouterr().err
    assert main(["diagnose", "watch", "--jobs", str(tmp_path / "none"), "--once"]) == 2
    assert "is not a folder" in capsys.readouterr().err
