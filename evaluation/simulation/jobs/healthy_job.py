"""A healthy job over hours: it compiles, saves checkpoints, evaluates and is restarted.

All of these look like a stall. The study counts how often they are classified as a hang. Its
distributions were fixed before the first evaluation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.simulation.jobs.job_plan import JobPlan, draw_plan
from forewarn.evaluation.simulation.jobs.job_timeline import Activity, JobTimeline, make_step
from forewarn.evaluation.simulation.jobs.rank_layout import RankLayout
from forewarn.evaluation.simulation.jobs.simulated_stacks import Program, draw_program
from forewarn.features.time_units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

__all__ = [
    "WRITERS",
    "HealthyJob",
    "HealthyJobRun",
    "draw_healthy_job",
    "healthy_log_lines",
    "run_healthy_job",
    "stack_capture_times",
]

_SLOW_STORAGE, _SLOW_STORAGE_FACTOR = (
    0.03,
    2.5,
)  # share of slow checkpoints, and how many times as long they take

# Which ranks write a checkpoint.
WRITERS: Mapping[str, Callable[[RankLayout], npt.NDArray[np.bool_]]] = {
    "first copy": lambda layout: layout.axis("dp") == 0,
    "rank 0": lambda layout: np.arange(layout.n_ranks) == 0,
    "one a machine": lambda layout: np.arange(layout.n_ranks) % layout.per_machine == 0,
    "all": lambda layout: np.ones(layout.n_ranks, dtype=np.bool_),
}


@dataclass(frozen=True, slots=True)
class HealthyJob:
    """The activities of a healthy job apart from its steps; seconds.

    Attributes
    ----------
    plan : JobPlan
        Its ranks, steps and clocks; `end` is the time of the last diagnosis.
    save_every, save_takes, evaluate_every, evaluate_takes : float
    few_evaluate : bool
        Only one data-parallel replica evaluates; the others wait.
    says_save, says_evaluate, says_step, says_restart : bool
        Its logs mention them.
    log_every : int
        Steps between two log lines.
    restart_every : float
        On average.
    program : Program
        Functions that write checkpoints and evaluate.
    writers : str
        Which ranks write checkpoints, one of `WRITERS`.
    spread : float
        Spread of the writing time between ranks, standard deviation of the logarithm.
    has_stacks, has_recorder, has_metrics, has_logs, has_kernel : bool
        Which parts are collected.
    """

    plan: JobPlan
    save_every: float
    save_takes: float
    evaluate_every: float
    evaluate_takes: float
    few_evaluate: bool
    says_save: bool
    says_evaluate: bool
    says_step: bool
    says_restart: bool
    log_every: int
    restart_every: float
    program: Program
    writers: str
    spread: float
    has_stacks: bool
    has_recorder: bool
    has_metrics: bool
    has_logs: bool
    has_kernel: bool


@dataclass(slots=True)
class HealthyJobRun:
    """A healthy job after its run.

    Attributes
    ----------
    job : HealthyJob
    timeline : JobTimeline
    pauses : list of (str, float, float)
        Activities during which no step was made, with start and end in seconds.
    """

    job: HealthyJob
    timeline: JobTimeline
    pauses: list[tuple[str, float, float]] = field(default_factory=list)


def draw_healthy_job(n_ranks: int, hours: float, seed: int) -> HealthyJob:
    """Draw a healthy job.

    Parameters
    ----------
    n_ranks : int
        A multiple of 4.
    hours : float
        From its start to the last diagnosis.
    seed : int
    """
    rng, habits = (np.random.default_rng([seed, n_ranks, stream]) for stream in (41, 47))
    drawn = draw_plan(n_ranks, "none", seed)
    plan = replace(
        drawn,
        end=hours * SECONDS_PER_HOUR,
        since=hours * SECONDS_PER_HOUR,
        step=float(rng.uniform(10.0, 40.0)),
        compiling=_log_uniform(rng, 10.0, 20 * SECONDS_PER_MINUTE),
        cadence=float(rng.choice([15.0, 30.0])),
        is_pickled=False,
        saves_in_d=bool(np.random.default_rng([seed, n_ranks, 53]).random() < 0.5),
    )
    return HealthyJob(
        plan=plan,
        save_every=float(rng.uniform(20, 60)) * SECONDS_PER_MINUTE,
        save_takes=_log_uniform(rng, 10.0, 10 * SECONDS_PER_MINUTE),
        evaluate_every=float(rng.uniform(30, 120)) * SECONDS_PER_MINUTE,
        evaluate_takes=float(rng.uniform(1, 15)) * SECONDS_PER_MINUTE,
        few_evaluate=bool(rng.random() < 0.5),
        says_save=bool(rng.random() < 0.5),
        says_evaluate=bool(rng.random() < 0.5),
        says_step=bool(rng.random() < 0.8),
        says_restart=bool(rng.random() < 0.5),
        log_every=int(rng.choice([1, 10, 50])),
        restart_every=12 * SECONDS_PER_HOUR,
        program=draw_program(int(rng.integers(5)), habits),
        writers=str(habits.choice(list(WRITERS))),
        spread=float(habits.uniform(0.02, 0.4)),
        has_stacks=bool(rng.random() < 0.6),
        has_recorder=bool(rng.random() < 0.8),
        has_metrics=bool(rng.random() < 0.9),
        has_logs=bool(rng.random() < 0.95),
        has_kernel=bool(habits.random() < 0.5),
    )


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def run_healthy_job(job: HealthyJob) -> HealthyJobRun:
    """Run a healthy job to its end."""
    plan, n = job.plan, job.plan.layout.n_ranks
    timeline = JobTimeline(
        plan,
        np.zeros(n),
        np.zeros((n, len(Activity))),
        np.full(n, np.inf),
        np.full(n, -1, dtype=np.int64),
        deque(),
    )
    run = HealthyJobRun(job, timeline)
    rng = np.random.default_rng([plan.seed, n, 43])
    timeline.mark()
    _compile(run, rng)
    due = [job.save_every, job.evaluate_every, rng.exponential(job.restart_every)]
    while timeline.now.min() < plan.end:
        make_step(timeline, rng, is_faulty=False)
        timeline.steps.append(timeline.now.copy())
        now = float(timeline.now.max())
        for number, act in enumerate((_save, _evaluate, _restart)):
            if now >= due[number]:
                act(run, rng)
                every = (job.save_every, job.evaluate_every, rng.exponential(job.restart_every))
                due[number] = float(timeline.now.max()) + every[number]
                break
    return run


def _compile(run: HealthyJobRun, rng: np.random.Generator) -> None:
    timeline = run.timeline
    begin = float(timeline.now.min())
    seconds = timeline.plan.compiling * rng.uniform(0.8, 1.2)
    timeline.work(Activity.COMPILE, seconds * rng.uniform(0.7, 1.0, len(timeline.now)))
    timeline.mark()
    timeline.meet("world", "barrier", 0.001)  # the first rank waits for the last one
    timeline.mark()
    run.pauses.append(("first step", begin, float(timeline.now.max())))


def _save(run: HealthyJobRun, rng: np.random.Generator) -> None:
    """Let the writing ranks save a checkpoint; storage is slow at times."""
    slow = _SLOW_STORAGE_FACTOR if rng.random() < _SLOW_STORAGE else 1.0
    takes = run.job.save_takes * rng.lognormal(0.0, 0.3) * slow
    writes = WRITERS[run.job.writers](run.timeline.plan.layout)
    spread = rng.lognormal(0.0, run.job.spread, len(writes))
    _run_between_barriers(
        run, rng, "checkpoint", Activity.SAVE, np.where(writes, takes * spread, 0.0)
    )


def _evaluate(run: HealthyJobRun, rng: np.random.Generator) -> None:
    is_first = run.timeline.plan.layout.axis("dp") == 0
    works = is_first if run.job.few_evaluate else np.ones(len(is_first), dtype=bool)
    takes = run.job.evaluate_takes * rng.uniform(0.9, 1.1)
    _run_between_barriers(run, rng, "evaluation", Activity.EVALUATE, np.where(works, takes, 0.0))


def _run_between_barriers(
    run: HealthyJobRun,
    rng: np.random.Generator,
    kind: str,
    activity: Activity,
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    """Let some ranks work between two barriers while the others wait."""
    timeline = run.timeline
    timeline.meet("world", "barrier", 0.001)
    timeline.mark()
    begin = timeline.now.copy()
    timeline.work(activity, seconds * rng.uniform(0.8, 1.0, len(timeline.now)))
    timeline.mark()
    timeline.meet("world", "barrier", 0.001)
    timeline.mark()
    run.pauses.append((kind, float(begin.min()), float(timeline.now.max())))


def _restart(run: HealthyJobRun, rng: np.random.Generator) -> None:
    """End all processes between two steps; later they start and compile again."""
    timeline = run.timeline
    begin = float(timeline.now.max())
    timeline.now = np.full(len(timeline.now), begin)
    timeline.mark()
    timeline.work(
        Activity.GONE, np.full(len(timeline.now), float(rng.uniform(1, 8)) * SECONDS_PER_MINUTE)
    )
    timeline.mark()
    run.pauses.append(("restart", begin, float(timeline.now.max())))
    _compile(run, rng)


def healthy_log_lines(run: HealthyJobRun, rank: int) -> Iterator[tuple[float, str]]:
    """Yield the log lines of a rank of a healthy job, as seconds and text, in order."""
    job, timeline = run.job, run.timeline
    rows = [(0.0, "INFO starting training, compiling the model")]
    for number, ends in enumerate(timeline.steps, start=1):
        if number % job.log_every == 0 or number == 1:
            step = f"step {number} " if job.says_step else ""
            rows.append((float(ends[rank]), f"INFO {step}loss {2.0 + 8.0 / number:.4f}"))
    for kind, begin, end in run.pauses:
        rows += _event_lines(job, kind, begin, end)
    yield from sorted((row for row in rows if row[0] <= job.plan.end), key=lambda row: row[0])


def _event_lines(job: HealthyJob, kind: str, begin: float, end: float) -> list[tuple[float, str]]:
    if kind == "checkpoint" and job.says_save:
        return [(begin, "INFO saving checkpoint"), (end, "INFO successfully saved checkpoint")]
    if kind == "evaluation" and job.says_evaluate:
        return [(begin, "INFO running evaluation"), (end, "INFO validation loss 2.31")]
    if kind == "restart":
        again = "INFO restarting all workers" if job.says_restart else "INFO starting training"
        return [(end, again)]
    return []


_MAX_CAPTURES, _CAPTURE_INTERVAL = 60, 29.0  # captures kept per job, and seconds between two
_RECORDER_DELAY, _SILENCE_DELAY = (
    30.0,
    480.0,
)  # seconds until an agent captures stacks: with a recorder, without


def stack_capture_times(run: HealthyJobRun) -> list[float]:
    """Return when an agent captures stacks: whole seconds, ascending."""
    after = _RECORDER_DELAY if run.job.has_recorder else _SILENCE_DELAY
    moments = set[float]()
    for _, begin, end in run.pauses:
        first = float(np.ceil(begin + after))
        moments |= {
            moment for n in range(_MAX_CAPTURES) if (moment := first + _CAPTURE_INTERVAL * n) < end
        }
    return sorted(moment for moment in moments if moment < run.job.plan.end)
