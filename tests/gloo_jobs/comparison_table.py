"""Comparison of the culprits that forewarn and other methods identify in real gloo jobs.

    .ci/setup_torch && .venv/bin/python -m tests.gloo_jobs.comparison_table [--runs 10] [--keep DIR]

Runs jobs of two machines (torchrun agents) with four ranks each for each of eight faults, with
tensor groups of 2 and data groups of 4, and another rank and step in each run. A hang is diagnosed
twice: nine minutes after it started, and after its time-out has ended it. With --keep the folders
are kept and only diagnosed again. Exits with 1 if forewarn identified a wrong rank.

With --in-real-time only hangs are run; each lasts two and a half minutes, is sampled five times,
and
is diagnosed as of the last sample. With --missing-dumps each dump of the slow jobs is omitted in
turn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.gloo_jobs.baseline_methods import oldest_line, torchfrtrace
from tests.gloo_jobs.job import CRASHES, FAULTS, HANGS, LOCAL, Plan, run_job, watch_hang
from tests.gloo_jobs.launcher_report import root_cause
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.features.time_units import SECOND
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.runtime.timestamps import parse_moment

LATER = timedelta(minutes=9)  # a log is silent after 8
METHODS = ("forewarn, while it hangs", "forewarn, at the end", "torchrun", "torchfrtrace", "log")


@dataclass(frozen=True)
class Run:
    """A run and its ground truth."""

    plan: Plan
    job: Path
    truth: dict[str, Any]


def run(fault: str, seed: int, folder: Path, programs: Path) -> Run:
    """Run a job, or return the existing run."""
    plan, job = Plan.drawn(fault, seed), folder / f"{fault}-{seed}"
    note = job.with_suffix(".json")
    if not note.exists():
        for path in folder.glob(f"{job.name}*"):
            shutil.rmtree(path)
        reported = run_job(plan, job, programs)
        seen = job if fault in (*CRASHES, "slow") else job.with_suffix(".hung")
        by_trace, error = torchfrtrace(seen, programs) if (seen / "flight").exists() else ([], "")
        truth = {
            **{"plan": asdict(plan), "seen_at": datetime.now(UTC).isoformat()},
            **{"torchrun": root_cause(reported), "torchfrtrace": by_trace, "error": error},
        }
        note.write_text(json.dumps(truth))
    return Run(plan, job, json.loads(note.read_text()))


def names(run: Run) -> Iterator[tuple[str, list[int] | None]]:
    """Yield the ranks that each method identifies; None if it gives no answer."""
    hung, fault = run.job.with_suffix(".hung"), run.plan.fault
    if hung.exists():
        yield METHODS[0], forewarn_names(hung, "hang", later=True)
    elif fault == "slow":
        yield METHODS[0], forewarn_names(run.job, "slow")
    if fault != "slow":
        yield METHODS[1], forewarn_names(run.job, "crash")
        yield METHODS[2], run.truth["torchrun"]
    if fault not in CRASHES:
        yield METHODS[3], run.truth["torchfrtrace"]
    oldest = oldest_line(hung if hung.exists() else run.job)
    yield METHODS[4], [] if oldest is None else [oldest]


def forewarn_names(job: Path, kind: str, *, later: bool = False) -> list[int] | None:
    """Return the ranks that forewarn identifies; -1 for a wrong kind or machine, None without
    verdict.
    """
    at = None
    if later:
        seen = max(path.stat().st_mtime for path in (job / "stacks").iterdir())
        at = parse_moment((datetime.fromtimestamp(seen, UTC) + LATER).isoformat())
    verdict = diagnose(job, at=at).diagnosis
    if verdict.kind == "none":
        return None
    if verdict.kind != kind:
        return [-1]
    if verdict.rank is None:
        return [] if verdict.machine is None else [-1]
    return [verdict.rank]


def verdict_of(named: list[int] | None, truth: int | None) -> str:
    """Compare an answer with the truth; several ranks including the right one count as "none"."""
    if named is None:
        return "none"
    if named == ([] if truth is None else [truth]):
        return "right"
    return "none" if not named or truth in named else "wrong"


def print_table(runs: Iterable[Run]) -> int:
    """Print one row per fault, and return how often forewarn was wrong."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    errors: Counter[str] = Counter()
    for result in runs:
        errors[result.truth["error"]] += 1
        for method, named in names(result):
            word = verdict_of(named, result.plan.truth)
            if method == "torchfrtrace" and result.truth["error"]:
                word = "none"
            counts[result.plan.fault, method][word] += 1
            if word != "right" and method in METHODS[:2]:
                print(f"{result.job.name}: {method}: {named}, truth {result.plan.truth}")
    print(f"\n| fault | {' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}")
    for fault in FAULTS:
        cells = [_cell(counts[fault, method]) for method in METHODS]
        print(f"| {fault} | {' | '.join(cells)} |")
    print("\nright / none / wrong; two groups in opposite order have no culprit")
    for error, number in errors.items():
        if error:
            print(f"torchfrtrace, {number} runs: {error}")
    return sum(counts[fault, method]["wrong"] for fault in FAULTS for method in METHODS[:2])


def print_missing(runs: Iterable[Run]) -> int:
    """Diagnose slow jobs without one of their dumps; return how often another machine is
    identified.
    """
    words: Counter[str] = Counter()
    for result in runs:
        for dump in sorted((result.job / "flight").iterdir()):
            aside = result.job / dump.name
            dump.rename(aside)
            verdict = diagnose(result.job).diagnosis
            aside.rename(dump)
            machine = f"node-{result.plan.rank // LOCAL}"
            is_right = verdict.rank in (None, result.plan.rank)
            named = "rank" if verdict.rank is not None else "machine" if verdict.machine else "none"
            is_right = is_right and verdict.machine in (None, machine)
            words[named if is_right else "wrong"] += 1
    print(f"slow jobs without one dump, culprits: {dict(words)}")
    return words["wrong"]


def _in_real_time(options: argparse.Namespace, folder: Path, programs: Path) -> int:
    """Run hangs in real time and print the verdicts; return the number of wrong culprits."""
    wrong = 0
    for fault in (fault for fault in HANGS if fault in options.faults):
        for seed in range(options.first, options.first + options.runs):
            plan, job = Plan.drawn(fault, seed), folder / f"{fault}-{seed}-real-time"
            if not job.exists():
                watch_hang(plan, job, programs)
            result = diagnose(job)
            verdict, since = result.diagnosis, result.diagnosis.since or 0
            named = verdict_of(forewarn_names(job, "hang"), plan.truth)
            wrong += named == "wrong"
            after = ((verdict.detected_at or 0) - since) / SECOND
            states = ", ".join(f"{probe.name} {probe.state}" for probe in verdict.probes)
            print(f"{job.name}: {verdict.kind}, {named}, sure after {after:.0f} s; {states}")
    return wrong


def _cell(count: Counter[str]) -> str:
    if not count:
        return "-"
    return " / ".join(str(count[word]) for word in ("right", "none", "wrong"))


def main() -> None:
    """Run the missing jobs and diagnose all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--in-real-time", action="store_true")
    parser.add_argument("--missing-dumps", action="store_true")
    options = parser.parse_args()
    programs = torch_programs()
    if programs is None:
        sys.exit("no environment with torch: make it by .ci/setup_torch")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        if options.in_real_time:
            sys.exit(_in_real_time(options, folder.resolve(), programs))
        runs = []
        for seed in range(options.first, options.first + options.runs):
            for fault in options.faults:
                runs.append(run(fault, seed, folder.resolve(), programs))
                print(f"{fault} {seed}", file=sys.stderr, flush=True)
        wrong = print_table(runs)
        if options.missing_dumps:
            wrong += print_missing([run for run in runs if run.plan.fault == "slow"])
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
