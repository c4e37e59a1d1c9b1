"""Killed jobs: how many we may end, apart from how many machines we may take out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.counted_outages import LimitContext, capacity_free_at
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.blocker import Blocker
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
    """Return what holds back the end of the jobs of a drain whose deadline is reached.

    Of several deadlines the first comes first, so that two do not hold back each other.

    Parameters
    ----------
    action : Action
        Holding, with jobs still on its machine.
    jobs : int
        How many.
    pool : Pool
        That of the machine.
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
    """Yield the limit of killed jobs if so many more are too many."""
    same = [other for other in others if other.pool == context.pool.name]
    ends = [end for other in same for end in _kill_expiries(other, context)]
    limit = context.limits.killed_jobs
    if jobs and len(ends) + jobs > limit:
        noun, verb = "job" if jobs == 1 else "jobs", "was" if len(ends) == 1 else "were"
        words = f"{jobs} {noun} would be ended, and {len(ends)} {verb} "
        words += f"within {context.refill_words}, at most {limit}"
        yield Blocker(words, capacity_free_at(ends, limit, jobs))


def _kill_expiries(action: Action, context: LimitContext) -> list[Nanoseconds | None]:
    """Return for each job that an action ended when it no longer counts.

    When exactly it did is not known: at the latest when the machine came to rest. None: it has
    not, and may do so just now.
    """
    if not action.step.isolates or not action.started:
        return []
    if action.mode is DrainMode.NOW:
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
    """Tell whether a drain with a deadline has killed nothing: it is ahead, or it came to rest."""
    rested = _is_finished(action) and action.changed_at < action.valid_until
    return now < action.valid_until or rested
