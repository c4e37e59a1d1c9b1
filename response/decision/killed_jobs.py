"""Limit of killed jobs, separate from the limits of drained machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.counted_outages import LimitContext, capacity_free_at
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.blocker import Blocker, BlockerKind
from forewarn.response.state.pool import Pool
from forewarn.response.state.step import DrainMode

__all__ = ["exceeded_kill_limit", "find_eviction_blocker"]


def find_eviction_blocker(
    action: Action,
    jobs: int,
    *,
    pool: Pool,
    recent: Sequence[Action],
    now: Nanoseconds,
) -> Blocker | None:
    """Return what blocks ending the jobs of a drain whose deadline is reached.

    The earliest of several deadlines goes first, so that two drains do not block each other.

    Parameters
    ----------
    action : Action
        In state `HOLDING`, with jobs still on its machine.
    jobs : int
        Number of these jobs.
    pool : Pool
        Pool of the machine.
    recent : sequence of Action
    now : int
        Nanoseconds since 1970 UTC.
    """
    order = (action.valid_until, action.id)
    earlier = [
        other
        for other in recent
        if other.id != action.id and (not _waits(other) or (other.valid_until, other.id) < order)
    ]
    context = LimitContext(action, pool, {}, earlier, now)
    return next(iter(exceeded_kill_limit(earlier, jobs, context)), None)


def _waits(action: Action) -> bool:
    return action.mode is DrainMode.DEADLINE and action.state is ActionState.HOLDING


def exceeded_kill_limit(
    others: Sequence[Action], jobs: int, context: LimitContext
) -> Iterable[Blocker]:
    """Yield the limit of killed jobs if `jobs` more would exceed it."""
    same = [other for other in others if other.pool == context.pool.name]
    ends = [end for other in same for end in _kill_expiries(other, context)]
    limit = context.limits.killed_jobs
    if jobs and len(ends) + jobs > limit:
        noun, verb = "job" if jobs == 1 else "jobs", "was" if len(ends) == 1 else "were"
        words = f"{jobs} {noun} would be ended, and {len(ends)} {verb} "
        words += f"within {context.refill_words}, at most {limit}"
        yield Blocker(words, capacity_free_at(ends, limit, jobs), BlockerKind.KILLED_JOBS)


def _kill_expiries(action: Action, context: LimitContext) -> list[Nanoseconds | None]:
    """Return for each job that an action ended the time at which it no longer counts.

    The exact time of the kill is unknown: at the latest when the machine was drained. None: the
    machine is not drained yet, so the kill may be happening now.
    """
    if not action.step.isolates or not action.started:
        return []
    if action.mode in (DrainMode.MOVED, DrainMode.NOW):
        jobs = max(action.jobs, int(action.job is not None))
    elif action.mode is DrainMode.DEADLINE and not _in_time(action, context.now):
        jobs = max(action.jobs, 1)
    else:
        return []
    if not _is_finished(action):
        return [None] * jobs
    end = Nanoseconds(max(action.at, action.changed_at) + context.limits.refill)
    return [end] * jobs if end > context.now else []


def _is_finished(action: Action) -> bool:
    return action.state is ActionState.DRAINED or not action.open


def _in_time(action: Action, now: Nanoseconds) -> bool:
    """Tell whether a drain has killed no job: its deadline is ahead, or it finished earlier."""
    is_finished = _is_finished(action) and action.changed_at < action.valid_until
    return now < action.valid_until or is_finished
