"""`forewarn simulate job`: writes the folder of a simulated job with its ground truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.evaluation.simulation.jobs.flight_dumps import flight_dumps
from forewarn.evaluation.simulation.jobs.healthy_job import (
    HealthyJobRun,
    healthy_log_lines,
    stack_capture_times,
)
from forewarn.evaluation.simulation.jobs.job_logs import ANY, job_log_files
from forewarn.evaluation.simulation.jobs.job_plan import JobPlan, draw_plan
from forewarn.evaluation.simulation.jobs.job_samples import (
    HISTORY_SECONDS,
    kernel_samples,
    metric_samples,
)
from forewarn.evaluation.simulation.jobs.job_timeline import Activity, JobTimeline, run_job
from forewarn.evaluation.simulation.jobs.process_exits import process_exits
from forewarn.evaluation.simulation.jobs.simulated_stacks import (
    Program,
    folded_profile,
    sampled_stacks,
    stack_times,
)
from forewarn.features.time_units import SECOND
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolderError
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.files.stale_temporary_files import (
    remove_stale_files,
    temporary_path,
)

__all__ = ["JOB_BEGIN", "simulate_job_to", "write_healthy_job", "write_job"]

JOB_BEGIN = 1_795_296_000 * SECOND
_MAX_PROFILED_RANKS = 64  # largest number of ranks with profiles
_STATES = {Activity.SLEEP: "D", Activity.STOPPED: "T", Activity.LOAD: "S", Activity.SAVE: "S"}


def simulate_job_to(
    out: Path, n_ranks: int, fault: str, seed: int, trainer: str = ANY, launcher: str = ANY
) -> dict[str, Any]:
    """Draw a job, run it, write its folder, and return the ground truth.

    Parameters
    ----------
    out : Path
        Written atomically.
    n_ranks : int
        A multiple of 4.
    fault : str
    seed : int
    trainer, launcher : str
        They determine the form of the logs, as in `job_log_files`.

    Raises
    ------
    JobFolderError
        If `out` exists.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise JobFolderError(f"{out}: already exists, expected a new folder.")
    remove_stale_files(out.parent)
    folder = temporary_path(out)
    try:
        truth = write_job(run_job(draw_plan(n_ranks, fault, seed)), folder, trainer, launcher)
        folder.replace(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return truth


def write_job(
    timeline: JobTimeline, folder: Path, trainer: str = ANY, launcher: str = ANY
) -> dict[str, Any]:
    """Write all parts of a job and `truth.json`."""
    plan = timeline.plan
    folder.mkdir(parents=True, exist_ok=True)
    writers: tuple[Callable[[JobTimeline, Path], None], ...] = (
        _write_ranks,
        _write_flight,
        partial(_write_logs, trainer=trainer, launcher=launcher),
        _write_stacks,
        _write_metrics,
        _write_kernel,
        _write_profiles,
    )
    with progress_bar(len(writers), "simulating a job", "part") as bar:
        for write in writers:
            write(timeline, folder)
            bar.update()
    truth = _truth(plan) | {"checkpoints": list(_checkpoints(timeline))}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def _truth(plan: JobPlan) -> dict[str, Any]:
    truth = plan.truth()
    since = truth.pop("since_seconds")
    moment = None if since is None else format_iso(JOB_BEGIN + round(plan.since * SECOND))
    end = format_iso(JOB_BEGIN + round(plan.end * SECOND))
    return {**truth, "since": moment, "end": end, "ranks": plan.layout.n_ranks, "seed": plan.seed}


def _checkpoints(timeline: JobTimeline) -> Iterator[tuple[str, str]]:
    """Yield start and end of each checkpoint, in which a healthy job makes no progress."""
    for begin, end in timeline.saves:
        if np.isfinite(end).all():
            yield (
                format_iso(JOB_BEGIN + round(begin.min() * SECOND)),
                format_iso(JOB_BEGIN + round(end.max() * SECOND)),
            )


def write_healthy_job(run: HealthyJobRun, folder: Path) -> None:
    """Write the parts of a healthy job's folder in which a hang could be detected."""
    job, timeline = run.job, run.timeline
    folder.mkdir(parents=True)
    _write_ranks(timeline, folder)
    if job.has_recorder:
        _write_flight(timeline, folder)
    if job.has_logs:
        (folder / "logs").mkdir()
        for rank in range(job.plan.layout.n_ranks):
            stamp = _stamp(job.plan, rank)
            rows = [f"[{stamp(when)}] {text}\n" for when, text in healthy_log_lines(run, rank)]
            (folder / "logs" / f"{rank}.log").write_text("".join(rows))
    if job.has_stacks:
        _write_stacks(timeline, folder, stack_capture_times(run), job.program)
    if job.has_metrics:
        _write_metrics(timeline, folder, job.plan.end)
    if job.has_kernel:
        _write_kernel(timeline, folder, job.plan.end)


def _stamp(plan: JobPlan, rank: int) -> Callable[[float], str]:
    """Return a function that formats times by the clock of a rank's machine."""
    ahead = plan.skew[rank // plan.layout.per_machine]

    def stamp(seconds: float) -> str:
        milliseconds = round((seconds + ahead) * 1000)
        return format_iso(JOB_BEGIN + milliseconds * 10**6)[:23].rstrip("Z").replace("T", " ")

    return stamp


def _write_ranks(timeline: JobTimeline, folder: Path) -> None:
    layout = timeline.plan.layout
    tp, pp, dp = (layout.axis(axis) for axis in ("tp", "pp", "dp"))
    rows = [
        f"{rank},{layout.machine(rank)},{rank % layout.per_machine},{','.join(map(str, axes))}"
        for rank, axes in enumerate(zip(tp, pp, dp, strict=True))
    ]
    text = "rank,machine,local_rank,tp,pp,dp\n" + "\n".join(rows) + "\n"
    (folder / "ranks.csv").write_text(text)
    exits = process_exits(timeline)
    if exits:
        rows = [
            f"{end.rank},{end.code},{_stamp(timeline.plan, end.rank)(end.seconds)}" for end in exits
        ]
        (folder / "exits.csv").write_text("rank,exit_code,timestamp\n" + "\n".join(rows) + "\n")


def _write_flight(timeline: JobTimeline, folder: Path) -> None:
    (folder / "flight").mkdir()
    for name, data in flight_dumps(timeline, JOB_BEGIN):
        (folder / "flight" / name).write_bytes(data)


def _write_logs(timeline: JobTimeline, folder: Path, trainer: str, launcher: str) -> None:
    def clock(seconds: float, machine: int) -> datetime:
        shown = JOB_BEGIN / SECOND + seconds + timeline.plan.skew[machine]
        return datetime.fromtimestamp(shown, UTC)

    for path, text in job_log_files(timeline, clock, trainer, launcher).items():
        file = folder / "logs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, newline="")


def _write_stacks(
    timeline: JobTimeline,
    folder: Path,
    moments: list[float] | None = None,
    program: Program | None = None,
) -> None:
    moments = stack_times(timeline) if moments is None else moments
    names = [format_iso(JOB_BEGIN + round(moment) * SECOND) for moment in moments]
    for name in names:
        (folder / "stacks" / name).mkdir(parents=True)
    for number, rank, threads in sampled_stacks(timeline, moments, program):
        file = folder / "stacks" / names[number] / f"{rank}.json"
        file.write_bytes(msgspec.json.encode(threads))


def _times(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> pa.Array:
    return pa.array(JOB_BEGIN + np.round(seconds * SECOND).astype(np.int64)).cast(
        pa.timestamp("ns", "UTC")
    )


def _write_metrics(timeline: JobTimeline, folder: Path, history: float = HISTORY_SECONDS) -> None:
    columns = dict(metric_samples(timeline, history))
    rank = columns.pop("rank").astype(np.int64)
    times = _times(columns.pop("seconds"))
    machines = [
        timeline.plan.layout.machine(number) for number in range(timeline.plan.layout.n_ranks)
    ]
    table = {"timestamp": times, "machine": np.array(machines)[rank], "rank": rank, **columns}
    (folder / "metrics").mkdir()
    pq.write_table(pa.table(table), arrow_path(folder / "metrics" / "part.parquet"))


def _write_kernel(timeline: JobTimeline, folder: Path, history: float = HISTORY_SECONDS) -> None:
    columns = dict(kernel_samples(timeline, history))
    rank = columns.pop("rank").astype(np.int64)
    times, activity = _times(columns.pop("seconds")), columns.pop("activity").astype(int)
    state = [_STATES.get(Activity(number), "R") for number in activity.tolist()]
    if timeline.plan.fault == "machine" and timeline.plan.shows_work:
        stuck = activity == Activity.DEVICE
        state = ["D" if is_stuck else letter for letter, is_stuck in zip(state, stuck, strict=True)]
    if timeline.plan.saves_in_d:
        state = ["D" if n == Activity.SAVE else s for n, s in zip(activity, state, strict=True)]
    if timeline.plan.is_silent:  # a site without eBPF tools
        for name in ("cuda_call_ms", "verbs_completions"):
            columns[name] = np.full(len(rank), np.nan)
    arrays = {name: pa.array(column, from_pandas=True) for name, column in columns.items()}
    (folder / "kernel").mkdir()
    table = pa.table({"timestamp": times, "rank": rank, "state": state, **arrays})
    pq.write_table(table, arrow_path(folder / "kernel" / "part.parquet"))


def _write_profiles(timeline: JobTimeline, folder: Path) -> None:
    """Write profiles of slow spans, and of normal ones for comparison."""
    n = timeline.plan.layout.n_ranks
    if timeline.plan.kind not in ("jitter", "slow", "none"):
        return
    others = [rank for rank in range(n) if rank != timeline.plan.rank][: _MAX_PROFILED_RANKS - 1]
    for span in ("normal", "slow"):
        (folder / "profiles" / span).mkdir(parents=True)
        for rank in (timeline.plan.rank, *others):
            for clock in ("on", "off"):
                file = folder / "profiles" / span / f"{rank}.{clock}.folded"
                file.write_text(folded_profile(timeline, rank, clock, span == "slow"))
