"""MLflow log of a retraining: metrics by span, model, window and day, and plots."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from forewarn.evaluation.prediction.metrics.backtest_metrics import (
    FleetMetrics,
    StrategyMetrics,
    strategy_metrics,
)
from forewarn.evaluation.prediction.metrics.calibration_metrics import (
    ProbabilityGroup,
    calibration_metrics,
)
from forewarn.evaluation.prediction.metrics.drift import Drift
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.evaluation.prediction.metrics.promotion_gate import GateDecision
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.fleet_scoring import list_contributions
from forewarn.pipelines.at_risk.reason_phrases import channel_of
from forewarn.pipelines.backtest.backtest_plots import (
    MethodLine,
    precision_figure,
    reasons_figure,
    reliability_figure,
)
from forewarn.pipelines.backtest.score_frames import scores_frame, strategy_frame
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.runtime.progress import Stages
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.registry.model_registry import Registry
from forewarn.pipelines.training.drift_check import ScoringDay

__all__ = ["log_drift", "log_reasons", "log_retraining", "log_windows"]

Scores = dict[str, npt.NDArray[np.float64]]
_PROTOCOL = ("precision_at_k", "recall_at_k", "accuracy", "average_precision")
_N_LISTED, _N_REASONS = 10, 12
_FLEET = ("list_precision", "failures_caught", "average_precision")


def log_windows(
    registry: Registry,
    run: str,
    walk: WalkForward,
    timeline: Timeline,
    protocol: EvaluationProtocol,
) -> None:
    """Log the metrics of every length and model on the finished windows as nested runs."""
    figures_of_span: dict[int, StrategyMetrics] = {}
    for span, scored in _by_length(walk).items():
        frames = [scores_frame(walk, timeline, window, span, scores) for window, scores in scored]
        table = ScoreTable(pd.concat(frames, ignore_index=True), protocol, walk.unseen_from)
        if table.windows:
            figures_of_span[span] = strategy_metrics(table)
            _log_length(registry, run, span, figures_of_span[span])
    pictures = {}
    if figures_of_span:
        series = [_series(span, figures_of) for span, figures_of in figures_of_span.items()]
        pictures["precision_over_time.png"] = precision_figure(series)
    bins = _reliability(walk, timeline, protocol)
    if bins:
        pictures["reliability.png"] = reliability_figure(bins)
    _attach(registry, run, pictures)


def _by_length(walk: WalkForward) -> dict[Nanoseconds, list[tuple[WindowScores, Scores]]]:
    """Return windows with scores by training length, shortest first.

    For the strategy `expanding` there is one length, the current one.
    """
    if walk.settings.strategy is Strategy.EXPANDING:
        scored = [(window, *window.by_strategy[Strategy.EXPANDING]) for window in walk.windows]
        newest = max((span for _, span, _ in scored), default=Nanoseconds(0))
        return {newest: [(window, scores) for window, _, scores in scored]} if scored else {}
    by_length: dict[Nanoseconds, list[tuple[WindowScores, Scores]]] = {}
    for window in walk.windows:
        for span, scores in window.by_span.items():
            by_length.setdefault(span, []).append((window, scores))
    return dict(sorted(by_length.items()))


def _log_length(registry: Registry, run: str, span: int, figures: StrategyMetrics) -> None:
    """Log a run for a length, with nested runs for each model and ensemble."""
    days = span / DAY
    with registry.run(f"length {days:g} days", {"forewarn.kind": "length"}, run) as parent:
        registry.log(parent, params={"train_length_days": days})
        for method, paper in figures.methods.items():
            fleet = figures.fleet[method]
            with registry.run(method, {"forewarn.kind": "model"}, parent) as model_run:
                metrics = {f"paper/{name}": getattr(paper, name) for name in _PROTOCOL}
                metrics |= {f"fleet/{name}": getattr(fleet, name) for name in _FLEET}
                registry.log(
                    model_run,
                    params={"train_length_days": days, "method": method},
                    metrics=metrics,
                    series=[*_by_window(paper), *_by_day(paper, fleet)],
                )


def _by_window(paper: PaperMetrics) -> list[tuple[str, float | None, int]]:
    """Return the metrics of each window; the step is the day of its start since 1970."""
    return [
        (f"window/{name}", getattr(window, name), _day_number(window.start))
        for window in paper.windows
        for name in ("precision_at_k", "recall_at_k", "average_precision")
    ]


def _by_day(paper: PaperMetrics, fleet: FleetMetrics) -> list[tuple[str, float | None, int]]:
    """Return the metrics of each day after retraining, and the hits of each day's list."""
    after = [
        ("day_after_training/precision_at_k", value, number)
        for number, value in enumerate(paper.precision_by_day)
    ]
    lists = [("day/list_hits", float(day.hits), _day_number(day.date)) for day in fleet.days]
    return [*after, *lists]


def _day_number(text: str) -> int:
    return (pd.Timestamp(text[:10]) - pd.Timestamp("1970-01-01")).days


def _series(span: int, figures: StrategyMetrics) -> MethodLine:
    windows = figures.methods["parallel"].windows
    return MethodLine(
        f"{span / DAY:g} days",
        [window.start for window in windows],
        [window.precision_at_k for window in windows],
    )


def _reliability(
    walk: WalkForward, timeline: Timeline, protocol: EvaluationProtocol
) -> Sequence[ProbabilityGroup]:
    strategy = walk.settings.strategy
    frames = [strategy_frame(walk, timeline, window, strategy) for window in walk.windows]
    if not frames:
        return []
    table = ScoreTable(pd.concat(frames, ignore_index=True), protocol, walk.unseen_from)
    return calibration_metrics(table.judged, table.draws).bins


def _attach(registry: Registry, run: str, figures: Mapping[str, Figure]) -> None:
    with scratch_folder() as folder:
        for file, figure in figures.items():
            figure.savefig(folder / file, dpi=120)
        if figures:
            registry.attach(run, folder, "plots")


def log_retraining(
    registry: Registry,
    run: str,
    records: WindowedRecords,
    predictor: Predictor,
    decision: GateDecision,
    stages: Stages,
) -> None:
    """Log data, code, parameters, costs and the result of the gate."""
    facts, comparison = predictor.facts, decision.comparison
    settings = records.settings
    params = {
        "at": facts.trained_at,
        "train_length_days": facts.train_length_days,
        "models": ",".join(settings.models),
        "lengths_days": ",".join(f"{span / DAY:g}" for span in settings.training_spans),
        "select_over": settings.select_over,
        "strategy": str(settings.strategy),
        "seed": facts.seed,
        "model_version": predictor.version,
        **_fingerprint(records),
        **_code_version(),
    }
    metrics: dict[str, float | None] = {
        "promoted": float(decision.promoted),
        "prevalence": facts.prevalence,
        "failures_known": facts.failures_known,
    }
    if comparison is not None:
        metrics |= {
            "gate/challenger": comparison.challenger,
            "gate/champion": comparison.champion,
            "gate/difference": comparison.difference,
            "gate/interval_low": comparison.interval and comparison.interval[0],
            "gate/interval_high": comparison.interval and comparison.interval[1],
            "gate/challenger_list_precision": comparison.list_precision[0],
            "gate/champion_list_precision": comparison.list_precision[1],
        }
    costs = stages.figures()
    metrics |= {f"seconds/{stage.name}": stage.seconds for stage in costs.stages}
    metrics |= {"seconds": costs.seconds, "peak_rss_mib": costs.peak_rss_bytes / 2**20}
    registry.log(run, params=params, metrics=metrics)
    registry.tag(run, {"forewarn.gate": "; ".join(decision.reasons) or "passed"})


def _fingerprint(records: WindowedRecords) -> dict[str, object]:
    """Return facts about the data: files, rows, span and a digest of the schema."""
    store, fleet = records.store, records.fleet
    columns = sorted(store.columns())
    return {
        "data_files": len(store.files()),
        "data_rows": records.survey.n_records,
        "data_first": format_iso(fleet.first),
        "data_last": format_iso(fleet.last),
        "data_gpus": len(fleet.serials),
        "data_schema": hashlib.blake2b(",".join(columns).encode(), digest_size=8).hexdigest(),
    }


def _code_version() -> dict[str, object]:
    """Return the version of the code and, in a checkout, commit and lock file digest."""
    root = Path(__file__).resolve().parents[2]
    facts: dict[str, object] = {"forewarn": version("forewarn")}
    lock = root / "requirements.lock"
    if lock.exists():
        facts["lock"] = hashlib.blake2b(lock.read_bytes(), digest_size=8).hexdigest()
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        facts["git_commit"] = done.stdout.strip() or "unknown"
    return facts


def log_reasons(registry: Registry, run: str, predictor: Predictor, day: ScoringDay) -> None:
    """Plot the contributions to the scores of the GPUs at the top of the next list."""
    first = np.argsort(-day.scores, kind="stable")[: max(_N_LISTED, len(day.scores) // 100)]
    listed = predictor.encoder.measures.values(day.fleet, day.instances.select(np.sort(first)))
    columns = set(predictor.encoder.measures.plan.kinds.names)
    totals: dict[str, float] = {}
    contributions = list_contributions(predictor, listed)
    table = contributions.compute(np.arange(len(listed))).T
    for name, values in zip(contributions.names, table, strict=True):
        channel = channel_of(name, columns)
        totals[channel] = totals.get(channel, 0.0) + float(np.maximum(values, 0.0).sum())
    everything = sum(totals.values())
    if everything > 0:
        strongest = sorted(totals, key=lambda name: -totals[name])[:_N_REASONS]
        shares = {name: totals[name] / everything for name in strongest}
        _attach(registry, run, {"reasons.png": reasons_figure(shares)})


def log_drift(registry: Registry, run: str, drift: Mapping[str, Drift]) -> None:
    """Log the drift of every input and of the scores since the training span."""
    metrics: dict[str, float | None] = {}
    for name, moved in drift.items():
        metrics[f"drift/{name}"] = moved.stability
        metrics[f"missing/{name}"] = moved.missing_now
    registry.log(run, metrics=metrics)
