"""`forewarn study diagnosis`: how often the diagnosis identifies the right rank."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forewarn.evaluation.simulation.jobs.job_plan import JOB_FAULTS
from forewarn.features.time_units import SECOND, SECONDS_PER_DAY
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.loaded_job import LoadedJob, read_job
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.sandbox.simulate_job import simulate_job_to
from forewarn.pipelines.studies.baseline_rules import baseline_ranks
from forewarn.pipelines.studies.probe_agreement import probes_agree

__all__ = ["diagnosis_figures", "diagnosis_text", "hang_figures"]

_PARTS = ("logs", "flight", "stacks", "metrics", "kernel", "profiles", "exits")
_MIN_LOST_SECONDS, _MIN_LOST_SHARE = (
    30.0,
    0.05,
)  # minimum loss of a rank from which a culprit should be identified
_WATCHED_SECONDS = 900  # observed time of a healthy job
_CHECK_INTERVAL_SECONDS, _CHECKPOINT_INTERVAL_SECONDS = (
    150,
    30,
)  # time between two checks, in general and during checkpoints

# Removed job parts, and seconds after the start of a hang at which it is diagnosed.
_CHECK_DELAYS = {"all parts": ((), (150, 165, 180)), "without flight": (("flight",), (300, 330))}
_ZERO_COUNT_UPPER_LIMIT = 3.0  # 95 % upper limit of the mean of a count of 0


@dataclass(frozen=True, slots=True)
class _Answer:
    """The rank that a method identifies in a job.

    Attributes
    ----------
    method, fault : str
    ranks, seed : int
    is_due : bool
        Whether the rank loses enough that it should be identified.
    is_right, is_wrong : bool
        Both False: no culprit identified, or another kind of problem.
    says : str
        Result as text.
    """

    method: str
    fault: str
    ranks: int
    seed: int
    is_due: bool
    is_right: bool
    is_wrong: bool
    says: str


def diagnosis_figures(n_jobs: int, sizes: Sequence[int], seed: int) -> dict[str, Any]:
    """Simulate faulty and healthy jobs; count right and wrong culprits of each method.

    Parameters
    ----------
    n_jobs : int
        Number of faulty jobs, and of healthy jobs.
    sizes : sequence of int
        Numbers of ranks, used in turn.
    seed : int

    Returns
    -------
    dict
        By method, fault and number of ranks: number of jobs, and the shares with a right and a
        wrong culprit. Further entries: the same for hangs some time after their start, false hangs
        per job and day with the job-days, jobs with a wrong or missing culprit, and the final
        diagnosis of healthy jobs that is not `none`.
    """
    faults = [fault for fault in JOB_FAULTS if fault != "none"]
    answers: list[_Answer] = []
    episodes, accused = 0, list[str]()
    with progress_bar(2 * n_jobs, "simulated jobs", "job") as bar:
        for number in range(n_jobs):
            fault = faults[(number + number // len(sizes)) % len(faults)]
            answers += _faulty_job_answers(sizes[number % len(sizes)], fault, seed + number)
            bar.update()
            false, verdicts = _false_hangs(sizes[number % len(sizes)], seed + number)
            episodes, accused = episodes + false, accused + verdicts
            bar.update()
    return _figures(answers, episodes, n_jobs) | {"healthy_accused": accused}


def hang_figures(n_jobs: int, sizes: Sequence[int], seed: int) -> dict[str, Any]:
    """Simulate hangs and diagnose them a few minutes later, also without the flight recorder.

    Parameters
    ----------
    n_jobs : int
    sizes : sequence of int
        Numbers of ranks, used in turn.
    seed : int

    Returns
    -------
    dict
        As in `diagnosis_figures`: `soon` by age, and `faults` for the first age without recorder.
    """
    faults = [fault for fault, kind in JOB_FAULTS.items() if kind == "hang"]
    answers: list[_Answer] = []
    with progress_bar(n_jobs, "simulated jobs", "job") as bar:
        for number in range(n_jobs):
            fault = faults[(number + number // len(sizes)) % len(faults)]
            truth, reading = _simulated(sizes[number % len(sizes)], fault, seed + number)
            answers += _judge_soon(reading, truth, parse_moment(truth["end"]))
            bar.update()
    blind = [answer for answer in answers if answer.method.startswith("without flight, 300")]
    missed = [asdict(answer) for answer in blind if answer.is_due and not answer.is_right]
    return {"soon": _table(answers), "faults": _table(blind, "fault"), "missed": missed}


def _figures(answers: Sequence[_Answer], episodes: int, n_jobs: int) -> dict[str, Any]:
    ours = [answer for answer in answers if answer.method == "forewarn"]
    is_soon = [" s after" in answer.method for answer in answers]
    days = n_jobs * _WATCHED_SECONDS / SECONDS_PER_DAY
    return {
        "jobs": n_jobs,
        "methods": _table([a for a, soon in zip(answers, is_soon, strict=True) if not soon]),
        "faults": _table(ours, "fault"),
        "ranks": _table(ours, "ranks"),
        "soon": _table([a for a, soon in zip(answers, is_soon, strict=True) if soon]),
        "false_hangs": {
            "episodes": episodes,
            "job_days": days,
            "a_job_and_day": episodes / days,
            "at_most": (episodes + _ZERO_COUNT_UPPER_LIMIT * max(1.0, episodes**0.5)) / days,
        },
        "missed": [asdict(answer) for answer in ours if answer.is_due and not answer.is_right],
    }


def _simulated(size: int, fault: str, seed: int) -> tuple[dict[str, Any], LoadedJob]:
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job"
        return simulate_job_to(job, size, fault, seed), read_job(job)


def _faulty_job_answers(size: int, fault: str, seed: int) -> Iterator[_Answer]:
    truth, reading = _simulated(size, fault, seed)
    at = parse_moment(truth["end"])
    snapshot, verdict = reading.judge(at)
    yield _answer("forewarn", truth, verdict)
    for part in _PARTS:
        if part in reading.parts:
            less = reading.without((part,))
            yield _answer(f"without {part}", truth, less.judge(at)[1])
    if truth["kind"] == "hang":
        yield from _judge_soon(reading, truth, at)
    if truth["kind"] in ("hang", "crash"):
        for method, rank in baseline_ranks(snapshot, seed).items():
            yield _named(method, truth, rank)


def _judge_soon(reading: LoadedJob, truth: Mapping[str, Any], end: int) -> Iterator[_Answer]:
    """Diagnose a hang some time after its start, unless the job ends before."""
    began = parse_moment(truth["since"])
    for name, (without, ages) in _CHECK_DELAYS.items():
        for age in ages:
            if began + age * SECOND <= end:
                verdict = reading.without(without).judge(began + age * SECOND)[1]
                yield _answer(f"{name}, {age} s after", truth, verdict)


def _answer(method: str, truth: Mapping[str, Any], verdict: Diagnosis) -> _Answer:
    is_named = verdict.rank is not None or verdict.machine is not None
    if truth["rank"] is None:
        is_right = not is_named
    elif truth["fault"] == "machine":
        is_right = verdict.machine == truth["machine"]
    else:
        is_right = verdict.rank == truth["rank"]
    says = f"{verdict.kind}, rank {verdict.rank}, {verdict.machine}: {verdict.cause}"
    is_kind = verdict.kind == truth["kind"]
    return _judged(method, truth, is_kind and is_right, is_named and not is_right, says)


def _named(method: str, truth: Mapping[str, Any], rank: int | None) -> _Answer:
    right = rank is not None and rank == truth["rank"]
    return _judged(method, truth, right, rank is not None and not right, f"rank {rank}")


def _judged(method: str, truth: Mapping[str, Any], right: bool, wrong: bool, says: str) -> _Answer:
    is_due = truth["seconds_lost"] > _MIN_LOST_SECONDS or truth["share_of_step"] >= _MIN_LOST_SHARE
    job = truth["fault"], truth["ranks"], truth["seed"]
    return _Answer(method, *job, is_due, right, wrong, says[:300])


def _false_hangs(size: int, seed: int) -> tuple[int, list[str]]:
    """Count false hang periods of a healthy job; also return its last diagnosis.

    The job is checked every 150 s, and during checkpoints, where it makes no progress, every 30 s
    and just before their end.
    """
    truth, reading = _simulated(size, "none", seed)
    hangs = [
        probes_agree(reading, moment) and reading.judge(moment)[1].kind == "hang"
        for moment in _moments(truth)
    ]
    episodes = int((np.diff(np.array(hangs, dtype=np.int8), prepend=0) == 1).sum())
    last = reading.judge(parse_moment(truth["end"]))[1]
    says = f"{size} ranks, seed {seed}: {last.kind}, rank {last.rank}, {last.machine}"
    return episodes, [f"{says}: {last.cause}"] if last.kind != "none" else []


def _moments(truth: Mapping[str, Any]) -> list[int]:
    end = parse_moment(truth["end"])
    first = end - _WATCHED_SECONDS * SECOND
    moments = set(range(end, first, -_CHECK_INTERVAL_SECONDS * SECOND))
    for pause in truth["checkpoints"]:
        begin, until = (parse_moment(text) for text in pause)
        moments |= {
            *range(begin + 31 * SECOND, until, _CHECKPOINT_INTERVAL_SECONDS * SECOND),
            until - SECOND,
        }
    return sorted(moment for moment in moments if first < moment <= end)


def _table(answers: Sequence[_Answer], key: str = "method") -> dict[str, dict[str, float]]:
    table = {}
    for name in dict.fromkeys(getattr(answer, key) for answer in answers):
        rows = [each for each in answers if getattr(each, key) == name and each.is_due]
        if rows:
            right = float(np.mean([row.is_right for row in rows]))
            wrong = float(np.mean([row.is_wrong for row in rows]))
            table[str(name)] = {"jobs": len(rows), "right": right, "wrong": wrong}
    return table


def diagnosis_text(figures: Mapping[str, Any]) -> str:
    """Format the metrics for a terminal."""
    lines = [f"{'':<28}{'jobs':>6}{'right':>8}{'wrong':>8}"]
    for group, word in (("methods", ""), ("faults", ""), ("ranks", " ranks"), ("soon", "")):
        for name, row in figures.get(group, {}).items():
            text = f"{name}{word}"
            lines.append(f"{text:<28}{row['jobs']:>6}{row['right']:>8.2f}{row['wrong']:>8.2f}")
        lines.append("")
    if "false_hangs" in figures:
        false = figures["false_hangs"]
        lines.append(
            f"false hangs: {false['episodes']} in {false['job_days']:.2f} job-days, "
            f"{false['a_job_and_day']:.2f} per job and day (at most {false['at_most']:.2f} at 95 %)"
        )
        lines += [f"healthy, but diagnosed: {says}" for says in figures["healthy_accused"]]
    for missed in figures["missed"]:
        job = f"{missed['fault']}, {missed['ranks']} ranks, seed {missed['seed']}"
        lines.append(f"{'wrong' if missed['is_wrong'] else 'missed'}: {job}: {missed['says']}")
    return "\n".join(lines)
