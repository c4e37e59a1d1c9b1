"""`forewarn lost` on jobs whose life is known to the second."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.recovery import logged_progress
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.state.finding import Finding, FindingKind

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
GPUS = 16
STEP = 10  # seconds
HEADER = "JobIDRaw|JobName|Submit|Start|End|State|AllocTRES|NodeList"


@dataclass
class _Life:
    """Writes log and rows of the scheduler of a job, and counts what each second was used for."""

    log: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    truth: dict[str, int] = field(default_factory=dict)
    now: int = 0
    furthest: int = 0

    def line(self, text: str) -> None:
        moment = START + dt.timedelta(seconds=self.now)
        self.log.append(f"{moment:%Y-%m-%d %H:%M:%S},000 INFO {text}")

    def use(self, use: str, seconds: int) -> None:
        self.now += seconds
        self.truth[use] = self.truth.get(use, 0) + seconds

    def steps(self, after: int, count: int, *, save_each: int = 0) -> int:
        for number in range(after + 1, after + count + 1):
            self.use("recompute" if number <= self.furthest else "useful", STEP)
            self.line(f"step {number} loss 2.5 lr 0.001")
            self.furthest = max(self.furthest, number)
            if save_each and number % save_each == 0:
                self.line(f"saving checkpoint at step {number} to /ckpt")
                self.use("save", 4)
                self.line(f"successfully saved checkpoint from step {number}")
        return after + count

    def run(self, job: int, submitted: int, begin: int, state: str, name: str = "train") -> None:
        times = "|".join(_slurm_time(seconds) for seconds in (submitted, begin, self.now))
        self.rows.append(f"{job}|{name}|{times}|{state}|billing=1,gres/gpu={GPUS}|n[1-2]")

    def write(self, folder: Path) -> tuple[Path, Path]:
        job, runs = folder / "train", folder / "runs.txt"
        (job / "logs").mkdir(parents=True, exist_ok=True)
        (job / "logs" / "job.log").write_text("\n".join(self.log) + "\n")
        runs.write_text("\n".join([HEADER, *self.rows]) + "\n")
        return job, runs


def _slurm_time(seconds: int) -> str:
    return f"{START + dt.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def _lost(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["lost", "--json", *map(str, arguments)]) == 0
    line = json.loads(capsys.readouterr().out)
    assert sum(line["gpu_ns"].values()) == line["elapsed_gpu_ns"]
    return line  # type: ignore[no-any-return]


def _seconds(line: dict[str, Any]) -> dict[str, float]:
    """Return seconds by use, without zeros."""
    return {use: time / GPUS / 1e9 for use, time in line["gpu_ns"].items() if time}


def _interrupted() -> _Life:
    """Return a job that crashed, was requeued, hung, and was submitted again."""
    life = _Life()
    life.line("starting")
    life.use("initialise", 50)
    life.steps(0, 130, save_each=50)
    life.use("detect", 7)
    life.line("[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered")
    life.run(42, 0, 0, "NODE_FAIL")
    requested = life.now
    life.use("schedule", 300)
    begin = life.now
    life.line("starting")
    life.use("initialise", 80)
    life.steps(100, 160, save_each=50)
    life.use("detect", 900)
    life.run(42, requested, begin, "FAILED")
    life.use("detect", 60)  # a person looks at it
    requested = life.now
    life.use("schedule", 120)
    begin = life.now
    life.use("initialise", 60)
    life.steps(250, 50)
    life.run(43, requested, begin, "COMPLETED")
    return life


def test_each_second_of_a_job_is_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _interrupted()
    job, runs = life.write(tmp_path)
    line = _lost(capsys, "--job", job, "--runs", runs)
    assert _seconds(line) == life.truth
    assert [row["rung"] for row in line["interruptions"]] == ["requeue", "resubmit"]
    assert line["effective_share"] == pytest.approx(life.truth["useful"] / life.now)
    [rung] = line["saved_seconds_by_rung"].items()
    assert rung == ("requeue", (900 + 60 + 120 + 60 + 100) - (7 + 300 + 80 + 300))


def test_the_file_of_completed_jobs_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _interrupted()
    job, runs = life.write(tmp_path)
    expected = _lost(capsys, "--job", job, "--runs", runs)
    names = ("JobId", "Name", "SubmitTime", "StartTime", "EndTime", "JobState", "Tres", "NodeList")
    rows = [dict(zip(names, row.split("|"), strict=True)) for row in life.rows]
    lines = [" ".join(f"{name}={value}" for name, value in row.items()) for row in rows]
    runs.write_text("\n".join(lines) + "\n")
    assert _lost(capsys, "--job", job, "--runs", runs) == expected


def test_without_a_scheduler_the_log_is_one_allocation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _interrupted()
    job, _ = life.write(tmp_path)
    seconds = _seconds(_lost(capsys, "--job", job, "--gpus", GPUS))
    for use in ("useful", "recompute", "save"):
        assert seconds[use] == life.truth[use]


def test_a_launcher_that_restarts_processes_is_a_rung_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _Life()
    life.use("initialise", 20)
    life.steps(0, 20)
    life.use("detect", 33)
    life.line("[default] Worker group FAILED. 3/3 attempts left; will restart worker group")
    life.use("initialise", 40)
    life.steps(10, 30)
    life.run(7, 0, 0, "COMPLETED")
    job, runs = life.write(tmp_path)
    line = _lost(capsys, "--job", job, "--runs", runs)
    assert _seconds(line) == life.truth
    assert [row["rung"] for row in line["interruptions"]] == ["restart"]


@pytest.mark.parametrize("hosts", [1, 2, 9])
@pytest.mark.parametrize(("retries", "is_one_log"), [(1, False), (3, False), (1, True)])
def test_launchers_of_all_hosts_restart_the_job_once(
    hosts: int,
    retries: int,
    is_one_log: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each writes a line for it, up to 8 s apart, or in one log within a second."""
    life = _Life()
    life.use("initialise", 20)
    life.steps(0, 20)
    life.use("detect", 33)
    words = "[default] Worker group FAILED. 3/3 attempts left; will restart worker group"
    failed = life.now
    life.use("initialise", 40 * retries)
    life.steps(10, 30)
    job, _ = life.write(tmp_path)
    for host, retry in itertools.product(range(hosts), range(retries)):
        seconds = failed + 40 * retry + (host / 10 if is_one_log else host)
        moment = START + dt.timedelta(seconds=seconds)
        path = job / "logs" / ("n0" if is_one_log else f"n{host}") / "torchrun.log"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f"{moment:%Y-%m-%d %H:%M:%S},000 INFO {words}\n")
    line = _lost(capsys, "--job", job, "--gpus", GPUS)
    assert [row["rung"] for row in line["interruptions"]] == ["restart"] * retries


def test_a_fleet_counts_jobs_without_logs_as_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _interrupted()
    job, runs = life.write(tmp_path / "jobs")
    runs = runs.rename(tmp_path / "runs.txt")
    other = f"44|other|{_slurm_time(0)}|{_slurm_time(0)}|{_slurm_time(500)}|COMPLETED|gres/gpu=4|n3"
    step = f"44.0|python|{_slurm_time(0)}|{_slurm_time(0)}|{_slurm_time(500)}|COMPLETED||n3"
    runs.write_text(runs.read_text() + f"{other}\n{step}\n")
    page = tmp_path / "lost.html"
    line = _lost(capsys, "--fleet", job.parent, "--runs", runs, "--html", page)
    by_job = {row["job"]: row for row in line["jobs"]}
    assert by_job["44"]["gpu_ns"]["unknown"] == by_job["44"]["elapsed_gpu_ns"] == 500 * 4 * 10**9
    assert by_job["train"]["interruptions"] == 2
    assert "GPU time of the jobs was useful" in page.read_text()


def test_the_page_of_a_job_escapes_what_logs_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, runs = _interrupted().write(tmp_path)
    hostile = job.rename(tmp_path / "<script>alert(1)")
    page = tmp_path / "lost.html"
    _lost(capsys, "--job", hostile, "--runs", runs, "--html", page)
    assert "<script>alert" not in page.read_text()


@st.composite
def _lives(draw: st.DrawFn) -> _Life:
    """Draw a job of up to four runs, of which each but the last fails."""
    life, saved = _Life(), 0
    requested = 0
    count = draw(st.integers(1, 4))
    for number in range(count):
        begin = life.now
        life.line("starting")
        life.use("initialise", draw(st.integers(0, 90)))
        made = life.steps(saved, draw(st.integers(3, 40)))
        saved = draw(st.integers(saved, made))
        is_last = number == count - 1
        if is_last:
            life.run(1, requested, begin, "COMPLETED")
            break
        life.use("detect", draw(st.integers(0, 600)))
        life.run(1, requested, begin, "FAILED")
        requested = life.now
        life.use("schedule", draw(st.integers(0, 600)))
    return life


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(life=_lives())
def test_accounts_are_within_a_step_of_the_truth(
    life: _Life, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    job, runs = life.write(tmp_path_factory.mktemp("job"))
    seconds = _seconds(_lost(capsys, "--job", job, "--runs", runs))
    for use, expected in life.truth.items():
        assert seconds.get(use, 0) == pytest.approx(expected, abs=STEP)


def test_a_finding_in_the_ledger_ends_detection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _interrupted()
    job, runs = life.write(tmp_path)
    config = tmp_path / "forewarn.toml"
    config.write_text("[respond]\n")
    line = _lost(capsys, "--job", job, "--runs", runs)
    hang = line["interruptions"][1]
    stated = Nanoseconds(parse_moment(hang["at"]) - 600 * SECOND)
    until = Nanoseconds(stated + 3_600 * SECOND)
    named = ("diagnose", "verdict", FindingKind.DIAGNOSIS, "hang", "n1", stated, until)
    with Ledger.open(ResponseSite.from_config(config).ledger_url) as ledger:
        ledger.record_findings([Finding(*named, job="42")], now=stated)
    line = _lost(capsys, "--job", job, "--runs", runs, "--config", config)
    seconds = line["interruptions"][1]["seconds"]
    assert (seconds["detect"], seconds["schedule"]) == (300, 600 + 60 + 120)


def test_a_save_while_training_goes_on_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _Life()
    life.use("initialise", 10)
    life.steps(0, 5)
    life.line("saving checkpoint at step 5 to /ckpt")
    life.steps(5, 4)
    life.line("successfully saved checkpoint from step 5")
    life.steps(9, 5)
    life.run(7, 0, 0, "COMPLETED")
    job, runs = life.write(tmp_path)
    assert _seconds(_lost(capsys, "--job", job, "--runs", runs)) == life.truth


def test_a_rank_that_logs_its_step_a_little_late_hides_no_save(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = _Life()
    life.use("initialise", 10)
    life.steps(0, 10)
    life.line("saving checkpoint at step 11 to /ckpt")
    life.steps(10, 1)  # another rank's line
    life.use("save", 100)
    life.line("successfully saved checkpoint from step 11")
    life.steps(11, 10)
    life.run(7, 0, 0, "COMPLETED")
    job, runs = life.write(tmp_path)
    assert _seconds(_lost(capsys, "--job", job, "--runs", runs)) == life.truth


def test_logs_read_in_blocks_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = _interrupted()
    job, runs = life.write(tmp_path)
    for block_bytes in (100, 1_000, 5_000):
        monkeypatch.setattr(logged_progress, "_BLOCK_BYTES", block_bytes)
        assert _seconds(_lost(capsys, "--job", job, "--runs", runs)) == life.truth


def _without(column: str) -> list[str]:
    place = HEADER.split("|").index(column)
    return ["|".join(part for n, part in enumerate(row.split("|")) if n != place)
            for row in (HEADER, *_interrupted().rows)]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (_without("Start"), "has no column Start"),
        ([HEADER, _interrupted().rows[0].replace("NODE_FAIL", "BROKEN")], "'BROKEN'"),
        ([HEADER, "1|train|x|2026-03-01 at noon|Unknown|RUNNING||"], "line 2, Start"),
        (
            [HEADER, "1|train||2026-03-02T00:00:00|2026-03-01T00:00:00|FAILED|gres/gpu=1|"],
            "End: is before Start",
        ),
        (
            [
                HEADER,
                *(f"{n}|train||2026-03-01T00:00:00|Unknown|RUNNING|gres/gpu=1|" for n in (1, 2)),
            ],
            "overlap",
        ),
        ([HEADER, "1|a||2026-03-01T00:00:00|Unknown|RUNNING|gres/gpu=1|n[1"], "NodeList"),
        ([], "has no column JobIDRaw"),
    ],
)
def test_files_of_runs_that_cannot_be_used_are_refused(
    rows: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, runs = _interrupted().write(tmp_path)
    runs.write_text("\n".join(rows) + "\n")
    page = tmp_path / "lost.html"
    assert main(["lost", "--job", str(job), "--runs", str(runs), "--html", str(page)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not page.exists()
