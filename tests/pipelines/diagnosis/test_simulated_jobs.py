"""`diagnose run` on simulated folders of 8 ranks, and what `simulate job` writes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.evaluation.simulation.jobs.job_plan import draw_plan
from forewarn.evaluation.simulation.jobs.job_timeline import run_job
from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.hang.blocked_ranks import sleeping_ranks
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.diagnosis.parts.kernel_part import KernelPart
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.sandbox.simulate_job import JOB_BEGIN, write_job

PARTS = ("flight", "logs", "stacks", "metrics", "kernel")
PLAIN = ("--trainer", "plain", "--launcher", "files")


def simulate(out: Path, fault: str, seed: int = 1) -> dict[str, Any]:
    options = ["--ranks", "8", "--fault", fault, "--seed", str(seed), *PLAIN]
    assert main(["simulate", "job", "--out", str(out), *options]) == 0
    truth: dict[str, Any] = json.loads((out / "truth.json").read_text())
    return truth


def diagnose(job: Path, capsys: Any, *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["diagnose", "run", "--job", str(job), "--json", *options]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


@pytest.mark.parametrize("fault", ["loader", "sigstop", "dstate", "collective", "sigkill"])
def test_faulty_rank_is_culprit(tmp_path: Path, capsys: Any, fault: str) -> None:
    truth = simulate(tmp_path / "job", fault)
    line = diagnose(tmp_path / "job", capsys)
    assert (line["kind"], line["rank"]) == (truth["kind"], truth["rank"])
    assert line["machine"] == truth["machine"]


def test_newly_slow_rank_is_culprit(tmp_path: Path, capsys: Any) -> None:
    truth = simulate(tmp_path / "job", "slow")
    line = diagnose(tmp_path / "job", capsys)
    assert (line["kind"], line["rank"]) == ("slow", truth["rank"])


def test_faulty_machine_is_culprit(tmp_path: Path, capsys: Any) -> None:
    truth = simulate(tmp_path / "job", "machine")
    line = diagnose(tmp_path / "job", capsys)
    assert (line["kind"], line["rank"], line["machine"]) == ("hang", None, truth["machine"])


def test_healthy_job_has_no_verdict(tmp_path: Path, capsys: Any) -> None:
    simulate(tmp_path / "job", "none")
    line = diagnose(tmp_path / "job", capsys)
    assert (line["kind"], line["rank"]) == ("none", None)
    assert {probe["state"] for probe in line["probes"].values()} == {"active"}


def test_checkpoint_in_state_d_is_healthy(tmp_path: Path) -> None:
    plan = replace(draw_plan(8, "none", 5), saves_in_d=True, is_silent=True, checkpoint=(25, 600.0))
    truth = write_job(run_job(plan), tmp_path / "job", "plain", "files")
    reading = read_job(tmp_path / "job")
    begin, end = (parse_moment(text) for text in truth["checkpoints"][-1])
    moments = range(begin + 10**9, end, 10 * SECOND)
    kernel = reading.parts["kernel"]
    assert isinstance(kernel, KernelPart)
    asleep = [sleeping_ranks(kernel.samples, at) for at in moments]
    assert max(seconds for each in asleep for _, seconds in each.values()) > 200
    for absent in ((), ("stacks",), ("stacks", "flight"), ("logs",)):
        kinds = {reading.without(absent).judge(at)[1].kind for at in moments}
        assert kinds <= {"none", "unknown"}  # after 8 minutes of silence no log shows progress


def test_nothing_known_before_first_operation(tmp_path: Path, capsys: Any) -> None:
    simulate(tmp_path / "job", "none")
    begin = format_iso(JOB_BEGIN + 10**9)
    assert diagnose(tmp_path / "job", capsys, "--at", begin)["kind"] == "none"


def test_stacks_and_kernel_suffice_without_recorder(tmp_path: Path, capsys: Any) -> None:
    truth = simulate(tmp_path / "job", "dstate")
    shutil.rmtree(tmp_path / "job" / "flight")
    line = diagnose(tmp_path / "job", capsys)
    assert (line["kind"], line["rank"]) == ("hang", truth["rank"])
    assert "flight" in line["blind"]


def test_same_seed_writes_same_job(tmp_path: Path) -> None:
    first, second = (simulate(tmp_path / name, "loader", 3) for name in ("a", "b"))
    assert first == second
    for file in sorted((tmp_path / "a").rglob("*.*")):
        if file.is_file():
            assert (
                file.read_bytes()
                == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()
            )


def test_all_parts_and_truth_are_written(tmp_path: Path) -> None:
    truth = simulate(tmp_path / "job", "exception")
    names = {path.name for path in (tmp_path / "job").iterdir()}
    assert {*PARTS, "ranks.csv", "exits.csv", "truth.json"} <= names
    assert truth["kind"] == "crash"
    assert truth["seconds_lost"] > 30
    assert truth["machine"] == f"node-{truth['rank'] // 2:04d}"


def refused(arguments: list[str], capsys: Any) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    error: str = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_simulation_never_overwrites(tmp_path: Path, capsys: Any) -> None:
    simulate(tmp_path / "job", "none")
    again = ["simulate", "job", "--out", str(tmp_path / "job")]
    assert "already exists" in refused(again, capsys)
    odd = ["simulate", "job", "--out", str(tmp_path / "odd"), "--ranks", "7"]
    assert "expected a multiple of 4" in refused(odd, capsys)
    assert not (tmp_path / "odd").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rank": [0]}, "column `timestamp` is missing"),
        (
            {"timestamp": ["2026-11-22T00:00:00Z"], "rank": ["x"]},
            "expected a timestamp and integers",
        ),
        ({"timestamp": ["2026-11-22T00:00:00Z"], "rank": [-1]}, "expected ranks from 0"),
        (
            {"timestamp": ["2026-11-22T00:00:00Z"], "rank": [0], "gpu_utilization": ["x"]},
            "expected numbers",
        ),
    ],
)
def test_invalid_metric_tables_are_refused(
    tmp_path: Path, capsys: Any, table: dict[str, list[Any]], message: str
) -> None:
    (tmp_path / "metrics").mkdir()
    pq.write_table(pa.table(table), tmp_path / "metrics" / "part.parquet")
    assert message in refused(["diagnose", "run", "--job", str(tmp_path)], capsys)
