"""Compares rules for the votes of the blend's models, on the scores of backtests.

    python -m benchmarks.member_weights --config six.toml FLEETS/*

Models are scored once (`benchmarks.ensemble_ranking` says how, `benchmarks.other_make` simulates a
fleet of another make); all rules are computed from the score files. Votes before a test window
come from the last five windows that were finished by then, and are equal until there is one. An
unfinished backtest is judged on its finished retrainings. Values are those of
`benchmarks.ensemble_ranking`; differences are paired with equal votes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.ensemble_ranking import average_draws, interval_text, precision_draws
from scipy.optimize import minimize

from forewarn.evaluation.bootstrap import bootstrap_weights, percentile_interval
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import is_finished
from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.linear.log_odds import logit, sigmoid
from forewarn.pipelines.config.settings import Settings, load_settings
from forewarn.pipelines.prediction_job import open_job

_MEMBERS = ("cnn", "mlp", "gbdt", "linear")
_N_WINDOWS = 5
_N_DRAWS = 200
_SHRUNK_BY = 20  # failures that halve an observed gain
_REFERENCES = (*_MEMBERS, "logistic", "window_gbdt", "rules", "parallel", "cascade")
_EQUAL = np.full(len(_MEMBERS), 1.0 / len(_MEMBERS))


@dataclass(frozen=True)
class _Past:
    """The finished windows: everything that a rule may see."""

    table: ScoreTable
    log_odds: Float64Array
    weight: float  # of an instance as evidence
    draws: Float64Array

    def average(self, votes: Float64Array) -> Float64Array:
        """Return the average precision of a blend for each draw; the first is the sample."""
        self.table.scores["tried"] = sigmoid(self.log_odds @ votes)
        return average_draws(self.table, "tried", self.draws)

    @property
    def alone(self) -> Float64Array:
        """The average precision of each model alone."""
        return np.array([self.average(votes)[0] for votes in np.eye(len(_MEMBERS))])


Rule = Callable[[_Past], Float64Array]


def _normalized(votes: Float64Array) -> Float64Array:
    normalized: Float64Array = votes / votes.sum()
    return normalized


def _stacked(spread: float) -> Rule:
    """Return non-negative logistic stacking with a normal prior at equal votes."""

    def rule(past: _Past) -> Float64Array:
        failing = past.table.labels == 1
        centre, spreads = np.append(_EQUAL, -5.0), np.append(np.full(len(_EQUAL), spread), 5.0)

        def loss(values: Float64Array) -> tuple[float, Float64Array]:
            odds = past.log_odds @ values[:-1] + values[-1]
            residual = past.weight * (sigmoid(odds) - failing)
            off = (values - centre) / spreads
            total = past.weight * (np.logaddexp(0.0, odds) - failing * odds).sum()
            gradient = np.append(residual @ past.log_odds, residual.sum()) + off / spreads
            return float(total + 0.5 * off @ off), gradient

        limits = [(0.0, None)] * len(_EQUAL) + [(None, None)]
        fitted = minimize(loss, centre, jac=True, bounds=limits, method="L-BFGS-B").x
        votes: Float64Array = fitted[:-1]
        return _normalized(votes) if votes.any() else _EQUAL

    return rule


def _by_gain(past: _Past) -> Float64Array:
    """Return votes proportional to the exponential of each model's relative gain, shrunk."""
    alone = past.alone
    failures = past.weight * (past.table.labels == 1).sum()
    gain = (alone / alone.mean() - 1.0) * failures / (failures + _SHRUNK_BY)
    votes: Float64Array = np.exp(2.0 * gain)
    return _normalized(votes)


def _without_harmful(past: _Past) -> Float64Array:
    """Drop the worst model while the paired interval says that it hurts."""
    votes = _EQUAL
    while np.count_nonzero(votes) > 1:
        before, better = past.average(votes), []
        for number in np.flatnonzero(votes):
            rest = np.where(np.arange(len(votes)) == number, 0.0, votes)
            rest /= rest.sum()
            gain = past.average(rest) - before
            bounds = percentile_interval(gain[1:])
            if bounds is not None and bounds[0] > 0.0:
                better.append((gain[0], rest))
        if not better:
            break
        votes = max(better, key=lambda pair: float(pair[0]))[1]
    return votes


def _best_alone(past: _Past) -> Float64Array:
    best: Float64Array = np.eye(len(_MEMBERS))[int(np.argmax(past.alone))]
    return best


_RULES: dict[str, Rule] = {
    "stacked, no prior": _stacked(10.0),
    "stacked, weak prior": _stacked(0.3),
    "stacked, strong prior": _stacked(0.1),
    "by shrunk gain": _by_gain,
    "without harmful models": _without_harmful,
    "best model so far": _best_alone,
}


def _read(folder: Path, settings: Settings) -> tuple[ScoreTable, Nanoseconds, Nanoseconds, float]:
    job = open_job(folder / "records", settings)
    paths = sorted(folder.glob("backtest/.progress/retraining-*/expanding.parquet"))
    paths = paths or [folder / "backtest/scores_expanding.parquet"]
    frame = pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)
    recipe = job.walk_settings.recipe
    weight = min(1.0, recipe.step / recipe.horizon)
    return ScoreTable(frame, job.protocol), job.walk_settings.every, recipe.horizon, weight


def _votes(folder: Path, settings: Settings) -> tuple[ScoreTable, dict[str, Float64Array]]:
    """Return the votes of each rule before each test window."""
    table, every, horizon, weight = _read(folder, settings)
    log_odds = _log_odds(table)
    starts = np.unique(table.window)
    votes: dict[str, list[Float64Array]] = {name: [] for name in _RULES}
    for moment in starts.tolist():
        done = [s for s in starts if is_finished(s, moment, every=every, horizon=horizon)]
        rows = np.flatnonzero(np.isin(table.window, done[-_N_WINDOWS:]))
        known = bool((table.labels[rows] == 1).any())
        past = _past(table, log_odds, rows, weight) if known else None
        for name, rule in _RULES.items():
            votes[name].append(_EQUAL if past is None else rule(past))
    return table, {name: np.array(by_window) for name, by_window in votes.items()}


def _past(table: ScoreTable, log_odds: Float64Array, rows: Int64Array, weight: float) -> _Past:
    part = ScoreTable(table.frame.iloc[rows], table.protocol)
    n = int(part.machine.max()) + 1
    draws = np.vstack([np.ones(n), bootstrap_weights(n, seed=7, n_draws=_N_DRAWS)])
    return _Past(part, log_odds[rows], weight, draws)


def _log_odds(table: ScoreTable) -> Float64Array:
    return np.stack([logit(table.scores[name]) for name in _MEMBERS], axis=1)


def _print(folder: Path, settings: Settings) -> None:
    table, votes = _votes(folder, settings)
    log_odds = _log_odds(table)
    window = np.unique(table.window, return_inverse=True)[1]
    table.scores["equal votes"] = sigmoid(log_odds @ _EQUAL)
    for name, by_window in votes.items():
        table.scores[name] = sigmoid((log_odds * by_window[window]).sum(axis=1))
    n = int(table.machine.max()) + 1
    draws = np.vstack([np.ones(n), bootstrap_weights(n, seed=1, n_draws=1_000)])
    print(f"\n{folder.name}: {len(table.failures)} failures, {len(np.unique(window))} windows\n")
    print(f"| | average precision | difference | list, % | difference | {', '.join(_MEMBERS)} |")
    print("|---|---|---|---|---|---|")
    before: tuple[Float64Array, Float64Array] | None = None
    for name in ("equal votes", *votes, *_REFERENCES):
        if name not in table.methods:
            continue
        average, listed = (
            average_draws(table, name, draws),
            precision_draws(table, name, draws) * 100,
        )
        before = before or (average, listed)
        texts = [interval_text(average, 4), interval_text(average - before[0], 4)]
        texts += [interval_text(listed, 1), interval_text(listed - before[1], 1)]
        mean = votes[name].mean(axis=0).round(2).tolist() if name in votes else ""
        print(f"| {name} | {' | '.join(texts)} | {mean} |", flush=True)


def main() -> None:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="with `records` and `backtest`")
    parser.add_argument("--config", type=Path, help="of the backtests")
    args = parser.parse_args()
    settings = load_settings(args.config)
    for folder in args.folders:
        _print(folder, settings)


if __name__ == "__main__":
    main()
