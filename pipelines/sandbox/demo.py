"""`forewarn demo`: all steps once, on a simulated fleet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from forewarn.evaluation.prediction.metrics.list_review import review_metrics
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.evaluation.simulation.fleet.defects import MECHANISMS, SUDDEN
from forewarn.features.records.record_table import DAY
from forewarn.pipelines.at_risk.at_risk_list import AtRiskList, list_summary
from forewarn.pipelines.at_risk.first_checks import first_checks
from forewarn.pipelines.at_risk.fleet_scoring import load_predictor, score_with
from forewarn.pipelines.at_risk.review_report import review_lists, review_text
from forewarn.pipelines.backtest.backtest_run import run_backtest, scores_file
from forewarn.pipelines.backtest.backtest_summary import (
    backtest_summary,
    lead_sentences,
    short_table,
)
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import Job, open_job
from forewarn.pipelines.rendering.templates import chance_text
from forewarn.pipelines.runtime.terminal import escape_text
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.training.train import train_predictor

__all__ = ["run_demo"]

# Trees and the linear model train in seconds, networks in minutes; trees rank as well
# (docs/results.md). A list is retrained on every sixth day, so that the demo can afford a fleet
# with enough failures for narrow intervals.
_FAST = {
    "ensembles": {"parallel": ["gbdt"], "cascade": [["linear", 0.02]]},
    "training": {"retrain_every": "6d"},
}
_FAST_BASELINES = ("random", "last_value", "logistic")
_MAX_SHOWN_ROWS = 3
_REVIEWED_DAYS = 7


class _Narrator:
    """Prints the steps and measures the total time."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def say(self, text: str) -> None:
        """Print the start of a step."""
        print(f"== {text}", flush=True)

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start


@dataclass(frozen=True, slots=True)
class _Folders:
    """The folders of a demo."""

    out: Path
    fleet: Path

    @property
    def records(self) -> Path:
        return self.fleet / "records"


class _MadeList(NamedTuple):
    """A list and its folder."""

    made: AtRiskList
    folder: Path


def run_demo(out: Path, *, n_gpus: int, n_days: int, seed: int, full: bool = False) -> None:
    """Simulate, backtest, train, score and review below `out`, and print the results.

    Parameters
    ----------
    out : Path
    n_gpus, n_days, seed : int
        Size and seed of the fleet.
    full : bool
        Run all models and strategies of the built-in configuration and print their table;
        otherwise only trees and the linear model, retrained on all earlier data each time.
    """
    narrator = _Narrator()
    # The size is part of the name: a smaller fleet would keep the later days of a larger one.
    folders = _Folders(out, out / f"fleet-{n_gpus}-gpus-{n_days}-days-seed-{seed}")
    narrator.say(f"1/5 simulate a fleet of {n_gpus:,} GPUs for {n_days} days")
    simulate_fleet_to(folders.fleet, n_gpus=n_gpus, n_days=n_days, seed=seed)
    settings = Settings.model_validate({} if full else _FAST)
    job = open_job(folders.records, settings)
    if not full:
        walked = replace(job.walk_settings, baselines=_FAST_BASELINES)
        job = replace(job, walk_settings=walked)
    narrator.say(
        f"2/5 backtest: retrain every {job.walk_settings.every // DAY} days on the past, list GPUs "
        "every day, then look which failed"
    )
    _look_back(job, folders, full=full)
    newest = parse_moment(max(date for date, _ in job.store.files()).isoformat())
    start = newest - (_REVIEWED_DAYS - 1) * DAY
    narrator.say(f"3/5 train as of {format_iso(start)[:10]}, and make a list for each day since")
    train_predictor(job, start, out / "model")
    lists = _make_lists(folders, range(start, newest + 1, DAY))
    narrator.say(f"4/5 the lists of these {len(lists)} days, after the last of them")
    reviewed = review_lists(out / "at-risk", folders.fleet / "truth.csv", newest + DAY)
    print(review_text(review_metrics(reviewed)))
    narrator.say("5/5 one GPU, and what to do")
    folder = _show_gpu(lists, folders.fleet / "truth.csv")
    print(
        f"Done in {narrator.total:.0f} s. Open\n"
        f"  {folder}/at_risk.html  the list for the person on call, with pictures of each GPU\n"
        f"  {out}/backtest/report.html  how good the lists would have been"
    )


def _look_back(job: Job, folders: _Folders, *, full: bool) -> None:
    """Run the backtest and print its results, summary sentences first."""
    out = folders.out / "backtest"
    if full:
        print(backtest_summary(run_backtest(job, out)))
        return
    report = run_backtest(job, out, strategies=())
    silent = _count_without_precursor(
        _failures(job.protocol, report.left_out.since, out / scores_file(job.configured)),
        folders.fleet / "truth.csv",
    )
    print("Models: trees and a linear model, averaged. Networks take minutes each: --full.")
    for sentence in lead_sentences(report, silent):
        print(sentence)
    print(short_table(report))


def _failures(protocol: EvaluationProtocol, unseen_from: str | None, scores: Path) -> pd.DataFrame:
    """Return serial and time of the failures that the lists are evaluated on."""
    frame = pd.read_parquet(scores)
    table = ScoreTable(frame, protocol, None if unseen_from is None else parse_moment(unseen_from))
    serials = sorted(set(frame["gpu_serial"].astype(str)))
    failures = sorted(table.failures)
    # Converted as a whole, so that the column has a time type even without any failure.
    times = pd.to_datetime([int(at) for _, at in failures], utc=True)
    return pd.DataFrame({"gpu_serial": [serials[gpu] for gpu, _ in failures], "failed_at": times})


def _count_without_precursor(failures: pd.DataFrame, truth: Path) -> int:
    """Count the failures without precursors, which only a simulation knows."""
    truth_rows = pd.read_csv(truth, parse_dates=["failed_at"])
    sudden = truth_rows[truth_rows["mechanism"] == MECHANISMS[SUDDEN]]
    joined = failures.merge(sudden, on="gpu_serial", suffixes=("", "_truly"))
    difference = (joined["failed_at"] - joined["failed_at_truly"]).abs()
    return int((difference <= pd.Timedelta("1h")).sum())


def _make_lists(folders: _Folders, moments: Iterable[int]) -> list[_MadeList]:
    """Make the lists of some moments with one predictor, and print the last one."""
    model = folders.out / "model"
    predictor = load_predictor(str(model))
    lists = []
    for moment in moments:
        made = score_with(predictor, str(model), folders.records, moment)
        lists.append(_MadeList(made, made.write(folders.out / "at-risk")))
    print(list_summary(lists[-1].made, most=_MAX_SHOWN_ROWS))
    return lists


def _show_gpu(lists: Sequence[_MadeList], truth: Path) -> Path:
    """Print the flagged GPU with the highest probability of those that failed; return its list.

    Without a hit it is the first GPU of the last list.
    """
    failures = pd.read_csv(truth, parse_dates=["failed_at"])
    flagged = [
        made.table[made.table["flagged"]].assign(list=number)
        for number, (made, _) in enumerate(lists)
    ]
    rows = pd.concat(flagged).merge(failures, on="gpu_serial", how="left")
    hit = rows["failed_at"].gt(rows["window_end"]) & rows["failed_at"].le(rows["valid_until"])
    rows = rows[hit] if hit.any() else rows[rows["list"] == len(lists) - 1]
    if not len(rows):
        print("No GPU was flagged.")
        return lists[-1].folder
    row = rows.nlargest(1, "probability").to_dict("records")[0]
    made = lists[int(row["list"])]
    listed_at = format_iso(made.made.at)
    text = f"{row['gpu_serial']} on {row['machine_id']} was listed at {listed_at[:16]} with "
    print(escape_text(f"{text}{chance_text(row['probability'])}: {row['reasons']}."))
    if hit.any():
        hours = (row["failed_at"] - pd.Timestamp(listed_at)) / pd.Timedelta("1h")
        print(f"It failed {hours:.0f} h later. What to check before that:")
    else:
        print("What to check:")
    for check in first_checks(row["reasons"].split(" | ")):
        print(f"  {check.what}" + (f"\n    {check.command}" if check.command else ""))
    return made.folder
