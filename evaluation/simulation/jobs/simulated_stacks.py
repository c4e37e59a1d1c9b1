"""Stacks of the ranks of a simulated job, as py-spy prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.simulation.jobs.collective import Collective
from forewarn.evaluation.simulation.jobs.job_timeline import Activity, JobTimeline
from forewarn.evaluation.simulation.jobs.rank_progress import activity_at

__all__ = ["Program", "draw_program", "folded_profile", "sampled_stacks", "stack_times"]

Call = tuple[str, str, int]
_TORCH = "/usr/lib/python3/dist-packages/torch"
_TRAIN: tuple[Call, ...] = (("train", "train.py", 311), ("<module>", "train.py", 402))
_COMPUTE: tuple[Call, ...] = (
    ("forward", f"{_TORCH}/nn/modules/linear.py", 125),
    ("_engine_run_backward", f"{_TORCH}/autograd/graph.py", 823),
    ("forward", f"{_TORCH}/nn/modules/activation.py", 734),
    ("step", f"{_TORCH}/optim/adamw.py", 232),
)
_LOAD: tuple[Call, ...] = (
    ("wait", "/usr/lib/python3.11/threading.py", 327),
    ("get", "/usr/lib/python3.11/queue.py", 180),
    ("_try_get_data", f"{_TORCH}/utils/data/dataloader.py", 1251),
    ("__next__", f"{_TORCH}/utils/data/dataloader.py", 701),
)
_SAVE: tuple[Call, ...] = (
    ("write", f"{_TORCH}/serialization.py", 944),
    ("save", f"{_TORCH}/serialization.py", 850),
    ("save_checkpoint", "train.py", 210),
)
_READ: tuple[Call, ...] = (
    ("read", "dataset.py", 77),
    ("__getitem__", "dataset.py", 58),
)
_EVALUATE: tuple[Call, ...] = (("evaluate", "train.py", 250),)
_UNUSUAL_NAME_SHARE = 0.2  # share of programs that evaluate in functions with unusual names
_DEVICE: tuple[Call, ...] = (("synchronize", f"{_TORCH}/cuda/__init__.py", 985),)
# The functions of common programs that write a checkpoint.
_SAVES: tuple[tuple[Call, ...], ...] = (
    _SAVE,
    (("save", f"{_TORCH}/distributed/checkpoint/state_dict_saver.py", 167), ("fit", "run.py", 88)),
    (
        ("save_file", "/usr/lib/python3/dist-packages/safetensors/torch.py", 286),
        ("save_pretrained", "/usr/lib/python3/dist-packages/transformers/modeling_utils.py", 3034),
    ),
    (("_savez", "/usr/lib/python3/dist-packages/numpy/lib/npyio.py", 760), ("keep", "io.py", 12)),
)
_SELF: dict[Activity, tuple[Call, ...]] = {
    Activity.LOAD: _LOAD,
    Activity.SLEEP: _READ,
    Activity.DEVICE: _DEVICE,
    Activity.PAUSE: (("collect", "gc_hook.py", 12),),
    Activity.COMPILE: (("compile", f"{_TORCH}/_inductor/compile_fx.py", 1500),),
}


_LETTERS = "abcdefghijklmnopqrstuvwxyz_"


@dataclass(frozen=True, slots=True)
class Program:
    """The functions in which a program makes its ranks wait, the innermost call first.

    Attributes
    ----------
    saves, evaluates : tuple of calls
        Name, file and line of each call.
    """

    saves: tuple[Call, ...] = _SAVE
    evaluates: tuple[Call, ...] = _EVALUATE


def draw_program(saves_as: int, rng: np.random.Generator) -> Program:
    """Draw a program: most use common function names, the others random ones.

    Parameters
    ----------
    saves_as : int
        0 to 3 select a common way to write a checkpoint; larger values, the program's own
        functions.
    rng : numpy.random.Generator
    """
    own_saves, own_evaluates = _draw_calls(rng), _draw_calls(rng)
    saves = _SAVES[saves_as] if saves_as < len(_SAVES) else own_saves
    return Program(saves, own_evaluates if rng.random() < _UNUSUAL_NAME_SHARE else _EVALUATE)


def _draw_calls(rng: np.random.Generator) -> tuple[Call, ...]:
    def word() -> str:
        return "".join(rng.choice(list(_LETTERS), int(rng.integers(3, 13))))

    depth = int(rng.integers(1, 4))
    return tuple((word(), f"{word()}.py", int(rng.integers(1, 2000))) for _ in range(depth))


_N_CAPTURES, _CAPTURE_INTERVAL = 6, 29.0  # captures before the end, as an agent takes them
_MAX_STALL_CAPTURES = 12  # seconds that an operation lasts before a capture
_STALL_SECONDS = 30.0  # seconds an operation lasts before the first capture
_CAPTURE_SPAN = 900.0  # seconds before the end in which stacks are captured


def stack_times(timeline: JobTimeline) -> list[float]:
    """Return when stacks are captured: while an operation exceeds 30 s, and before the end.

    Whole seconds, ascending, because folders of captures are named by them.
    """
    end = timeline.plan.end - 1.0
    moments = {end - _CAPTURE_INTERVAL * number for number in range(_N_CAPTURES)}
    for begin, until in _stall_spans(timeline):
        first = begin + _STALL_SECONDS
        rounds = (first + _CAPTURE_INTERVAL * number for number in range(_MAX_STALL_CAPTURES))
        moments |= {moment for moment in rounds if moment < min(until, end)}
    earliest = max(0.0, end - _CAPTURE_SPAN)
    return sorted({float(np.ceil(moment)) for moment in moments if moment > earliest})


def _stall_spans(timeline: JobTimeline) -> Iterator[tuple[float, float]]:
    """Yield the spans in which ranks wait for long: checkpoints, and the end of a hang."""
    for begin, until in timeline.saves:
        if np.isfinite(begin).any():
            yield float(begin[np.isfinite(begin)].min()), float(until.max())
    waits = timeline.stuck_at[
        np.isin(timeline.stuck_in, (int(Activity.WAIT), int(Activity.DEVICE)))
    ]
    if len(waits):
        yield float(waits.min()), np.inf


def sampled_stacks(
    timeline: JobTimeline, moments: list[float], program: Program | None = None
) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield the number of the capture, the rank and its threads; ended processes have none.

    Parameters
    ----------
    timeline : JobTimeline
    moments : list of float
        Seconds.
    program : Program, optional
        Functions that write checkpoints and evaluate; the common ones by default.
    """
    program = Program() if program is None else program
    rng = np.random.default_rng([timeline.plan.seed, 13])
    spans = [
        np.array([getattr(m, name) for m in timeline.meetings]) for name in ("entered", "ended")
    ]
    stuck = _stuck_in(timeline, spans[0])
    for number, moment in enumerate(moments):
        inside = (spans[0] <= moment) & (moment < spans[1]) if timeline.meetings else None
        for rank in range(timeline.plan.layout.n_ranks):
            activity, is_stuck = activity_at(timeline, rank, moment, rng)
            if activity is Activity.GONE:
                continue
            draw = int(rng.integers(len(_COMPUTE)))
            calls = _calls(timeline, activity, draw, program)
            if activity is Activity.WAIT:
                entered = [] if inside is None else np.flatnonzero(inside[:, rank]).tolist()
                meeting = timeline.meetings[entered[-1]] if entered else None
                meeting = stuck.get(rank) if is_stuck else meeting
                calls = (*_wait(_awaited(rank, is_stuck, draw, meeting)), *_TRAIN)
            yield number, rank, _threads(rank, calls)


def _calls(
    timeline: JobTimeline, activity: Activity, draw: int, program: Program
) -> tuple[Call, ...]:
    if activity is Activity.STOPPED:
        draw = timeline.plan.seed % len(_COMPUTE)
    if activity is Activity.EVALUATE:
        return (_COMPUTE[draw], *program.evaluates, *_TRAIN)
    if activity is Activity.SAVE:
        return (*program.saves, *_TRAIN)
    return (*_SELF.get(activity, _COMPUTE[draw : draw + 1]), *_TRAIN)


def _stuck_in(timeline: JobTimeline, entered: npt.NDArray[np.float64]) -> dict[int, Collective]:
    """Return the last collective that each rank entered before it stopped for good."""
    if not timeline.meetings:
        return {}
    numbers, ranks = np.nonzero((entered == timeline.stuck_at) & np.isfinite(entered))
    meetings = list(timeline.meetings)
    return {
        rank: meetings[number]
        for number, rank in zip(numbers.tolist(), ranks.tolist(), strict=True)
    }


def _awaited(rank: int, is_stuck: bool, draw: int, meeting: Collective | None) -> str:
    """Return the operation that a rank waits in: the one it is stuck in, or in, or a random one."""
    if not is_stuck and meeting is None and draw % 2:
        return "barrier"
    return "all_reduce" if meeting is None else meeting.name(rank).partition(" ")[0]


def _wait(name: str) -> tuple[Call, ...]:
    library = f"{_TORCH}/distributed/distributed_c10d.py"
    lines = {"all_reduce": 2810, "broadcast": 2714, "barrier": 4551, "send": 2390, "recv": 2430}
    return ((name, library, lines[name]), ("wrapper", f"{_TORCH}/distributed/c10d_logger.py", 83))


def _threads(rank: int, calls: tuple[Call, ...]) -> list[Any]:
    pid = 4000 + rank
    frames = [
        {"name": name, "filename": file, "short_filename": file.rpartition("/")[2], "line": number}
        for name, file, number in calls
    ]
    helper = {"name": "_bootstrap", "filename": "/usr/lib/python3.11/threading.py", "line": 1002}
    main = {"pid": pid, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": pid}
    return [
        {**main, "active": True, "owns_gil": False, "frames": frames},
        {**main, "thread_name": "Thread-1", "os_thread_id": pid + 9000, "frames": [helper]},
    ]


_EXTRA = {
    "gc": ("on", "train;step;gc_collect_main"),
    "lock": ("off", "train;step;queue_get;__futex_abstimed_wait;futex_wait"),
    "memory": ("on", "train;step;memcpy;asm_exc_page_fault;do_numa_page;migrate_pages"),
    "loader": ("off", "train;_try_get_data;poll;do_sys_poll"),
    "checkpoint": ("off", "train;save_checkpoint;write;ext4_file_write_iter"),
    "neighbour": ("off", "train;step;irqentry_exit;preempt_schedule_irq"),
}


def folded_profile(timeline: JobTimeline, rank: int, clock: str, is_slow: bool) -> str:
    """Return collapsed stacks of a rank, in a slow or a normal span, on or off the CPU."""
    plan = timeline.plan
    rng = np.random.default_rng([plan.seed, rank, int(is_slow), int(clock == "on"), 17])
    paused = plan.share / (1.0 + plan.share) if is_slow and plan.fault == "jitter" else 0.0
    base = {
        "on": {"train;forward;linear": 40, "train;backward;run": 45, "train;adamw": 6},
        "off": {"train;all_reduce;wait": 30, "train;_try_get_data;poll": 3, "train;futex_wait": 2},
    }[clock]
    counts = {stack: float(weight) for stack, weight in base.items()}
    if rank == plan.rank and paused and _EXTRA[plan.cause][0] == clock:
        stack = _EXTRA[plan.cause][1]
        counts[stack] = counts.get(stack, 0.0) + sum(counts.values()) * paused
    elif paused and clock == "off":
        counts["train;all_reduce;wait"] += 100 * paused
    scale = 20 if clock == "on" else 2000
    drawn = {stack: int(rng.poisson(weight * scale)) for stack, weight in counts.items()}
    return "".join(f"{stack} {count}\n" for stack, count in drawn.items() if count)
