"""Compares ensembles on backtests with networks: the first tables of `docs/quality.md`.

    for N in 231 232; do
        forewarn simulate fleet --out FLEETS/$N --gpus 1000 --days 60 --seed $N
        forewarn backtest --records FLEETS/$N/records --out FLEETS/$N/backtest --config six.toml \
            --models cnn,mlp,gbdt,linear --strategies expanding --start 2025-01-19
    done
    python -m benchmarks.ensemble_ranking --config six.toml FLEETS/*

`six.toml` holds `retrain_every = "6d"` below `[training]`.

Average precision is computed per test window at true prevalence, weighted by failing instances. A
list is the configured share of a day. Values of several folders are averaged, failures are summed.
Brackets are bootstrap intervals over machines; differences are paired with the configured ensemble.
If `benchmarks.plain_lightgbm` has been run, its scores are included.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.plain_lightgbm import PLAIN

from forewarn.evaluation.bootstrap import bootstrap_weights, percentile_interval
from forewarn.evaluation.prediction.metrics.backtest_metrics import strategy_metrics
from forewarn.evaluation.prediction.metrics.random_lists import RANDOM, RandomLists
from forewarn.evaluation.prediction.metrics.ranking_metrics import average_precision_draws
from forewarn.evaluation.prediction.metrics.score_table import ENSEMBLES, ScoreTable
from forewarn.features.array_types import Float64Array
from forewarn.pipelines.config.settings import Settings, load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.timestamps import parse_moment

__all__ = ["average_draws", "interval_text", "precision_draws"]

_SHARES = (0.0, 0.25, 0.5)
_ROWS = {
    "linear 0": "CNN, MLP, GBDT: mean log odds",
    "linear 0.25": "the same, a quarter linear",
    "linear 0.5": "the same, half linear",
    "linear": "linear",
    "gbdt": "GBDT",
    "gbdt and linear": "GBDT, half linear",
    "cnn": "CNN",
    "mlp": "MLP",
    "parallel": "parallel",
    "cascade": "cascade (CNN, MLP)",
    "logistic": "logistic regression",
    "window_gbdt": "LightGBM on window statistics",
    PLAIN: "LightGBM on statistics of long spans",
    "rules": "built-in rules, no training",
    "random": "random",
}


@dataclass(frozen=True)
class EnsembleFigures:
    """Results of one method on one backtest, per bootstrap draw; the first is the sample."""

    precision: Float64Array
    average: Float64Array
    caught: float
    failures: int
    at_k: float


def _table(folder: Path, settings: Settings) -> ScoreTable:
    """Read the scores of a backtest, and add ensembles with other shares."""
    report = json.loads((folder / "backtest/report.json").read_text())
    frame = pd.read_parquet(folder / "backtest/scores_expanding.parquet")
    protocol = open_job(folder / "records", settings).protocol
    left_out = report["left_out"]["from"]
    table = ScoreTable(frame, protocol, None if left_out is None else parse_moment(left_out))
    if not np.allclose(protocol.committee.blend(table.scores), table.scores["blend"]):
        raise SystemExit(f"{folder}: `score_blend` is not of {protocol.committee}")
    for share in _SHARES:
        voters = replace(protocol.committee, linear=share)
        frame[f"score_linear {share:g}"] = voters.blend(table.scores)
    trees = replace(protocol.committee, parallel=("gbdt",), linear=0.5)
    frame["score_gbdt and linear"] = trees.blend(table.scores)
    plain = folder / f"backtest/{PLAIN}.parquet"
    if plain.exists():
        frame[f"score_{PLAIN}"] = pd.read_parquet(plain)["score"].to_numpy()
    return replace(table, frame=frame)


def average_draws(table: ScoreTable, method: str, draws: Float64Array) -> Float64Array:
    """Return a method's average precision, weighted by failing instances, for each draw."""
    if method in ENSEMBLES:
        return np.full(len(draws), np.nan)
    averages, failing = [], []
    for _, rows in table.windows:
        machine, labels = table.machine[rows], table.labels[rows]
        scores = table.scores[method][rows]
        averages.append(average_precision_draws(labels, scores, machine, draws))
        failing.append(draws[:, machine[labels == 1]].sum(axis=1))
    weights = np.array(failing)
    with np.errstate(invalid="ignore"):  # a draw without a failing machine
        mean: Float64Array = np.nansum(np.array(averages) * weights, axis=0) / weights.sum(axis=0)
    return mean


def precision_draws(table: ScoreTable, method: str, draws: Float64Array) -> Float64Array:
    """Return the precision of a method's daily lists for each draw."""
    if method == RANDOM:
        return RandomLists.from_table(table).precision_draws(draws)
    rows = table.days.row[table.listed(method)]
    drawn = draws[:, table.machine[rows]]
    precision: Float64Array = drawn @ (table.labels[rows] == 1) / np.maximum(drawn.sum(axis=1), 1.0)
    return precision


def _evaluate(table: ScoreTable, seed: int) -> dict[str, EnsembleFigures]:
    n_machines = int(table.machine.max()) + 1
    draws = np.vstack(
        [np.ones(n_machines), bootstrap_weights(n_machines, seed=seed, n_draws=1_000)]
    )
    report = strategy_metrics(table)
    return {
        method: EnsembleFigures(
            precision_draws(table, method, draws),
            average_draws(table, method, draws),
            report.fleet[method].failures_caught,
            report.fleet[method].failures,
            report.methods[method].precision_at_k or 0.0,
        )
        for method in _ROWS
        if method in report.methods
    }


def _mean(figures: Sequence[EnsembleFigures]) -> EnsembleFigures:
    return EnsembleFigures(
        np.mean([f.precision for f in figures], axis=0),
        np.mean([f.average for f in figures], axis=0),
        sum(f.caught for f in figures),
        sum(f.failures for f in figures),
        float(np.mean([f.at_k for f in figures])),
    )


def interval_text(draws: Float64Array, digits: int) -> str:
    """Format the value of the first draw with the interval of the others."""
    bounds = percentile_interval(draws[1:])
    if bounds is None or not draws.any():  # an ensemble has none, and no difference from itself
        return ""
    return f"{draws[0]:.{digits}f} [{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]"


def _print(title: str, figures: Mapping[str, EnsembleFigures], used: str) -> None:
    before = figures[used]
    print(f"\n{title}: failures caught of {before.failures}\n")
    print("| | list precision, % | difference | caught | average precision | difference | @K |")
    print("|---|---|---|---|---|---|---|")
    for method, row in figures.items():
        name = _ROWS[method]
        listed = (
            interval_text(row.precision * 100, 1),
            interval_text((row.precision - before.precision) * 100, 1),
        )
        average = interval_text(row.average, 4), interval_text(row.average - before.average, 4)
        texts = (name, *listed, f"{row.caught:.0f}", *average, f"{row.at_k:.2f}")
        print(f"| {' | '.join(texts)} |", flush=True)


def main() -> None:
    """Print a table for each folder, and one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="with `records` and `backtest`")
    parser.add_argument("--config", type=Path, help="of the backtests")
    args = parser.parse_args()
    settings, judged = load_settings(args.config), []
    used = f"linear {settings.ensembles.linear:g}"
    for seed, folder in enumerate(args.folders):
        judged.append(_evaluate(_table(folder, settings), seed))
        _print(folder.name, judged[-1], used)
    if len(judged) > 1:
        methods = set.intersection(*map(set, judged))
        means = {
            name: _mean([figures[name] for figures in judged]) for name in _ROWS if name in methods
        }
        _print("all", means, used)


if __name__ == "__main__":
    main()
