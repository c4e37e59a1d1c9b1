"""Events of recovery as the life of a job shows them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from forewarn.features.time_units import Nanoseconds
from forewarn.response.recovery.job_crash import FaultOrigin, JobCrash
from forewarn.response.recovery.job_run import JobRun, RunEnd
from forewarn.response.recovery.recovery_state import (
    CheckpointSaved,
    RecoveryEvent,
    RungBegun,
    StepMade,
)

__all__ = ["life_events"]


def life_events(runs: Sequence[JobRun]) -> Iterator[RecoveryEvent]:
    """Yield what happened to a job, as far as it matters for its recovery.

    A run that began after a checkpoint shows that the checkpoint had been saved.

    Parameters
    ----------
    runs : sequence of JobRun
        In order of time.
    """
    for number, run in enumerate(runs):
        if number:
            yield RungBegun(run.begin, run.rung, is_observed=True)
            yield from _resumed(run)
        yield from _saved(run)
        if run.steps:
            for step in (run.steps[0], run.steps[-1]):
                yield StepMade(Nanoseconds(step.time))
        if run.crash is not None:
            yield run.crash
        elif run.ended is RunEnd.FAILED:
            yield JobCrash(run.end, FaultOrigin.NOT_ONE, run.cause)


def _resumed(run: JobRun) -> Iterator[CheckpointSaved]:
    """Yield the checkpoint that a run must have loaded: its steps do not begin at the first."""
    if len(run.steps) > 1:
        first, second = run.steps[:2]
        before = 2 * first.number - second.number
        if before > 0:
            yield CheckpointSaved(run.begin, before)


def _saved(run: JobRun) -> Iterator[CheckpointSaved]:
    times = [step.time for step in run.steps]
    for save in run.saves:
        position = bisect_right(times, save.begin)
        if position:
            yield CheckpointSaved(Nanoseconds(save.end), run.steps[position - 1].number)
