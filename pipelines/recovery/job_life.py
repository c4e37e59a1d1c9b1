"""Life of a job, joined from its scheduler, its logs and its verdicts."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.diagnosis.loaded_job import LoadedJob, read_job
from forewarn.pipelines.diagnosis.site_context import SiteContext
from forewarn.pipelines.recovery.crash_evidence import crash_by_verdict
from forewarn.pipelines.recovery.launch_record import ATTEMPT_PREFIX, launched_runs
from forewarn.pipelines.recovery.logged_progress import LoggedProgress, read_progress
from forewarn.pipelines.recovery.scheduler_runs import ScheduledRun
from forewarn.response.policy.policy import Policy
from forewarn.response.recovery.job_run import JobRun, LoggedSave, ReportedStep, RunEnd
from forewarn.response.state.rung import Rung

__all__ = ["JobLifeError", "read_life", "runs_of_job"]

_LEAST_STALLED_SHARE = 0.8  # of the time that a save takes
_VERDICT_ENDS = {"crash": RunEnd.FAILED, "hang": RunEnd.FAILED, "ended": RunEnd.STOPPED}


class JobLifeError(InputError):
    """A job whose life cannot be accounted for; the message is one line."""


def read_life(
    job: Path | None,
    scheduled: Sequence[ScheduledRun],
    *,
    gpus: int | None = None,
    noticed: Sequence[int] = (),
    zone: dt.tzinfo = dt.UTC,
    policy: Policy | None = None,
) -> list[JobRun]:
    """Return the runs of a job.

    Parameters
    ----------
    job : Path or None
        Folder, log or archive, as of `forewarn diagnose run`. Each interruption is diagnosed from
        what was there at its time.
    scheduled : sequence of ScheduledRun
        Of this job; without any, the logs are one allocation in which it restarts.
    gpus : int, optional
        Of the job, where the scheduler does not tell; by default the number of ranks.
    noticed : sequence of int
        Times at which something stated that the job has trouble.
    zone : datetime.tzinfo
        Zone of times in logs that state none.
    policy : Policy, optional
        Tells what an Xid means for the job.

    Raises
    ------
    JobLifeError
        If there is neither a time in the logs nor a run of the scheduler, if two runs overlap, or
        if the number of GPUs is unknown.
    """
    attempts = [] if job is None else list(launched_runs(job))
    if job is None:
        progress, loaded = LoggedProgress(), None
    elif attempts:  # the launcher has diagnosed them
        progress, loaded = _progress_of_attempts(job, zone), None
    else:
        progress = read_progress(job, zone=zone)
        loaded = read_job(job, SiteContext(zone=zone))
    allocations = list(_launched(scheduled, attempts)) or [_only_allocation(progress, loaded)]
    for earlier, later in pairwise(allocations):
        if earlier.end is None or later.begin < earlier.end:
            raise JobLifeError(
                f"runs {earlier.job_id} and {later.job_id} overlap, expected those of one job."
            )
    runs = runs_of_job(allocations, progress, gpus=gpus, noticed=noticed)
    latest = 0 if loaded is None else loaded.judge()[0].at
    moments = [run.end for run in runs[:-1]] + [max(runs[-1].end, latest)]
    return [
        _with_cause(run, loaded, moment, policy) for run, moment in zip(runs, moments, strict=True)
    ]


def _progress_of_attempts(job: Path, zone: dt.tzinfo) -> LoggedProgress:
    """Return the progress of all attempts of a launcher whose logs are still there."""
    folders = sorted(path for path in job.glob(f"{ATTEMPT_PREFIX}*") if path.is_dir())
    parts = [read_progress(folder, zone=zone) for folder in folders]
    times = [time for part in parts for time in (part.first, part.last) if time is not None]
    return LoggedProgress(
        steps=tuple(step for part in parts for step in part.steps),
        saves=tuple(save for part in parts for save in part.saves),
        marks=tuple(mark for part in parts for mark in part.marks),
        first=min(times, default=None),
        last=max(times, default=None),
        ranks=max((part.ranks for part in parts), default=0),
    )


def _launched(
    scheduled: Sequence[ScheduledRun], attempts: Sequence[ScheduledRun]
) -> Iterator[ScheduledRun]:
    """Yield the runs of the scheduler, each divided into the attempts of a launcher within it."""
    if not scheduled:
        yield from attempts
    for run in scheduled:
        end = run.end
        inside = [a for a in attempts if run.begin <= a.begin and (end is None or a.begin < end)]
        for number, attempt in enumerate(inside):
            is_first, is_last = number == 0, number == len(inside) - 1
            limit = attempt.end if end is None else min(attempt.end or end, end)
            yield replace(
                attempt,
                job_id=run.job_id,
                begin=run.begin if is_first else attempt.begin,
                submitted=run.submitted if is_first else attempt.submitted,
                end=end if is_last else limit,
                gpus=attempt.gpus,
            )
        if not inside:
            yield run


def _only_allocation(progress: LoggedProgress, loaded: LoadedJob | None) -> ScheduledRun:
    if progress.first is None or progress.last is None or progress.first == progress.last:
        raise JobLifeError(
            "no run of the job is known: its logs state no times, and there is no file of runs."
        )
    kind = "" if loaded is None else loaded.judge()[1].kind
    ended = _VERDICT_ENDS.get(kind, RunEnd.COMPLETED)
    first, last = Nanoseconds(progress.first), Nanoseconds(progress.last)
    return ScheduledRun("", "", None, first, last, ended, "", 0, ())


def runs_of_job(
    allocations: Sequence[ScheduledRun],
    progress: LoggedProgress,
    *,
    gpus: int | None = None,
    noticed: Sequence[int] = (),
) -> list[JobRun]:
    """Divide allocations into runs: where the steps fall back, the job began again in place.

    Parameters
    ----------
    allocations : sequence of ScheduledRun
        At least one, in order, apart from each other.
    progress : LoggedProgress
    gpus, noticed
        As in `read_life`.

    Raises
    ------
    JobLifeError
        If the number of GPUs is unknown.
    """
    now = max(progress.last or 0, *(run.end or run.begin + 1 for run in allocations))
    times = [step.time for step in progress.steps]
    stalls = (_stalled_part(times, save) for save in progress.saves)
    saves = [save for save in stalls if save is not None]
    runs: list[JobRun] = []
    job_id: str | None = None
    for allocation in allocations:
        count = allocation.gpus or gpus or progress.ranks
        if not count:
            raise JobLifeError("the number of GPUs is unknown, expected --gpus.")
        end = Nanoseconds(now if allocation.end is None else allocation.end)
        steps = progress.steps[bisect_left(times, allocation.begin) : bisect_right(times, end)]
        how = Rung.REQUEUE if allocation.job_id == job_id else Rung.RESUBMIT
        whole = JobRun(
            begin=allocation.begin,
            end=end,
            gpus=count,
            ended=allocation.ended,
            submitted=allocation.submitted,
            rung=allocation.rung or how,
            cause=allocation.cause,
            machines=allocation.blamed,
            noticed=allocation.noticed,
            is_logged=_is_logged(progress, allocation.begin, end),
        )
        job_id = allocation.job_id
        for run in _divide(whole, steps, progress):
            inside = tuple(save for save in saves if run.begin <= save.begin < run.end)
            stated = run.noticed or _first_within(noticed, run.begin, run.end)
            runs.append(replace(run, saves=inside, noticed=stated))
    return runs


def _stalled_part(times: Sequence[int], save: LoggedSave) -> LoggedSave | None:
    """Return the part of a save without steps; None if training goes on while it is written.

    Ranks log some moments apart, so that a step may be logged after a save has begun.
    """
    inside = times[bisect_right(times, save.begin) : bisect_left(times, save.end)]
    parts = pairwise((save.begin, *inside, save.end))
    begin, end = max(parts, key=lambda part: part[1] - part[0])
    is_most = end - begin >= _LEAST_STALLED_SHARE * (save.end - save.begin)
    return LoggedSave(begin, end) if is_most else None


def _is_logged(progress: LoggedProgress, begin: int, end: int) -> bool:
    first, last = progress.first, progress.last
    return first is not None and last is not None and first <= end and last >= begin


def _first_within(times: Sequence[int], begin: int, end: int) -> Nanoseconds | None:
    return min((Nanoseconds(time) for time in times if begin < time <= end), default=None)


class _Cut(NamedTuple):
    """Where an allocation is divided: a run ends, and the next begins.

    Attributes
    ----------
    end, begin : int
    noticed : int or None
    """

    end: int
    begin: int
    noticed: int | None


def _divide(
    whole: JobRun, steps: Sequence[ReportedStep], progress: LoggedProgress
) -> Iterator[JobRun]:
    """Yield the runs within an allocation."""
    begin, rung, submitted = whole.begin, whole.rung, whole.submitted
    for cut in _cuts(whole, steps, progress):
        if not begin < cut.end <= cut.begin < whole.end:
            continue
        yield replace(
            whole,
            begin=begin,
            end=Nanoseconds(cut.end),
            ended=RunEnd.FAILED,
            submitted=submitted,
            rung=rung,
            cause="",
            steps=_growing(steps, begin, cut.end),
            noticed=None if cut.noticed is None else Nanoseconds(cut.noticed),
        )
        begin, rung, submitted = Nanoseconds(cut.begin), Rung.RESTART, Nanoseconds(cut.end)
    last = _growing(steps, begin, whole.end)
    yield replace(whole, begin=begin, rung=rung, submitted=submitted, steps=last)


def _cuts(whole: JobRun, steps: Sequence[ReportedStep], progress: LoggedProgress) -> list[_Cut]:
    """Return where the job began again: where a launcher says so, or where steps fall back.

    Without a launcher's line, the longest silence between the two steps divides the runs.
    """
    stated = [each for each in progress.restarts if whole.begin < each.begin < whole.end]
    cuts = [_Cut(each.begin, each.end, each.begin) for each in stated]
    for earlier, later in pairwise(steps):
        if later.number <= earlier.number and not any(
            earlier.time <= each.begin <= later.time for each in stated
        ):
            marks = progress.marks
            inside = marks[bisect_right(marks, earlier.time) : bisect_left(marks, later.time)]
            silences = pairwise((earlier.time, *inside, later.time))
            end, begin = max(silences, key=lambda silence: silence[1] - silence[0])
            cuts.append(_Cut(end, begin if inside else end, None))
    return sorted(cuts)


def _growing(steps: Sequence[ReportedStep], begin: int, end: int) -> tuple[ReportedStep, ...]:
    """Return the steps in a span, one at its end included, without those that fall back."""
    growing: list[ReportedStep] = []
    for step in steps:
        last = growing[-1] if growing else ReportedStep(begin, -1)
        if last.time < step.time <= end and step.number > last.number:
            growing.append(step)
    return tuple(growing)


def _with_cause(
    run: JobRun, loaded: LoadedJob | None, moment: int, policy: Policy | None
) -> JobRun:
    """Return a run that failed or is in trouble with the cause and the machines of the verdict.

    Parameters
    ----------
    run : JobRun
    loaded : LoadedJob or None
    moment : int
        As of which it is judged: its end, and of the last run the end of all that is there.
    policy : Policy or None
    """
    if loaded is None or run.ended not in (RunEnd.FAILED, RunEnd.RUNNING):
        return run
    snapshot, verdict = loaded.judge(moment)
    leader = snapshot.ranks.machine(0)
    crash = crash_by_verdict(verdict, run.end, leader=leader, policy=policy)
    if run.ended is RunEnd.RUNNING or crash is None:
        return replace(run, crash=crash)
    machines = [culprit.machine for culprit in verdict.culprits]
    named = tuple(dict.fromkeys(machine for machine in machines if machine))
    cause = verdict.cause or run.cause or verdict.kind
    return replace(run, cause=cause, machines=named, crash=crash)
