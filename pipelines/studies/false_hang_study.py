"""`forewarn study false-hangs`: how often healthy jobs are diagnosed as hangs over days."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import chi2

from forewarn.evaluation.simulation.jobs.healthy_job import (
    HealthyJobRun,
    draw_healthy_job,
    run_healthy_job,
)
from forewarn.features.time_units import SECOND
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.sandbox.simulate_job import JOB_BEGIN, write_healthy_job
from forewarn.pipelines.studies.probe_agreement import probes_agree

__all__ = ["false_hang_figures", "false_hang_text", "watch_job"]

_JOB_HOURS = 6.0  # duration of a job
_QUIET_INTERVAL_SECONDS, _CHECK_INTERVAL_SECONDS = (
    60,
    600,
)  # time between two checks, without progress and otherwise
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """Result of watching a job.

    Attributes
    ----------
    looks, agreed : int
        Number of checks, and of checks at which probes agreed on a stall.
    episodes : tuple of (str, str)
        Activity of the job during each diagnosed hang, and the probes that caused it.
    """

    looks: int
    agreed: int
    episodes: tuple[tuple[str, str], ...]


def false_hang_figures(days: float, sizes: Sequence[int], seed: int) -> dict[str, Any]:
    """Watch healthy jobs of six hours and count the periods diagnosed as a hang.

    Parameters
    ----------
    days : float
        Job-days.
    sizes : sequence of int
        Numbers of ranks, used in turn.
    seed : int
    """
    n_jobs = max(1, round(days * 24 / _JOB_HOURS))
    watched, quiet = [], Counter[str]()
    with progress_bar(n_jobs, "healthy jobs", "job") as bar:
        for number in range(n_jobs):
            life = draw_healthy_job(sizes[number % len(sizes)], _JOB_HOURS, seed + number)
            lived = run_healthy_job(life)
            quiet.update(kind for kind, _, _ in lived.pauses)
            watched.append(watch_job(lived))
            bar.update()
    return _figures(watched, n_jobs * _JOB_HOURS / 24, quiet, seed)


def _figures(
    watched: Sequence[WatchedJob], days: float, quiet: Mapping[str, int], seed: int
) -> dict[str, Any]:
    episodes = [
        {"seed": seed + number, "during": during, "by": probes}
        for number, job in enumerate(watched)
        for during, probes in job.episodes
    ]
    low, high = _interval(len(episodes))
    return {
        "jobs": len(watched),
        "job_days": days,
        "quiet": dict(quiet),
        "looks": sum(job.looks for job in watched),
        "agreed": sum(job.agreed for job in watched),
        "episodes": episodes,
        "a_job_and_day": len(episodes) / days,
        "at_least": low / days,
        "at_most": high / days,
    }


def _interval(count: int) -> tuple[float, float]:
    """Return bounds of the mean of a Poisson count; each bound holds at 95 %.

    Examples
    --------
    >>> [round(bound, 2) for bound in _interval(0)]
    [0.0, 3.0]
    """
    low = chi2.ppf(1 - _CONFIDENCE, 2 * count) / 2 if count else 0.0
    return float(low), float(chi2.ppf(_CONFIDENCE, 2 * count + 2) / 2)


def watch_job(lived: HealthyJobRun) -> WatchedJob:
    """Check a job repeatedly: every minute and just before the end in periods without progress."""
    with tempfile.TemporaryDirectory() as folder:
        write_healthy_job(lived, Path(folder) / "job")
        reading = read_job(Path(folder) / "job")
    agreed, episodes, is_called = 0, list[tuple[str, str]](), False
    moments = _moments(lived)
    for seconds in moments:
        at = JOB_BEGIN + round(seconds * SECOND)
        still = probes_agree(reading, at)
        agreed += still
        verdict = reading.judge(at)[1] if still else None
        is_hang = verdict is not None and verdict.kind == "hang"
        if is_hang and not is_called and verdict is not None:
            idle = (probe.name for probe in verdict.probes if probe.state == "idle")
            episodes.append((_activity_at(lived, seconds), " and ".join(sorted(idle))))
        is_called = is_hang
    return WatchedJob(len(moments), agreed, tuple(episodes))


def _moments(lived: HealthyJobRun) -> list[float]:
    end = lived.job.plan.end
    moments = {
        float(second)
        for second in range(_CHECK_INTERVAL_SECONDS, int(end), _CHECK_INTERVAL_SECONDS)
    }
    for _, begin, until in lived.pauses:
        moments |= {
            begin + n
            for n in range(_QUIET_INTERVAL_SECONDS, int(until - begin), _QUIET_INTERVAL_SECONDS)
        }
        moments |= {until - 1.0, until + 1.0}
    return sorted(moment for moment in moments if 0.0 < moment <= end)


def _activity_at(lived: HealthyJobRun, seconds: float) -> str:
    return next((kind for kind, begin, end in lived.pauses if begin <= seconds <= end), "steps")


def false_hang_text(figures: Mapping[str, Any]) -> str:
    """Format the metrics for a terminal."""
    quiet = ", ".join(f"{count} x {kind}" for kind, count in sorted(figures["quiet"].items()))
    lines = [
        f"{figures['jobs']} healthy jobs, {figures['job_days']:.1f} job-days: {quiet}",
        f"{figures['looks']} checks; at {figures['agreed']} of them probes agreed on a stall",
        f"false hangs: {len(figures['episodes'])}, {figures['a_job_and_day']:.3f} per job and "
        f"day ({figures['at_least']:.3f} to {figures['at_most']:.3f}, each bound at 95 %)",
    ]
    lines += [
        f"seed {row['seed']}: during {row['during']}, by {row['by']}" for row in figures["episodes"]
    ]
    return "\n".join(lines)
