"""`forewarn study diagnosis`: simulated jobs, and how often the right rank is named."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forewarn.evaluation.simulation.jobs.plan import FAULTS
from forewarn.features.diagnosis.recorder_dump import COMPLETED
from forewarn.pipelines.diagnosis.flight import FlightPart
from forewarn.pipelines.diagnosis.logs import LogsPart
from forewarn.pipelines.diagnosis.part import Case
from forewarn.pipelines.diagnosis.run import Diagnosed, diagnose
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.sandbox.simulate_job import simulate_job_to

__all__ = ["diagnosis_figures", "diagnosis_text"]

_PARTS = ("logs", "flight", "stacks", "metrics", "kernel", "profiles", "exits")
_LEAST_SECONDS, _LEAST_SHARE = 30.0, 0.05  # what a rank has to lose for a name to be wanted
_WATCHED, _EVERY = 600, 60  # seconds of a healthy job that are looked at, and how often
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class _Answer:
    """Whom a method names in a job.

    Attributes
    ----------
    method, fault : str
    is_due : bool
        The rank loses enough for a name to be wanted.
    is_right, is_wrong : bool
        Neither: nobody was named, or another kind.
    """

    method: str
    fault: str
    is_due: bool
    is_right: bool
    is_wrong: bool


def diagnosis_figures(n_jobs: int, sizes: Sequence[int], seed: int) -> dict[str, Any]:
    """Simulate faulty and healthy jobs and count whom we, and simple rules, name.

    Parameters
    ----------
    n_jobs : int
        Faulty ones, and as many healthy ones.
    sizes : sequence of int
        Numbers of ranks, taken in turn.
    seed : int

    Returns
    -------
    dict
        By method and by fault: jobs, the share named right and the share named wrong; and false
        hangs a job and day, in how many job-days.
    """
    faults = [fault for fault in FAULTS if fault != "none"]
    answers: list[_Answer] = []
    episodes = 0
    with progress_bar(2 * n_jobs, "simulated jobs", "job") as bar:
        for number in range(n_jobs):
            size = sizes[number % len(sizes)]
            answers += _faulty(size, faults[number % len(faults)], seed + number)
            bar.update()
            episodes += _false_hangs(size, seed + number)
            bar.update()
    days = n_jobs * _WATCHED / _DAY
    return {
        "jobs": n_jobs,
        "methods": _table(answers, "method"),
        "faults": _table([answer for answer in answers if answer.method == "forewarn"], "fault"),
        "false_hangs": {"episodes": episodes, "job_days": days, "a_job_and_day": episodes / days},
    }


def _faulty(size: int, fault: str, seed: int) -> Iterator[_Answer]:
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job"
        truth = simulate_job_to(job, size, fault, seed)
        at = parse_moment(truth["end"])
        whole = diagnose(job, at=at)
        yield _answer("forewarn", truth, whole)
        for part in _PARTS:
            if (job / part).exists() or (job / f"{part}.csv").exists():
                yield _answer(f"without {part}", truth, diagnose(job, at=at, without=(part,)))
        if truth["kind"] in ("hang", "crash"):
            for method, rank in _baselines(whole.case).items():
                yield _named(method, truth, rank)


def _answer(method: str, truth: Mapping[str, Any], diagnosed: Diagnosed) -> _Answer:
    verdict = diagnosed.diagnosis
    is_kind = verdict.kind == truth["kind"]
    if truth["rank"] is None:
        is_named = verdict.rank is not None or verdict.machine is not None
        return _judged(method, truth, is_kind and not is_named, is_named)
    right = verdict.rank == truth["rank"]
    if truth["fault"] == "machine":
        right = verdict.machine == truth["machine"]
    is_named = verdict.rank is not None or verdict.machine is not None
    return _judged(method, truth, is_kind and right, is_named and not right)


def _named(method: str, truth: Mapping[str, Any], rank: int | None) -> _Answer:
    right = rank is not None and rank == truth["rank"]
    return _judged(method, truth, right, rank is not None and not right)


def _judged(method: str, truth: Mapping[str, Any], right: bool, wrong: bool) -> _Answer:
    is_due = truth["seconds_lost"] > _LEAST_SECONDS or truth["share_of_step"] >= _LEAST_SHARE
    return _Answer(method, truth["fault"], is_due, right, wrong)


def _baselines(case: Case) -> dict[str, int | None]:
    """Return whom simple rules name: the oldest log line, the lowest completed number."""
    logs, flight = case.parts.get("logs"), case.parts.get("flight")
    return {
        "oldest log line": _oldest_line(logs) if isinstance(logs, LogsPart) else None,
        "lowest completed number": _lowest(flight) if isinstance(flight, FlightPart) else None,
    }


def _oldest_line(logs: LogsPart) -> int | None:
    times = [
        (log.scan.last, log.file.rank)
        for log in logs.logs
        if log.scan is not None and log.scan.last is not None and log.file.rank is not None
    ]
    return min(times)[1] if times else None


def _lowest(flight: FlightPart) -> int | None:
    """Return the rank that has completed the fewest operations of any group, the first of many."""
    entries = flight.operations.entries
    done = entries[(entries["state"] == COMPLETED) & ~entries["is_p2p"]]
    last = {
        rank: int(done["seq"][done["rank"] == rank].max(initial=0))
        for rank in np.unique(entries["rank"]).tolist()
    }
    return min(last, key=lambda rank: (last[rank], rank)) if last else None


def _false_hangs(size: int, seed: int) -> int:
    """Count the spans in which a healthy job is called hanging, looked at minute by minute."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job"
        truth = simulate_job_to(job, size, "none", seed)
        end = parse_moment(truth["end"])
        ages = range(_WATCHED - _EVERY, -1, -_EVERY)
        kinds = [diagnose(job, at=end - age * 10**9).diagnosis.kind for age in ages]
    hangs = np.array([kind == "hang" for kind in kinds], dtype=np.int8)
    return int((np.diff(hangs, prepend=0) == 1).sum())


def _table(answers: Sequence[_Answer], key: str) -> dict[str, dict[str, float]]:
    table = {}
    for name in dict.fromkeys(getattr(answer, key) for answer in answers):
        rows = [each for each in answers if getattr(each, key) == name and each.is_due]
        if rows:
            right = float(np.mean([row.is_right for row in rows]))
            wrong = float(np.mean([row.is_wrong for row in rows]))
            table[str(name)] = {"jobs": len(rows), "right": right, "wrong": wrong}
    return table


def diagnosis_text(figures: Mapping[str, Any]) -> str:
    """Write the figures as a person reads them."""
    lines = [f"{'':<26}{'jobs':>6}{'right':>8}{'wrong':>8}"]
    for group in ("methods", "faults"):
        for name, row in figures[group].items():
            lines.append(f"{name:<26}{row['jobs']:>6}{row['right']:>8.2f}{row['wrong']:>8.2f}")
        lines.append("")
    false = figures["false_hangs"]
    lines.append(
        f"false hangs: {false['episodes']} in {false['job_days']:.2f} job-days, "
        f"{false['a_job_and_day']:.2f} a job and day"
    )
    return "\n".join(lines)
