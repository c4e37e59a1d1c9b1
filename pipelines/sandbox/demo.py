"""`forewarn demo`: all steps once, on a simulated fleet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forewarn.evaluation.prediction.metrics.list_review import review_metrics
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.evaluation.simulation.fleet.defects import MECHANISMS, SUDDEN
from forewarn.features.records.record_table import DAY
from forewarn.pipelines.at_risk.at_risk_list import list_summary
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
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.training.train import train_predictor

__all__ = ["run_demo"]

# Trees train in seconds, networks in minutes, and trees rank as well (docs/quality.md).
_FAST_ENSEMBLES = {"parallel": ["gbdt"], "cascade": [["gbdt", 0.02]]}
_MAX_SHOWN_ROWS = 3


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


def run_demo(out: Path, *, n_gpus: int, n_days: int, seed: int, full: bool = False) -> None:
    """Simulate, backtest, train, score and review below `out`, and print the results.

    Parameters
    ----------
    out : Path
    n_gpus, n_days, seed : int
        Size and seed of the fleet.
    full : bool
        Run all models and strategies of the built-in configuration and print their table;
        otherwise only trees, retrained on all earlier data each time.
    """
    narrator = _Narrator()
    # The size is part of the name: a smaller fleet would keep the later days of a larger one.
    folders = _Folders(out, out / f"fleet-{n_gpus}-gpus-{n_days}-days-seed-{seed}")
    narrator.say(f"1/4 simulate a fleet of {n_gpus:,} GPUs for {n_days} days")
    simulate_fleet_to(folders.fleet, n_gpus=n_gpus, n_days=n_days, seed=seed)
    settings = Settings() if full else Settings.model_validate({"ensembles": _FAST_ENSEMBLES})
    job = open_job(folders.records, settings)
    narrator.say("2/4 backtest: train every 3 days, list GPUs every day, count the failures caught")
    _look_back(job, folders, full=full)
    newest = parse_moment(max(date for date, _ in job.store.files()).isoformat())
    narrator.say(f"3/4 train as of {format_iso(newest - DAY)[:10]}, one day before the last")
    train_predictor(job, newest - DAY, out / "model")
    narrator.say(f"4/4 the lists of {format_iso(newest - DAY)[:10]} and {format_iso(newest)[:10]}")
    folder = _make_lists(folders, newest)
    print(
        f"Done in {narrator.total:.0f} s. Open\n"
        f"  {out}/backtest/report.html  how good the lists would have been, and what they cost\n"
        f"  {folder}/at_risk.html  the list for the person on call"
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


def _make_lists(folders: _Folders, newest: int) -> Path:
    """Make the lists of the last two days; print the last one and the outcome of both."""
    out, model = folders.out, folders.out / "model"
    lists, predictor = out / "at-risk", load_predictor(str(model))
    for moment in (newest - DAY, newest):
        made = score_with(predictor, str(model), folders.records, moment)
        folder = made.write(lists)
    print(list_summary(made, most=_MAX_SHOWN_ROWS))
    reviewed = review_lists(lists, folders.fleet / "truth.csv", newest + DAY)
    print(f"== outcome\n{review_text(review_metrics(reviewed))}")
    return folder
