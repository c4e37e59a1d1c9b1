"""Killed jobs: how many we may end, apart from how many machines we may take out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.census import Census, first_fit
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.held import Held
from forewarn.response.state.pool import Pool
from forewarn.response.state.step import DrainMode

__all__ = ["eviction_held_back", "killed_exceeded"]


def eviction_held_back(
    action: Action,
    jobs: int,
    *,
    pool: Pool,
    recent: Sequence[Action],
    now: Nanoseconds,
) -> Held | None:
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
    census = Census(action, pool, {}, earlier, now)
    return next(iter(killed_exceeded(earlier, jobs, census)), None)


def _waits(action: Action) -> bool:
    return action.mode is DrainMode.DEADLINE and action.state is ActionState.HOLDING


def killed_exceeded(others: Sequence[Action], jobs: int, census: Census) -> Iterable[Held]:
    """Yield the limit of killed jobs if so many more are too many."""
    same = [other for other in others if other.pool == census.pool.name]
    ends = [end for other in same for end in _killed(other, census)]
    limit = census.limits.killed_jobs
    if jobs and len(ends) + jobs > limit:
        noun, verb = "job" if jobs == 1 else "jobs", "was" if len(ends) == 1 else "were"
        words = f"{jobs} {noun} would be ended, and {len(ends)} {verb} "
        words += f"within {census.span}, at most {limit}"
        yield Held(words, first_fit(ends, limit, jobs))


def _killed(action: Action, census: Census) -> list[Nanoseconds | None]:
    """Return for each job that an action ended when it no longer counts.

    When exactly it did is not known: at the latest when the machine came to rest. None: it has
    not, and may do so just now.
    """
    if not action.step.isolates or not action.begun:
        return []
    if action.mode is DrainMode.NOW:
        jobs = max(action.jobs, int(action.job is not None))
    elif action.mode is DrainMode.DEADLINE and not _in_time(action, census.now):
        jobs = max(action.jobs, 1)
    else:
        return []
    if not _at_rest(action):
        return [None] * jobs
    end = Nanoseconds(max(action.at, action.changed_at) + census.limits.refill)
    return [end] * jobs if end > census.now else []


def _at_rest(action: Action) -> bool:
    return action.state is ActionState.DRAINED or not action.open


def _in_time(action: Action, now: Nanoseconds) -> bool:
    """Tell whether a drain with a deadline has killed nothing: it is ahead, or it came to rest."""
    rested = _at_rest(action) and action.changed_at < action.valid_until
    return now < action.valid_until or rested
