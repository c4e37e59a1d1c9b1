"""Event simulation of a job: its ranks work, enter collectives, or stop for good.

Times of events that never happen are infinite. A rank that never enters an operation makes the
end infinite for all members, so that a stall propagates as it does in a real job.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.simulation.jobs.collective import Collective
from forewarn.evaluation.simulation.jobs.job_plan import JobPlan
from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = ["Activity", "JobTimeline", "make_step", "run_job"]

_RING_SIZE = 2000  # operations in a flight recorder
_MAX_RECORDED = 200_000  # operations of all ranks
_MIN_RING_SIZE = 200  # operations of each rank: a dozen steps
_DP_BYTES, _TP_BYTES = 2e9, 4e9  # per step
_JITTER_STEP_SHARE = 0.25  # share of the steps in which a rank with jitter pauses


class Activity(IntEnum):
    """Activities of a rank; the last two columns count bytes."""

    LOAD = 0
    COMPUTE = 1
    WAIT = 2
    SAVE = 3
    COMPILE = 4
    PAUSE = 5
    SLEEP = 6
    STOPPED = 7
    DEVICE = 8
    GONE = 9
    EVALUATE = 10
    RDMA = 11
    NVLINK = 12


@dataclass(slots=True)
class JobTimeline:
    """The state of a running job.

    Attributes
    ----------
    plan : JobPlan
    now : ndarray of shape (n_ranks,)
        Current time of each rank, seconds.
    spent : ndarray of shape (n_ranks, 13)
        Seconds by `Activity`, and bytes.
    stuck_at, stuck_in : ndarrays of shape (n_ranks,)
        When a rank stopped for good (infinite if it did not), and in which activity.
    meetings : deque of Collective
        The most recent collectives.
    marks : list of (now, spent)
    steps, saves : list of (seconds of rank, ...)
        End times of steps; start and end times of checkpoints.
    """

    plan: JobPlan
    now: Float64Array
    spent: Float64Array
    stuck_at: Float64Array
    stuck_in: Int64Array
    meetings: deque[Collective]
    marks: list[tuple[Float64Array, Float64Array]] = field(default_factory=list)
    steps: list[Float64Array] = field(default_factory=list)
    saves: list[tuple[Float64Array, Float64Array]] = field(default_factory=list)
    _history: tuple[Float64Array, Float64Array] | None = None

    def history(self) -> tuple[Float64Array, Float64Array]:
        """Return all marks: shapes (n_marks, n_ranks) and (n_marks, n_ranks, 13)."""
        if self._history is None or len(self._history[0]) != len(self.marks):
            now, spent = zip(*self.marks, strict=True)
            self._history = np.array(now), np.array(spent)
        return self._history

    def mark(self) -> None:
        """Record the progress of all ranks."""
        self.marks.append((self.now.copy(), self.spent.copy()))

    def work(self, activity: Activity, seconds: Float64Array) -> None:
        """Let each rank work for a time; a rank with a fault stops for good."""
        done = self.now + seconds
        halts = self._halting(done)
        stopping = np.isfinite(self.now) & ~np.isfinite(done) | halts
        moves = np.isfinite(self.now) & ~stopping
        self.spent[moves, activity] += seconds[moves]
        begin = np.where(halts, np.maximum(self.now, self.plan.since), self.now)
        before = stopping & halts
        self.spent[before, activity] += begin[before] - self.now[before]
        self._stop(
            stopping, begin, np.where(halts, _HALTS.get(self.plan.fault, activity), activity)
        )
        self.now = np.where(stopping, np.inf, done)

    def _halting(self, done: Float64Array) -> BoolArray:
        """Return the ranks that the fault stops, wherever they are."""
        halts = np.zeros(len(done), dtype=bool)
        rank = self.plan.rank
        if self.plan.fault in _HALTS and np.isfinite(self.now[rank]):
            halts[rank] = done[rank] > self.plan.since
        return halts

    def _stop(self, who: BoolArray, when: Float64Array, activity: npt.ArrayLike) -> None:
        first = who & ~np.isfinite(self.stuck_at)
        self.stuck_at[first] = when[first]
        self.stuck_in[first] = np.broadcast_to(np.asarray(activity), when.shape)[first]

    def meet(
        self,
        axis: str,
        name: str | tuple[str, ...],
        seconds: float,
        *,
        only: BoolArray | None = None,
        broken: BoolArray | None = None,
        mismatched: BoolArray | None = None,
    ) -> None:
        """Let the members of each group wait for each other, then continue together."""
        n = len(self.now)
        part = np.ones(n, dtype=bool) if only is None else only
        dead = np.zeros(n, dtype=bool) if broken is None else broken & np.isfinite(self.now)
        group = self.plan.layout.groups(axis)
        last = np.full(int(group.max()) + 1, -np.inf)
        np.maximum.at(last, group[part], self.now[part])
        if dead.any():
            last[group[dead & part]] = np.inf
        if mismatched is not None:
            last[group[mismatched & part]] = np.inf
        ended = np.where(part, last[group] + seconds, np.nan)
        entered = np.where(part, self.now, np.nan)
        self._leave(part, dead, ended)
        names = (name,) if isinstance(name, str) else name
        self.meetings.append(Collective(axis, names, entered, ended, dead & part))

    def _leave(self, part: BoolArray, dead: BoolArray, ended: Float64Array) -> None:
        entering = part & np.isfinite(self.now)
        stuck = entering & ~np.isfinite(ended)
        leaves = entering & ~stuck
        self._stop(stuck, self.now, np.where(dead, Activity.DEVICE, Activity.WAIT))
        self.spent[leaves, Activity.WAIT] += ended[leaves] - self.now[leaves]
        self.now = np.where(part, ended, self.now)


# Activity in which each fault leaves its rank.
_HALTS = {
    "sigstop": Activity.STOPPED,
    "dstate": Activity.SLEEP,
    "sigkill": Activity.GONE,
    "exception": Activity.GONE,
}


def run_job(plan: JobPlan) -> JobTimeline:
    """Run a job until all ranks have passed its end or have stopped."""
    n = plan.layout.n_ranks
    ring = min(_RING_SIZE, max(_MIN_RING_SIZE, _MAX_RECORDED // n))
    timeline = JobTimeline(
        plan,
        np.zeros(n),
        np.zeros((n, len(Activity))),
        np.full(n, np.inf),
        np.full(n, -1, dtype=np.int64),
        deque(maxlen=ring),
    )
    rng = np.random.default_rng([plan.seed, n, 7])
    timeline.mark()
    timeline.work(Activity.COMPILE, plan.compiling * rng.uniform(0.95, 1.05, n))
    timeline.mark()
    number = 0
    while np.isfinite(timeline.now).any() and _is_before_end(timeline):
        number += 1
        make_step(timeline, rng, is_faulty=bool(np.nanmin(timeline.now) >= plan.since))
        timeline.steps.append(timeline.now.copy())
        if number % plan.checkpoint[0] == 0:
            _save(timeline, rng)
    timeline.plan = _with_actual_start(timeline)
    return timeline


def _with_actual_start(timeline: JobTimeline) -> JobPlan:
    """Return the plan with the actual start of the fault: its rank may have been waiting."""
    plan = timeline.plan
    began = float(timeline.stuck_at[plan.rank] if plan.has_culprit else timeline.stuck_at.min())
    if plan.kind not in ("hang", "crash") or not np.isfinite(began):
        return plan
    return replace(plan, since=began, end=began + plan.end - plan.since)


def _is_before_end(timeline: JobTimeline) -> bool:
    """Tell whether a rank can still reach the end; a hang or crash runs until it happens."""
    if timeline.plan.kind in ("hang", "crash"):
        return True
    return bool(timeline.now[np.isfinite(timeline.now)].min() <= timeline.plan.end)


def make_step(timeline: JobTimeline, rng: np.random.Generator, *, is_faulty: bool) -> None:
    """Run one step: load, forward, backward, reduce gradients, reduce the loss."""
    plan, n = timeline.plan, len(timeline.now)
    fault = plan.fault if is_faulty else "none"
    load = 0.01 * plan.step * rng.lognormal(0.0, 0.3, n)
    if fault in ("loader", "timeout"):
        load[plan.rank] = np.inf
    timeline.work(Activity.LOAD, load)
    if fault == "jitter" and rng.random() < _JITTER_STEP_SHARE:
        pause = np.zeros(n)
        pause[plan.rank] = plan.share * plan.step * rng.uniform(0.6, 1.4)
        timeline.work(Activity.PAUSE, pause)
    _through_stages(timeline, rng, fault)
    if fault == "deadlock":
        _opposite_order(timeline)
        return
    if fault == "collective":
        _wrong_collective(timeline)
    broken = plan.layout.on_same_machine(plan.rank) if fault == "machine" else None
    timeline.meet("dp", "all_reduce", 0.02 * plan.step, broken=broken)
    timeline.spent[np.isfinite(timeline.now), Activity.RDMA] += _DP_BYTES
    timeline.work(Activity.COMPUTE, 0.05 * plan.step * _noise(timeline, rng))
    timeline.meet("world", "all_reduce", 0.002)
    timeline.mark()


def _noise(timeline: JobTimeline, rng: np.random.Generator) -> Float64Array:
    return rng.normal(1.0, timeline.plan.noise, len(timeline.now)).clip(0.5, 1.5)


def _through_stages(timeline: JobTimeline, rng: np.random.Generator, fault: str) -> None:
    """Run the pipeline stages forward and backward."""
    plan = timeline.plan
    stage = plan.layout.axis("pp")
    order = [*range(plan.layout.pp), *reversed(range(plan.layout.pp))]
    for number, current in enumerate(order):
        active = stage == current
        previous = order[number - 1] if number else current
        if previous != current:
            pair = (stage == previous) | active
            timeline.meet("pp", _pair_names(stage, previous, current), 0.003, only=pair)
        seconds = np.where(active, 0.45 * plan.step / plan.layout.pp, 0.0) * _noise(timeline, rng)
        if fault == "slow" and active[plan.rank]:
            seconds[plan.rank] += 0.5 * plan.share * plan.step
        timeline.work(Activity.COMPUTE, seconds)
        timeline.meet("tp", "all_reduce", 0.004 * plan.step, only=active)
        timeline.spent[active & np.isfinite(timeline.now), Activity.NVLINK] += _TP_BYTES


def _pair_names(stage: Int64Array, sender: int, receiver: int) -> tuple[str, ...]:
    sends, receives = f"send {sender}->{receiver}", f"recv {receiver}<-{sender}"
    return tuple(sends if each == sender else receives for each in stage)


def _wrong_collective(timeline: JobTimeline) -> None:
    """Let a rank call another operation than the others of its group."""
    mismatched = np.zeros(len(timeline.now), dtype=bool)
    mismatched[timeline.plan.rank] = True
    names = tuple("broadcast" if is_odd else "all_reduce" for is_odd in mismatched)
    timeline.meet("dp", names, 0.0, mismatched=mismatched)


def _opposite_order(timeline: JobTimeline) -> None:
    """Let half of the ranks enter their data group first, the others their tensor group."""
    layout = timeline.plan.layout
    is_odd = (layout.axis("tp") + layout.axis("dp")) % 2 == 1
    whole = np.ones(len(is_odd), dtype=bool)
    timeline.meet("dp", "all_reduce", 0.0, only=is_odd, mismatched=whole)
    timeline.meet("tp", "all_reduce", 0.0, only=~is_odd, mismatched=whole)


def _save(timeline: JobTimeline, rng: np.random.Generator) -> None:
    """Let the first data-parallel replica save a checkpoint while the others wait."""
    plan = timeline.plan
    timeline.meet("world", "barrier", 0.001)
    timeline.mark()
    begin = timeline.now.copy()
    writes = plan.layout.axis("dp") == 0
    timeline.work(Activity.SAVE, np.where(writes, plan.checkpoint[1] * rng.uniform(0.8, 1.2), 0.0))
    timeline.meet("world", "barrier", 0.001)
    timeline.mark()
    timeline.saves.append((begin, timeline.now.copy()))
