"""`forewarn demo`: the whole job once, on a small simulated fleet."""

from __future__ import annotations

import time
from pathlib import Path

from forewarn.evaluation.prediction.list_review import review_figures
from forewarn.features.records.table import DAY
from forewarn.pipelines.at_risk.review import review_lists, review_text
from forewarn.pipelines.at_risk.score import load_predictor, score_with
from forewarn.pipelines.at_risk.summary import list_summary
from forewarn.pipelines.backtest.run import run_backtest
from forewarn.pipelines.backtest.summary import backtest_summary
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.timestamps import iso, parse_moment
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.training.train import train_predictor

__all__ = ["run_demo"]


class _Narrator:
    """Says what comes next, and how long the last step took."""

    def __init__(self) -> None:
        self._start = self._step = time.perf_counter()

    def say(self, text: str) -> None:
        """Print one step."""
        print(f"\n== {text}", flush=True)
        self._step = time.perf_counter()

    def done(self) -> None:
        """Print how long it took."""
        print(f"   ({time.perf_counter() - self._step:.0f} s)", flush=True)

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start


def run_demo(out: Path, *, n_gpus: int, n_days: int, seed: int) -> None:
    """Simulate, backtest, train, score and review below `out`, and say where to look."""
    narrator = _Narrator()
    # Its size is in its name: a smaller fleet would keep the later days of a larger one.
    fleet = out / f"fleet-{n_gpus}-gpus-{n_days}-days-seed-{seed}"
    records = fleet / "records"
    narrator.say(f"1/4 simulate a fleet of {n_gpus} GPUs for {n_days} days")
    simulate_fleet_to(fleet, n_gpus=n_gpus, n_days=n_days, seed=seed)
    narrator.done()
    job = open_job(records, Settings())
    narrator.say("2/4 backtest: retrain every 3 days, score what follows")
    print(backtest_summary(run_backtest(job, out / "backtest")))
    narrator.done()
    newest = max(date for date, _ in job.store.files()).isoformat()
    at = parse_moment(newest)
    narrator.say(f"3/4 train as of {iso(at - DAY)}, the day before the last")
    train_predictor(job, at - DAY, out / "model")
    narrator.done()
    narrator.say(f"4/4 the at-risk lists of {iso(at - DAY)[:10]} and {iso(at)[:10]}")
    predictor = load_predictor(str(out / "model"))
    for moment in (at - DAY, at):
        made = score_with(predictor, str(out / "model"), records, moment)
        folder = made.write(out / "at-risk")
    print(list_summary(made))
    narrator.done()
    reviewed = review_lists(out / "at-risk", fleet / "truth.csv", at + DAY)
    print(f"\n== what became of them\n{review_text(review_figures(reviewed))}")
    print(
        f"\nDone in {narrator.total:.0f} s. Look at\n"
        f"  {out}/backtest/report.html  how good the lists would have been\n"
        f"  {folder}/at_risk.html  the list that a person on call opens"
    )
