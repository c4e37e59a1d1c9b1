"""`forewarn study prediction`: the evaluation of arXiv 2201.11853 on simulated fleets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from forewarn.evaluation.bootstrap import INTERVAL_LEVEL, percentile_interval
from forewarn.evaluation.prediction.metrics.paper_protocol import paper_protocol, precision_draws
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.features.time_units import DAY
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.progress import TimeRemaining, progress_bar
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.csv_table import write_csv
from forewarn.pipelines.studies.paper_figures import paper_figures
from forewarn.pipelines.studies.prediction_backtests import (
    MAX_MODEL_AGE_DAYS,
    FleetScores,
    backtest_fleet,
    count_retrainings,
)

__all__ = ["best_in_hindsight", "prediction_figures", "write_prediction_study"]

HINDSIGHT = "hindsight"
_DAYS_AFTER_TRAINING = 6  # the paper shows precision for these days after a training
_MONTH = 30 * DAY
_COMPARED_STRATEGIES = (("sliding", "fixed"), ("variable", "sliding"), ("steady", "sliding"))
_CASCADE_PART = "cascade_first"  # part of the cascade, not a separate method


def prediction_figures(
    settings: Settings, models: Sequence[str], n_gpus: int, n_days: int, seeds: Sequence[int]
) -> dict[str, Any]:
    """Run backtests on one simulated fleet per seed and return the paper's tables for all of them.

    Parameters
    ----------
    settings : Settings
    models : sequence of str
    n_gpus, n_days : int
        Size of each fleet.
    seeds : sequence of int

    Returns
    -------
    dict
        Precision@K on the 1:8 test sets, averaged over the windows of all fleets, with bootstrap
        intervals over machines: `strategies` by period, strategy and method, `lengths` by training
        length, `by_day` by day since training, `retraining` by retraining interval; `paper` holds
        the paper's figures and these (`paper_figures`).

    Raises
    ------
    JobError
        If the fleets are too small or too short.
    """
    parts, job = _backtests(settings, models, n_gpus, n_days, seeds)
    protocol, every = job.protocol, job.walk_settings.every
    names = [name for name in parts[0].strategies if all(name in p.strategies for p in parts)]
    strategies = {name: _joined([part.strategies[name] for part in parts]) for name in names}
    lengths = _lengths(parts)
    table = {name: ScoreTable(frame, protocol) for name, frame in strategies.items()}
    spans = {length: ScoreTable(frame, protocol) for length, frame in lengths.items()}
    daily = _joined([part.daily for part in parts])
    days = _days(daily, protocol)
    by_strategy = {
        "first 30 days": _by_strategy(table, spans, _first_month),
        "all days": _by_strategy(table, spans, lambda frame: frame),
    }
    return {
        "gpus": n_gpus,
        "days": n_days,
        "models": list(models),
        "fleets": [part.facts for part in parts],
        "retrain_every_days": every / DAY,
        "k": protocol.k,
        "negatives_per_positive": settings.evaluation.negatives_per_positive,
        "random": 1.0 / (1.0 + settings.evaluation.negatives_per_positive),
        "interval_level": INTERVAL_LEVEL,
        "strategies": by_strategy,
        "lengths": _by_length(lengths, protocol),
        "by_day": _by_day(days),
        "retraining": _by_retraining(daily, protocol),
        "paper": paper_figures(by_strategy, days),
    }


def _backtests(
    settings: Settings, models: Sequence[str], n_gpus: int, n_days: int, seeds: Sequence[int]
) -> tuple[list[FleetScores], Job]:
    """Return the scores of each fleet, and the job of the last one."""
    parts, total = [], len(seeds) * count_retrainings(settings, n_days)
    left = TimeRemaining(total, "retrainings")
    with progress_bar(total, "study", "retraining") as bar:

        def done() -> None:
            bar.update()
            left.step()

        for number, seed in enumerate(seeds):
            bar.set_postfix_str(f"seed {seed}")
            fleet = (n_gpus, n_days, seed)
            part, job = backtest_fleet(settings, models, fleet, number, done)
            parts.append(part)
    return parts, job


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)


def _lengths(parts: Sequence[FleetScores]) -> dict[float, pd.DataFrame]:
    """Return the scores by training length in days, for the lengths that every fleet has."""
    common = [span for span in parts[0].spans if all(span in part.spans for part in parts)]
    return {span / DAY: _joined([part.spans[span] for part in parts]) for span in common}


def _by_length(
    frames: Mapping[float, pd.DataFrame], protocol: EvaluationProtocol
) -> dict[str, Any]:
    """Return the metrics of each length on the windows for which all lengths were trained."""
    windows = set.intersection(*(set(frame["test_window"]) for frame in frames.values()))
    return {
        f"{length:g}": _by_method(ScoreTable(frame[frame["test_window"].isin(windows)], protocol))
        for length, frame in frames.items()
    }


def _first_month(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the windows that start within 30 days of the first window of their fleet."""
    start = frame["test_window"].dt.as_unit("ns").astype("int64")
    fleet = frame["gpu_serial"].str.split("/").str[0]
    windows: pd.DataFrame = frame.loc[start < start.groupby(fleet).transform("min") + _MONTH]
    return windows


def _methods(table: ScoreTable) -> list[str]:
    return [name for name in table.methods if name != _CASCADE_PART]


def _figure(table: ScoreTable, method: str) -> dict[str, Any]:
    """Return the metrics of a method."""
    figures = paper_protocol(table, method)
    return {
        "precision": figures.precision_at_k,
        "interval": figures.precision_at_k_interval,
        "recall": figures.recall_at_k,
        "variance": figures.precision_variance,
        "windows": len(figures.windows),
        "flagged": figures.flagged,
    }


def _by_method(table: ScoreTable) -> dict[str, Any]:
    return {method: _figure(table, method) for method in _methods(table)}


def _by_strategy(
    tables: Mapping[str, ScoreTable],
    spans: Mapping[float, ScoreTable],
    part: Callable[[pd.DataFrame], pd.DataFrame],
) -> dict[str, Any]:
    """Return the metrics of each strategy, and of the training lengths chosen in hindsight."""
    protocol = next(iter(tables.values())).protocol
    cut = {name: ScoreTable(part(table.frame), protocol) for name, table in tables.items()}
    of_lengths = {length: ScoreTable(part(t.frame), protocol) for length, t in spans.items()}
    figures = {name: _by_method(table) for name, table in cut.items()}
    members = _methods(next(iter(of_lengths.values())))
    best = {method: best_in_hindsight(of_lengths, method) for method in members}
    figures[HINDSIGHT] = {method: _figure(table, method) for method, table in best.items()}
    for method, table in best.items():
        figures[HINDSIGHT][method]["over_sliding"] = _gain(table, cut["sliding"], method)
    for name, other in _COMPARED_STRATEGIES:
        for method, of_method in figures[name].items():
            of_method[f"over_{other}"] = _gain(cut[name], cut[other], method)
    return figures


def _gain(table: ScoreTable, other: ScoreTable, method: str) -> dict[str, Any] | None:
    """Return the difference of two mean precisions, with paired bootstrap draws of machines."""
    own, others = (paper_protocol(t, method).precision_at_k for t in (table, other))
    draws = [precision_draws(t, method) for t in (table, other)]
    if own is None or others is None or not all(map(len, draws)):
        return None
    same = set(table.frame["machine_id"]) == set(other.frame["machine_id"])
    bounds = percentile_interval(draws[0] - draws[1]) if same else None
    return {"difference": own - others, "interval": bounds}


def best_in_hindsight(spans: Mapping[float, ScoreTable], method: str) -> ScoreTable:
    """Return the table with the best training length of each window: an upper bound."""
    best: dict[str, tuple[float, float]] = {}
    for length, table in sorted(spans.items()):
        for window in paper_protocol(table, method).windows:
            merit = -1.0 if window.precision_at_k is None else window.precision_at_k
            if merit > best.get(window.start, (-2.0, 0.0))[0]:
                best[window.start] = (merit, length)
    parts = []
    for length, table in spans.items():
        starts = table.frame["test_window"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        chosen = [start for start, (_, of_start) in best.items() if of_start == length]
        parts.append(table.frame[starts.isin(chosen)])
    return ScoreTable(_joined(parts), next(iter(spans.values())).protocol)


def _days(daily: pd.DataFrame, protocol: EvaluationProtocol) -> list[ScoreTable]:
    """Return the daily test sets by day since the training, with the same machines to draw from."""
    machines = pd.Categorical(daily["machine_id"], ordered=True)
    days = daily.assign(test_window=daily["window_end"].dt.floor("D"), machine_id=machines)
    days = days[days["of_day"]]
    tables = [ScoreTable(days[days["age"] == age], protocol) for age in range(_DAYS_AFTER_TRAINING)]
    return [table for table in tables if table.windows]


def _by_day(tables: Sequence[ScoreTable]) -> dict[str, list[dict[str, Any]]]:
    """Return, by method, the precision on the first days after a training, on daily test sets."""
    if not tables:
        return {}
    return {name: [_figure(table, name) for table in tables] for name in _methods(tables[0])}


def _by_retraining(daily: pd.DataFrame, protocol: EvaluationProtocol) -> dict[str, dict[str, Any]]:
    """Return the metrics of retraining every 1 to 9 days on the same test sets."""
    rows = daily[daily["of_window"]]
    schedules = {
        every: rows[(rows["trained"] % every == 0) & (rows["age"] < every)]
        for every in range(1, MAX_MODEL_AGE_DAYS + 1, 2)
    }
    keys = [set(zip(f["gpu_serial"], f["window_end"], strict=True)) for f in schedules.values()]
    common = set.intersection(*keys)
    figures = {}
    for every, frame in schedules.items():
        pairs = zip(frame["gpu_serial"], frame["window_end"], strict=True)
        table = ScoreTable(frame[[pair in common for pair in pairs]], protocol)
        figures[str(every)] = _by_method(table) if table.windows else {}
    return figures


def write_prediction_study(study: Mapping[str, Any], out: Path) -> None:
    """Write `study.json`, `study.csv` (one row per metric) and `study.png`, all or none."""
    from forewarn.pipelines.studies.prediction_plot import prediction_study_plot

    with ExitStack() as files:
        path = files.enter_context(replacing(out / "study.json"))
        path.write_text(json.dumps(study, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        write_csv(_table(study), files.enter_context(replacing(out / "study.csv")))
        picture = files.enter_context(replacing(out / "study.png"))
        prediction_study_plot(study).savefig(picture, dpi=110, format="png")


def _table(study: Mapping[str, Any]) -> pd.DataFrame:
    """Return all metrics as rows: table, row, method, precision and interval."""
    of_spans = {
        (f"strategy, {span}", name): methods
        for span, strategies in study["strategies"].items()
        for name, methods in strategies.items()
    }
    of_lengths = {("length in days", name): row for name, row in study["lengths"].items()}
    of_days = {
        ("day after training", str(day + 1)): {
            method: figures[day] for method, figures in study["by_day"].items()
        }
        for day in range(max(map(len, study["by_day"].values()), default=0))
    }
    retraining = {("days between retrainings", n): row for n, row in study["retraining"].items()}
    rows = [
        {"table": table, "row": row, "method": method}
        | {key: figure[key] for key in ("precision", "recall", "variance", "windows", "flagged")}
        | dict(zip(("low", "high"), figure["interval"] or (None, None), strict=True))
        for (table, row), methods in (of_spans | of_lengths | of_days | retraining).items()
        for method, figure in methods.items()
    ]
    return pd.DataFrame(rows)
