"""Lost training time: every moment of a job's life is useful, or is lost for a stated reason.

The loss by an interruption is the time to detect it, to schedule and to initialise the next run,
and to recompute the steps since the checkpoint (Baidu Baige, section 2). Saving checkpoints costs
time, too.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from forewarn.response.recovery.job_run import JobRun, ReportedStep, RunEnd

__all__ = ["LostTime", "TimeUse", "UsedSpan", "account_for"]

_STALL_FACTOR = 3  # times the usual duration; more between two lines of progress is a wait


class TimeUse(StrEnum):
    """What a span of a job's life was used for."""

    USEFUL = "useful"
    """Steps that were made for the first time."""
    DETECT = "detect"
    """From the last step to the moment at which the trouble was stated."""
    SCHEDULE = "schedule"
    """From then on to the start of the next run."""
    INITIALISE = "initialise"
    """From the start of a run to its first step: imports, connections, load of the checkpoint."""
    RECOMPUTE = "recompute"
    """Steps that an earlier run had made."""
    SAVE = "save"
    """A checkpoint is saved and no step is made."""
    WAIT = "wait"
    """No step for longer than usual, in a run that went on by itself."""
    UNKNOWN = "unknown"
    """No log says."""


class UsedSpan(NamedTuple):
    """A span of a job's life.

    Attributes
    ----------
    begin, end : int
    use : TimeUse
    gpus : int
        That the job had, or waited for.
    interruption : int or None
        Number of the run whose end made it necessary; None if no interruption did.
    """

    begin: int
    end: int
    use: TimeUse
    gpus: int
    interruption: int | None

    @property
    def gpu_time(self) -> int:
        """Nanoseconds times GPUs."""
        return (self.end - self.begin) * self.gpus


@dataclass(frozen=True, slots=True)
class LostTime:
    """Account of a job's life.

    Attributes
    ----------
    runs : tuple of JobRun
    spans : tuple of UsedSpan
        Without gaps, from the start of the first run to the end of the last.
    """

    runs: tuple[JobRun, ...]
    spans: tuple[UsedSpan, ...]

    @property
    def elapsed(self) -> int:
        """Nanoseconds times GPUs from the start of the first run to the end of the last."""
        ends = [run.begin for run in self.runs[1:]] + [self.runs[-1].end]
        return sum((end - run.begin) * run.gpus for run, end in zip(self.runs, ends, strict=True))

    def totals(self) -> dict[TimeUse, int]:
        """Return nanoseconds times GPUs by use."""
        totals = dict.fromkeys(TimeUse, 0)
        for span in self.spans:
            totals[span.use] += span.gpu_time
        return totals

    @property
    def effective_share(self) -> float:
        """Useful time by elapsed time (ETTR), between 0 and 1; unknown time counts as lost."""
        return self.totals()[TimeUse.USEFUL] / self.elapsed

    @property
    def interruptions(self) -> tuple[int, ...]:
        """Numbers of the runs whose end was an interruption: they failed, or another followed."""
        last = len(self.runs) - 1
        return tuple(
            number
            for number, run in enumerate(self.runs)
            if run.ended is RunEnd.FAILED or (number < last and run.ended is RunEnd.STOPPED)
        )


class _Use(NamedTuple):
    begin: int
    end: int
    use: TimeUse


def account_for(runs: Sequence[JobRun]) -> LostTime:
    """Account for the life of a job.

    Parameters
    ----------
    runs : sequence of JobRun
        In order of time, at least one, without overlap. Between two runs the GPUs of the earlier
        one count: the job would have used them.

    Raises
    ------
    ValueError
        If there is no run, or if two overlap.

    Examples
    --------
    Two GPUs, a step each 10 s; the run fails after step 2, and the next begins 5 s later, needs 5 s
    to the start of its first step and repeats step 2.

    >>> steps = lambda *ends: tuple(ReportedStep(time, number) for time, number in ends)
    >>> first = JobRun(begin=0, end=25, gpus=2, ended=RunEnd.FAILED, steps=steps((10, 1), (20, 2)))
    >>> second = JobRun(
    ...     begin=30, end=55, gpus=2, ended=RunEnd.COMPLETED, steps=steps((45, 2), (55, 3))
    ... )
    >>> {use.value: time for use, time in account_for([first, second]).totals().items() if time}
    {'useful': 60, 'detect': 10, 'schedule': 10, 'initialise': 10, 'recompute': 20}
    """
    if not runs:
        raise ValueError("`runs` must have at least one run.")
    spans: list[UsedSpan] = []
    furthest = 0
    interruption: int | None = None
    for number, run in enumerate(runs):
        if number:
            previous = runs[number - 1]
            interruption = None if previous.ended is RunEnd.COMPLETED else number - 1
            spans += _label(_gap(previous, run), previous.gpus, interruption)
        ends_badly = run.ended in (RunEnd.FAILED, RunEnd.STOPPED)
        at_end = number if ends_badly else None
        for use in _with_saves(_uses_of_run(run, furthest), run):
            owner = interruption if use.use in (TimeUse.INITIALISE, TimeUse.RECOMPUTE) else None
            owner = at_end if use.use in (TimeUse.DETECT, TimeUse.SCHEDULE) else owner
            spans += _label([use], run.gpus, owner)
        furthest = max(furthest, *(step.number for step in run.steps), 0)
    return LostTime(tuple(runs), tuple(_merge(spans)))


def _label(uses: Iterable[_Use], gpus: int, interruption: int | None) -> Iterator[UsedSpan]:
    return (
        UsedSpan(use.begin, use.end, use.use, gpus, interruption)
        for use in uses
        if use.end > use.begin
    )


def _merge(spans: Iterable[UsedSpan]) -> Iterator[UsedSpan]:
    """Yield spans of one use that follow each other as one."""
    last: UsedSpan | None = None
    for span in spans:
        if last is not None and span[2:] == last[2:]:
            last = last._replace(end=span.end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _gap(previous: JobRun, run: JobRun) -> Iterator[_Use]:
    """Yield the uses of the time between two runs.

    Before the next run was asked for, the trouble was not noticed, unless something stated it.
    """
    if run.begin < previous.end:
        raise ValueError(f"runs must not overlap: one begins before the end at {previous.end}.")
    requested = previous.end if run.submitted is None else run.submitted
    noticed = requested if previous.noticed is None else min(requested, previous.noticed)
    middle = min(max(noticed, previous.end), run.begin)
    is_failed = previous.ended is RunEnd.FAILED
    yield _Use(previous.end, middle, TimeUse.DETECT if is_failed else TimeUse.SCHEDULE)
    yield _Use(middle, run.begin, TimeUse.SCHEDULE)


def _uses_of_run(run: JobRun, furthest: int) -> Iterator[_Use]:
    """Yield what a run was used for, as if it had saved nothing."""
    if not run.steps:
        yield from _uses_without_steps(run)
        return
    duration, increment = _usual_step(run.steps)
    first, last = run.steps[0], run.steps[-1]
    before = max(0, first.number - increment)
    work_begin = max(run.begin, first.time - round(duration * (first.number - before)))
    yield _Use(run.begin, work_begin, TimeUse.INITIALISE)
    yield from _work(work_begin, first.time, before, first.number, furthest)
    for earlier, later in pairwise(run.steps):
        usual = round(duration * (later.number - earlier.number))
        is_stall = later.time - earlier.time > _STALL_FACTOR * usual
        resumed = later.time - usual if is_stall else earlier.time
        yield _Use(earlier.time, resumed, TimeUse.WAIT)
        yield from _work(resumed, later.time, earlier.number, later.number, furthest)
    yield from _tail(run, last, round(duration * increment))


def _uses_without_steps(run: JobRun) -> Iterator[_Use]:
    """Yield the uses of a run that reported no step: without a log, it may have made some."""
    noticed = _noticed(run, run.begin)
    use = TimeUse.INITIALISE if run.is_logged else TimeUse.UNKNOWN
    yield _Use(run.begin, noticed, use)
    yield _Use(noticed, run.end, TimeUse.SCHEDULE)


def _noticed(run: JobRun, since: int) -> int:
    """Return when the trouble of a run was stated, not before `since`; at its end if it was not."""
    return run.end if run.noticed is None else min(max(run.noticed, since), run.end)


def _usual_step(steps: Sequence[ReportedStep]) -> tuple[float, int]:
    """Return the usual nanoseconds of a step, and the least number of steps between two lines."""
    if len(steps) < 2:
        return 0.0, 1
    pairs = [(later.time - earlier.time, later.number - earlier.number)
             for earlier, later in pairwise(steps)]  # fmt: skip
    duration = statistics.median(time / count for time, count in pairs)
    return duration, min(count for _, count in pairs)


def _work(begin: int, end: int, before: int, after: int, furthest: int) -> Iterator[_Use]:
    """Yield the steps after `before` up to `after`: those up to `furthest` are done again."""
    if after == before:  # a log that begins with step 0
        yield _Use(begin, end, TimeUse.INITIALISE)
        return
    again = min(max(furthest - before, 0), after - before)
    middle = begin + (end - begin) * again // (after - before)
    yield _Use(begin, middle, TimeUse.RECOMPUTE)
    yield _Use(middle, end, TimeUse.USEFUL)


def _tail(run: JobRun, last: ReportedStep, usual: int) -> Iterator[_Use]:
    """Yield the uses of the time after the last step; what it began is not counted as useful."""
    if run.ended is RunEnd.RUNNING:
        is_usual = run.end - last.time <= _STALL_FACTOR * usual
        yield _Use(last.time, run.end, TimeUse.USEFUL if is_usual else TimeUse.WAIT)
    elif run.ended is RunEnd.COMPLETED:
        yield _Use(last.time, run.end, TimeUse.UNKNOWN)
    else:
        noticed = _noticed(run, last.time)
        is_fault = run.ended is RunEnd.FAILED
        yield _Use(last.time, noticed, TimeUse.DETECT if is_fault else TimeUse.SCHEDULE)
        yield _Use(noticed, run.end, TimeUse.SCHEDULE)


def _with_saves(uses: Iterable[_Use], run: JobRun) -> Iterator[_Use]:
    """Yield the uses with the saves cut out of them."""
    begins, ends = [save.begin for save in run.saves], [save.end for save in run.saves]
    for use in uses:
        position = use.begin
        first, last = bisect_right(ends, use.begin), bisect_left(begins, use.end)
        for begin, end in run.saves[first:last]:
            begin, end = max(begin, position), min(end, use.end)
            if end > begin:
                yield _Use(position, begin, use.use)
                yield _Use(begin, end, TimeUse.SAVE)
                position = end
        yield _Use(position, use.end, use.use)
