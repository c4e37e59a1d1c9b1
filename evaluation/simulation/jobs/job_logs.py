"""Log files of a simulated job, as one of five trainers and four kinds of launchers write them.

All is drawn from the seed, evenly where no distribution is named: the trainer, the launcher and its
variant, the step that the job resumed at (0, or log-uniform up to 200,000), steps between two log
lines (1, 5 or 10), whether NCCL prints its set-up, whether there are kernel logs (half of the
jobs), the version of PyTorch, and the exception. Of the harmless forms of a start each is printed
with a third; of those at any time there are Poisson(4) over the job and Poisson(1.5) in the last
five minutes before the fault, on random ranks and machines. The distributions were fixed before
the first diagnosis of such a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from forewarn.evaluation.simulation.jobs.crash_lines import (
    EXCEPTIONS,
    KILLED_KERNEL_LINES,
    PEERS,
    TIMEOUTS,
)
from forewarn.evaluation.simulation.jobs.job_plan import JOB_FAULTS, TIMEOUT_SECONDS, JobPlan
from forewarn.evaluation.simulation.jobs.job_timeline import JobTimeline
from forewarn.evaluation.simulation.jobs.launcher_lines import LAUNCHERS, Launcher
from forewarn.evaluation.simulation.jobs.line_writer import LineWriter, address, signal_fields
from forewarn.evaluation.simulation.jobs.noise_lines import NCCL_SETUP, NOISE, NoiseForm
from forewarn.evaluation.simulation.jobs.process_exits import ProcessExit, process_exits
from forewarn.evaluation.simulation.jobs.trainer_lines import TRAINERS, Trainer

__all__ = ["ANY", "Clock", "job_log_files"]

ANY = "any"
Clock = Callable[[float, int], datetime]

_LAST_MINUTES = 300.0  # seconds before the fault
_KERNEL_PREFIXES = (
    "{time:%Y-%m-%dT%H:%M:%S}.{us}+00:00 {host} kernel: ",
    "[{time:%a %b %d %H:%M:%S %Y}] ",
)


@dataclass(frozen=True, slots=True)
class _Style:
    """How the logs of a job look.

    Attributes
    ----------
    trainer : Trainer
    launcher : Launcher
    variant : str
    resumed, every : int
        The step that the job resumed at, and the steps between two log lines.
    has_setup : bool
        NCCL prints its set-up.
    has_hook : bool
        PyTorch puts the rank before each line of an exception.
    kernel : str or None
        Prefix of kernel lines; None without kernel logs.
    pods : str or None
        Names of pods, where there are some.
    """

    trainer: Trainer
    launcher: Launcher
    variant: str
    resumed: int
    every: int
    has_setup: bool
    has_hook: bool
    kernel: str | None
    pods: str | None


def _draw_style(rng: np.random.Generator, trainer: str, launcher: str) -> _Style:
    trainers = [name for name, form in TRAINERS.items() if not form.is_plain]
    drawn = str(rng.choice(trainers)), str(rng.choice(list(LAUNCHERS)))
    trainer = drawn[0] if trainer == ANY else trainer
    name = drawn[1] if launcher == ANY else launcher
    variant = str(rng.choice(list(LAUNCHERS[name].variants)))
    pods = str(rng.choice(["llm-worker-{}", "trainer-{}", "llm-workers-0-{}-x7k2p"]))
    has_kernel, prefix = bool(rng.random() < 0.5), str(rng.choice(_KERNEL_PREFIXES))
    return _Style(
        TRAINERS[trainer],
        LAUNCHERS[name],
        variant,
        10 * int(rng.choice([0, round(float(np.exp(rng.uniform(0.0, np.log(2e4)))))])),
        int(rng.choice([1, 5, 10])),
        bool(rng.random() < 0.5),
        bool(rng.random() < 0.5),
        prefix if has_kernel and name != "kubernetes" else None,
        pods if name == "kubernetes" else None,
    )


def job_log_files(
    timeline: JobTimeline, clock: Clock, trainer: str = ANY, launcher: str = ANY
) -> dict[str, str]:
    """Return the text of each log file by its path.

    Parameters
    ----------
    timeline : JobTimeline
    clock : callable
        Returns what the clock of a machine shows, from seconds since the start and its number.
    trainer, launcher : str
        A key of `TRAINERS` and of `LAUNCHERS`; `any` draws one.
    """
    plan = timeline.plan
    fault = list(JOB_FAULTS).index(plan.fault)
    rng = np.random.default_rng([plan.seed, plan.layout.n_ranks, fault, 61])
    style = _draw_style(rng, trainer, launcher)
    writer = _writer(timeline, style, clock, rng)
    _write_start(writer, timeline, style)
    _write_steps(writer, timeline, style)
    if not style.trainer.is_plain:
        _write_noise(writer, plan, style)
    _write_crash(writer, timeline, style)
    files: dict[str, list[str]] = {}
    for entry in sorted(writer.entries, key=lambda entry: entry.seconds):
        if entry.seconds <= plan.end:
            files.setdefault(entry.path, []).append(entry.text + "\n")
    texts = {path: "".join(lines) for path, lines in files.items()}
    if style.pods is not None and rng.random() < 0.5:
        texts["pods.txt"] = _pod_table(writer, timeline)
    return texts


def _writer(
    timeline: JobTimeline, style: _Style, clock: Clock, rng: np.random.Generator
) -> LineWriter:
    layout = timeline.plan.layout
    machines = range(-(-layout.n_ranks // layout.per_machine))
    names = [layout.machine(machine * layout.per_machine) for machine in machines]
    hosts = names if style.pods is None else [style.pods.format(machine) for machine in machines]
    facts = {
        **{"job": int(rng.integers(10_000, 9_000_000)), "batch": 512, "nccl": "26.2"},
        **{"steps": style.resumed + 100_000, "nodes": len(machines), "locals": layout.per_machine},
        **{"lost_address": address(timeline.plan.rank // layout.per_machine)},
        **{"timeout": round(TIMEOUT_SECONDS), "timeout_ms": round(TIMEOUT_SECONDS * 1000)},
    }
    return LineWriter(layout, style.launcher.variants[style.variant], clock, hosts, rng, facts)


def _speakers(trainer: Trainer, n_ranks: int, *, of_steps: bool) -> Sequence[int]:
    if trainer.speaker == "all":
        return range(n_ranks)
    return [n_ranks - 1 if of_steps and trainer.speaker == "last" else 0]


def _write_start(writer: LineWriter, timeline: JobTimeline, style: _Style) -> None:
    n_ranks = timeline.plan.layout.n_ranks
    for rank in range(n_ranks) if style.has_setup and not style.trainer.is_plain else ():
        writer.by_rank(4.0 + rank * 0.003, NCCL_SETUP, writer.fields(rank), "stdout")
    for rank in _speakers(style.trainer, n_ranks, of_steps=False):
        writer.by_rank(6.0, style.trainer.start, writer.fields(rank), "stdout")


def _write_steps(writer: LineWriter, timeline: JobTimeline, style: _Style) -> None:
    """Write the lines of steps and checkpoints."""
    plan, trainer, n_ranks = timeline.plan, style.trainer, timeline.plan.layout.n_ranks
    for rank in _speakers(trainer, n_ranks, of_steps=True):
        ends = np.array([step[rank] for step in timeline.steps])
        for number in range(style.every, len(ends) + 1, style.every):
            if not np.isfinite(ends[number - 1]):
                break
            first = ends[number - 1 - style.every] if number > style.every else plan.compiling
            took = (float(ends[number - 1]) - float(first)) / style.every
            fields = writer.fields(rank, **_step_fields(style.resumed, number, took, plan))
            if trainer.progress:
                writer.by_rank(float(ends[number - 1]), (trainer.progress,), fields)
            writer.by_rank(float(ends[number - 1]) + 0.0005, trainer.step, fields, "stdout")
    for number, (begin, end) in enumerate(timeline.saves if not plan.is_silent else (), start=1):
        for rank in _speakers(trainer, n_ranks, of_steps=False):
            saved = float(end[rank] - begin[rank])
            step = number * plan.checkpoint[0]
            fields = writer.fields(
                rank, **_step_fields(style.resumed, step, 1.0, plan), saved=saved
            )
            for moment, lines in ((begin, trainer.save_begins), (end, trainer.save_ends)):
                if np.isfinite(moment[rank]):
                    writer.by_rank(float(moment[rank]) + 0.001, lines, fields, "stdout")


def _step_fields(resumed: int, number: int, took: float, plan: JobPlan) -> dict[str, object]:
    step = resumed + number
    percent = 100 * step // (resumed + 100_000)
    elapsed, left = (
        f"{round(n * plan.step) // 60}:{round(n * plan.step) % 60:02d}"
        for n in (number, 100_000 - number)
    )
    return {
        **{"step": step, "took": took, "took_ms": took * 1000, "samples": step * 512},
        **{"loss": 1.8 + 9.0 / (1.0 + step) ** 0.3, "norm": 0.4 + 1.0 / (1.0 + number)},
        **{"rate": 3e-4, "tflops": 1800.0 / plan.step, "speed": 512 / max(took, 0.001)},
        **{"tokens": round(40_000 / plan.step), "mfu": 180.0 / plan.step, "epoch": step / 12_000},
        **{"percent": percent, "bar": ("█" * (percent // 10)).ljust(10), "elapsed": elapsed},
        "left": left,
    }


def _write_noise(writer: LineWriter, plan: JobPlan, style: _Style) -> None:
    """Write harmless lines, some of them shortly before the fault."""
    rng = writer.rng
    usable = [form for form in NOISE if form.writer != "kernel" or style.kernel is not None]
    for form in usable:
        if form.at_start and rng.random() < 1 / 3:
            _write_form(writer, form, float(rng.uniform(0.5, 5.0)), style)
    later = [form for form in usable if not form.at_start]
    last = max(0.0, plan.since - _LAST_MINUTES)
    moments = [*rng.uniform(0.0, plan.end, rng.poisson(4.0))]
    moments += [*rng.uniform(last, plan.since, rng.poisson(1.5))]
    for moment in moments:
        _write_form(writer, later[int(rng.integers(len(later)))], float(moment), style)


def _write_form(writer: LineWriter, form: NoiseForm, seconds: float, style: _Style) -> None:
    n_ranks, rng = writer.layout.n_ranks, writer.rng
    for rank in range(n_ranks) if form.writer == "all" else [int(rng.integers(n_ranks))]:
        fields = writer.fields(rank)
        lines = [(seconds + float(rng.uniform(0.0, 0.3)), form.first)]
        if form.then:
            lines.append((lines[0][0] + float(rng.uniform(*form.seconds)), form.then))
        for moment, text in lines:
            if form.writer != "kernel":
                writer.by_rank(moment, (text,), fields)
            elif style.kernel is not None:
                writer.by_kernel(moment, (text,), fields, style.kernel)


def _write_crash(writer: LineWriter, timeline: JobTimeline, style: _Style) -> None:
    """Write the last lines of ranks that end on their own, then those of the launcher."""
    plan, rng = timeline.plan, writer.rng
    exits = sorted(process_exits(timeline), key=lambda end: end.seconds)
    peers = PEERS["gloo" if plan.is_gloo else "nccl"]
    timeouts = TIMEOUTS["gloo" if plan.is_gloo else "nccl"]
    forms = timeouts if plan.fault == "timeout" else peers
    form, own = forms[int(rng.integers(len(forms)))], EXCEPTIONS[int(rng.integers(len(EXCEPTIONS)))]
    step = style.resumed + len(timeline.steps)
    for end in exits:
        is_cause = end.rank == plan.rank
        if not end.is_own or (is_cause and plan.fault == "sigkill"):
            continue
        fields = writer.fields(end.rank, step=step, **_waiting(timeline, end.rank))
        last = own if is_cause else form
        writer.by_rank(end.seconds - 0.15, _prefixed(last.lines, style), fields)
        if style.kernel is not None:
            writer.by_kernel(end.seconds - 0.2, last.kernel, fields, style.kernel)
    if plan.fault == "sigkill" and style.kernel is not None and rng.random() < 0.7:
        fields = writer.fields(plan.rank)
        writer.by_kernel(
            float(timeline.stuck_at[plan.rank]), KILLED_KERNEL_LINES, fields, style.kernel
        )
    _write_launcher(writer, exits, style)


def _prefixed(lines: Sequence[str], style: _Style) -> list[str]:
    """Return lines as PyTorch's hook for exceptions prints them, with the rank before each."""
    is_traceback = any(line.startswith("Traceback") for line in lines)
    return ["[rank{rank}]: " + line if is_traceback and style.has_hook else line for line in lines]


def _waiting(timeline: JobTimeline, rank: int) -> dict[str, object]:
    """Return the operation that a rank waits in, as the watchdog describes it."""
    layout = timeline.plan.layout
    meetings = [m for m in timeline.meetings if np.isfinite(m.entered[rank])]
    open_now = [m for m in meetings if not np.isfinite(m.ended[rank])]
    axis, name = (
        (open_now[-1].axis, open_now[-1].name(rank)) if open_now else ("world", "all_reduce")
    )
    sequence = 1000 + sum(meeting.axis == axis for meeting in meetings)
    group = int(layout.groups(axis)[rank])
    number = ("world", "tp", "pp", "dp").index(axis)
    names = {"tp": "TENSOR_MODEL_PARALLEL_GROUP", "pp": "PIPELINE_MODEL_PARALLEL_GROUP"}
    label = "default_pg" if axis == "world" else names.get(axis, "DATA_PARALLEL_GROUP")
    ran = TIMEOUT_SECONDS * 1000 + rank % 90 + 3
    return {
        **{"sequence": sequence, "enqueued": sequence, "completed": sequence - 1},
        **{"operation": name.split()[0].replace("_", "").upper(), "ran_ms": round(ran)},
        **{"numel": 1 if axis == "world" else 67_108_864},
        "group": f"PG ID {number} PG GUID {number * 100 + group}({label})",
        "group_rank": layout.members(axis, group).index(rank),
    }


def _write_launcher(writer: LineWriter, exits: Sequence[ProcessExit], style: _Style) -> None:
    """Write what the launcher says of the first rank that ended on each machine."""
    launcher, per_machine = style.launcher, writer.layout.per_machine
    for number, end in enumerate(_first_ends(exits, per_machine)):
        machine = end.rank // per_machine
        limits = {"first_task": machine * per_machine, "last_task": (machine + 1) * per_machine - 1}
        fields = writer.fields(end.rank, **signal_fields(end.code), **limits)
        if number and (launcher.first_only or not end.is_own):
            lines = launcher.others
        else:
            lines = launcher.killed if end.code < 0 else launcher.failed
        writer.by_launcher(end.seconds + 0.6, lines, fields)


def _first_ends(exits: Sequence[ProcessExit], per_machine: int) -> Iterator[ProcessExit]:
    """Yield the first exit on each machine, in order of time."""
    seen = set[int]()
    for end in exits:
        if end.rank // per_machine not in seen:
            seen.add(end.rank // per_machine)
            yield end


def _pod_table(writer: LineWriter, timeline: JobTimeline) -> str:
    """Return what `kubectl get pods -o wide` prints."""
    layout = writer.layout
    ends = {
        end.rank // layout.per_machine: end
        for end in _first_ends(
            sorted(process_exits(timeline), key=lambda end: end.seconds), layout.per_machine
        )
    }
    rows = [f"{'NAME':<26}{'READY':<8}{'STATUS':<11}{'RESTARTS':<11}{'AGE':<7}{'IP':<13}NODE"]
    for machine, pod in enumerate(writer.hosts):
        end = ends.get(machine)
        status = "Running" if end is None else "OOMKilled" if end.code == -9 else "Error"
        node = layout.machine(machine * layout.per_machine)
        ready = "1/1" if end is None else "0/1"
        rows.append(
            f"{pod:<26}{ready:<8}{status:<11}{'0':<11}{'42m':<7}{address(machine):<13}{node}"
        )
    return "\n".join(rows) + "\n"
