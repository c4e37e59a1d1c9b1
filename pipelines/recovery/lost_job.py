"""`forewarn lost`: what interruptions cost a job, or the jobs of a fleet."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from forewarn.features.errors import InputError
from forewarn.pipelines.recovery.job_life import JobLifeError, read_life
from forewarn.pipelines.recovery.lost_report import fleet_report, job_report
from forewarn.pipelines.recovery.scheduler_runs import ScheduledRun, read_scheduled_runs
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.response.recovery.lost_time import account_for

__all__ = [
    "FindingTimes",
    "ledger_findings",
    "lost_by_fleet",
    "lost_by_job",
    "names_of_job",
    "scheduled_runs_of",
]

FindingTimes: TypeAlias = Callable[[Collection[str]], Sequence[int]]


def _no_findings(_: Collection[str]) -> Sequence[int]:
    return ()


@contextmanager
def ledger_findings(config: Path | None) -> Iterator[FindingTimes]:
    """Open the ledger of a configuration of `respond`; without one, there are no findings.

    Raises
    ------
    SettingsError, LedgerError
        If the configuration or the ledger cannot be read.
    """
    if config is None:
        yield _no_findings
        return
    # Only this needs what [server] installs.
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite

    with ResponseSite.from_config(config).ledger_to_look_at() as ledger:
        yield ledger.finding_times


def lost_by_job(
    job: Path,
    runs: Path | None = None,
    *,
    gpus: int | None = None,
    finding_times: FindingTimes = _no_findings,
    zone: dt.tzinfo = dt.UTC,
) -> dict[str, Any]:
    """Return the report of a job.

    Parameters
    ----------
    job : Path
        Folder, log or archive.
    runs : Path, optional
        File of the scheduler with the runs of this job alone, or of several, of which those count
        whose name or number is that of the folder.
    gpus, zone
        As in `read_life`.
    finding_times : callable
        Returns when the ledger's findings about jobs of some names were first reported. The first
        one in a run ends its detection.

    Raises
    ------
    InputError
        If the job or the file cannot be used.
    """
    name = job.resolve().name
    chosen = scheduled_runs_of(name, runs, zone=zone)
    noticed = finding_times(names_of_job(name, chosen))
    life = read_life(job, chosen, gpus=gpus, noticed=noticed, zone=zone)
    return job_report(name, account_for(life))


def scheduled_runs_of(name: str, runs: Path | None, *, zone: dt.tzinfo) -> list[ScheduledRun]:
    """Return the runs of a job in a file of the scheduler; without a file there are none.

    Raises
    ------
    InputError
        If the file cannot be used, or has no run of this job.
    """
    scheduled = [] if runs is None else read_scheduled_runs(runs, zone=zone)
    chosen = _runs_of(name, scheduled)
    if runs is not None and not chosen:
        raise JobLifeError(f"{runs}: has no run of the job {name}, found {_names(scheduled)}.")
    return chosen


def names_of_job(name: str, runs: Sequence[ScheduledRun]) -> frozenset[str]:
    """Return the names by which findings may call a job."""
    of_scheduler = (each for run in runs for each in (run.job_id, run.name) if each)
    return frozenset((name, name.partition(".")[0].removeprefix("slurm-"), *of_scheduler))


def _runs_of(name: str, scheduled: Sequence[ScheduledRun]) -> list[ScheduledRun]:
    """Return the runs of a job: all if they have one name, else those that fit its folder."""
    if len({run.name or run.job_id for run in scheduled}) <= 1:
        return list(scheduled)
    stem = name.partition(".")[0]
    return [run for run in scheduled if stem in (run.name, run.job_id, f"slurm-{run.job_id}")]


def _names(scheduled: Sequence[ScheduledRun]) -> str:
    names = sorted({run.name or run.job_id for run in scheduled})
    return ", ".join(names[:5]) + (" and others" if len(names) > 5 else "") if names else "no run"


def lost_by_fleet(
    folder: Path,
    runs: Path | None = None,
    *,
    gpus: int | None = None,
    finding_times: FindingTimes = _no_findings,
    zone: dt.tzinfo = dt.UTC,
) -> dict[str, Any]:
    """Return the report of all jobs: the folders and logs in a folder, and the scheduler's.

    A job of the scheduler without a folder or log counts as unknown time.

    Parameters
    ----------
    folder : Path
    runs, gpus, finding_times, zone
        As in `lost_by_job`.

    Raises
    ------
    InputError
        If the folder or the file of runs cannot be used. Jobs that cannot be read are listed.
    """
    if not folder.is_dir():
        raise JobLifeError(f"{folder}: is no folder, expected one with a folder or log a job.")
    scheduled = [] if runs is None else read_scheduled_runs(runs, zone=zone)
    paths: dict[str, Path | None] = {
        path.name: path for path in sorted(folder.iterdir()) if not path.name.startswith(".")
    }
    by_name = _jobs_of_scheduler(scheduled, paths)
    lives, unread = {}, {}
    with progress_bar(len(by_name), "reading jobs", "job") as bar:
        for name, own in by_name.items():
            try:
                noticed = finding_times(names_of_job(name, own))
                life = read_life(paths.get(name), own, gpus=gpus, noticed=noticed, zone=zone)
                lives[name] = account_for(life)
            except InputError as error:
                unread[name] = str(error)
            bar.update()
    return fleet_report(lives, unread)


def _jobs_of_scheduler(
    scheduled: Sequence[ScheduledRun], paths: Mapping[str, Path | None]
) -> dict[str, list[ScheduledRun]]:
    """Return the runs by job: by the folder that fits, else by number."""
    stems = {name.partition(".")[0]: name for name in paths}
    jobs: defaultdict[str, list[ScheduledRun]] = defaultdict(list)
    for run in scheduled:
        names = (run.job_id, f"slurm-{run.job_id}", run.name)
        jobs[next((stems[name] for name in names if name in stems), run.job_id)].append(run)
    return {name: jobs[name] for name in dict.fromkeys((*paths, *jobs))}
