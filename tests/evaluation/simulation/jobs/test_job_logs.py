"""Logs of simulated jobs: the forms of trainers and launchers, and the words of each fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

import pytest

from forewarn.evaluation.simulation.jobs.job_logs import job_log_files
from forewarn.evaluation.simulation.jobs.job_plan import draw_plan
from forewarn.evaluation.simulation.jobs.job_timeline import JobTimeline, run_job
from forewarn.evaluation.simulation.jobs.launcher_lines import LAUNCHERS
from forewarn.evaluation.simulation.jobs.process_exits import process_exits
from forewarn.evaluation.simulation.jobs.trainer_lines import TRAINERS
from forewarn.pipelines.cli.diagnosis import _LAUNCHERS, _TRAINERS

FIELD = re.compile(r"\{[a-z_]+(?::[^}]*)?\}")
STEP = {
    "plain": r"INFO step \d+ loss",
    "megatron": r" iteration +\d+/ *\d+ \| consumed samples: +\d+ \| elapsed time per iteration",
    "transformers": r"\{'loss': \d\.\d{4}, 'grad_norm': .*'epoch': [\d.]+\}",
    "nemo-bar": r"Epoch 0: +\d+%\|.*global_step=\d+\.0, consumed_samples=\d+\.0\]",
    "nemo": r"Training epoch 0, iteration \d+/\d+ \| lr: .*\| global_step: \d+ \|",
    "deepspeed": r"\[INFO\] \[timer\.py:\d+:stop\] epoch=0/micro_step=\d+/global_step=\d+",
    "torchtitan": r"root - INFO - \x1b\[31mstep: +\d+ ",
}


@lru_cache
def first(fault: str) -> JobTimeline:
    return run_job(draw_plan(16, fault, 1))


def ran(fault: str, seed: int) -> JobTimeline:
    """Return the same job with another seed of its logs."""
    timeline = first(fault)
    return replace(timeline, plan=replace(timeline.plan, seed=seed))


def clock(seconds: float, machine: int) -> datetime:
    return datetime.fromtimestamp(1_795_296_000 + seconds + machine, UTC)


def logs(fault: str, seed: int, trainer: str = "any", launcher: str = "any") -> dict[str, str]:
    return job_log_files(ran(fault, seed), clock, trainer, launcher)


def texts(launcher: str, fault: str, trainer: str = "any") -> Iterator[dict[str, str]]:
    return (logs(fault, seed, trainer, launcher) for seed in range(6))


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("fault", ["none", "sigkill", "exception", "timeout"])
def test_all_fields_of_templates_are_filled(launcher: str, fault: str) -> None:
    for files in texts(launcher, fault):
        assert all(text.endswith("\n") for text in files.values())
        assert not any(FIELD.search(text) for text in files.values())


@pytest.mark.parametrize("trainer", TRAINERS)
def test_trainer_prints_its_own_step_lines(trainer: str) -> None:
    for files in texts("files", "none", trainer):
        speakers = [path for path, text in files.items() if re.search(STEP[trainer], text)]
        assert len(speakers) == (16 if TRAINERS[trainer].speaker == "all" else 1)
        others = [form for name, form in STEP.items() if name != trainer]
        assert not any(re.search(form, text) for form in others for text in files.values())


@lru_cache
def healthy_jobs() -> tuple[set[str], str]:
    """Return the paths and the text of the logs of many jobs."""
    jobs = [logs("none", seed) for seed in range(100)]
    text = "\n".join(text for files in jobs for text in files.values())
    return {path for files in jobs for path in files}, text


def test_all_trainers_and_launchers_are_drawn() -> None:
    paths, joined = healthy_jobs()
    assert all(re.search(form, joined) for name, form in STEP.items() if name != "plain")
    assert not re.search(STEP["plain"], joined)
    kinds = (r"\d+\.log", r".*attempt_0/\d/stderr\.log", r"slurm-\d+\.out", r"console\.log")
    for kind in (*kinds, r"slurm-\d+_\d+\.out", r"node-\d+\.log", r"(llm|trainer)-.*\.log"):
        assert any(re.fullmatch(kind, path) for path in paths), kind


def test_options_of_command_are_the_tables() -> None:
    assert set(_TRAINERS) == set(TRAINERS)
    assert set(_LAUNCHERS) == set(LAUNCHERS)


def test_same_seed_writes_same_logs() -> None:
    assert logs("timeout", 3) == logs("timeout", 3)
    assert logs("timeout", 3) != logs("timeout", 4)


def test_plain_form_has_no_harmless_lines() -> None:
    for files in texts("files", "none", "plain"):
        lines = [line for text in files.values() for line in text.splitlines()]
        assert all(re.fullmatch(r"\[[\d :.-]+\] INFO .*", line) for line in lines)


def test_healthy_jobs_print_harmless_errors() -> None:
    _, joined = healthy_jobs()
    for words in ("No such file or directory", "retrying", "not responding", "falling back"):
        assert words in joined
    assert joined.count("not responding") >= joined.count(" OK\n") > 0


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launcher_names_the_killed_rank(launcher: str) -> None:
    for seed, files in enumerate(texts(launcher, "sigkill")):
        plan, joined = ran("sigkill", seed).plan, "\n".join(files.values())
        local, rank = plan.rank % plan.layout.per_machine, plan.rank
        words = {
            "slurm": rf"srun: error: node-\d+: task {rank}: Killed",
            "mpirun": rf"rank {rank} with PID \d+ on node \S+ exited on signal 9 \(Killed\)",
            "deepspeed": r"exits with return code = -9",
        }.get(launcher, rf"rank      : {rank} \(local_rank: {local}\)\n.*exitcode  : -9")
        assert re.search(words, joined)


def test_labels_are_ranks() -> None:
    form = re.compile(r"^\[1,(\d+)\]<std(?:out|err)>:.*(?:\[rank| rank )(\d+)", re.MULTILINE)
    consoles = [files["console.log"] for files in texts("mpirun", "timeout", "megatron")]
    tagged = {pair for text in consoles for pair in form.findall(text)}
    assert {rank for _, rank in tagged} == {str(rank) for rank in range(16)}
    assert all(label == rank for label, rank in tagged)


def test_stalled_rank_prints_no_timeout() -> None:
    for seed in range(8):
        timeline = ran("timeout", seed)
        files = logs("timeout", seed, "megatron", "files")
        ends = {end.rank: end for end in process_exits(timeline)}
        assert timeline.plan.kind == "crash"
        assert not ends[timeline.plan.rank].is_own
        for rank, end in ends.items():
            says = re.search("Watchdog caught|watchdog got stuck|Timed out", files[f"{rank}.log"])
            assert (says is not None) == end.is_own


def test_lines_after_end_are_left_out() -> None:
    timeline = ran("exception", 1)
    early = replace(timeline, plan=replace(timeline.plan, end=1.0))
    files = job_log_files(early, clock, "torchtitan", "files")
    assert not any("Traceback" in text or "step" in text for text in files.values())
