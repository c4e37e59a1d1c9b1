"""MLflow log of the finished windows of a retraining: lengths, methods and plots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.metrics.backtest_metrics import (
    StrategyMetrics,
    strategy_metrics,
)
from forewarn.evaluation.prediction.metrics.daily_rankings import RANKED_BY
from forewarn.evaluation.prediction.metrics.score_table import (
    ENSEMBLES,
    EvaluationProtocol,
)
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.backtest.backtest_plots import MethodLine
from forewarn.pipelines.backtest.run_metrics import (
    attach_plots,
    list_plots,
    log_method,
    precision_line,
)
from forewarn.pipelines.backtest.score_frames import finished_table, score_table, scores_frame
from forewarn.pipelines.storage.registry.model_registry import Registry

__all__ = ["log_windows"]

Scores = dict[str, npt.NDArray[np.float64]]


def log_windows(
    registry: Registry,
    run: str,
    walk: WalkForward,
    timeline: Timeline,
    protocol: EvaluationProtocol,
) -> StrategyMetrics | None:
    """Log each length and method on the finished windows as nested runs, and plots.

    Returns
    -------
    StrategyMetrics or None
        Metrics of the configured strategy; None without a window that has a failure.
    """
    strategy = walk.settings.strategy
    table = finished_table(walk, timeline, protocol)
    if table is None:
        return None
    figures = strategy_metrics(table)
    if strategy is Strategy.EXPANDING:
        _log_methods(registry, run, figures, {})
        lines = [precision_line(name, figures.methods[name]) for name in (RANKED_BY, *ENSEMBLES)]
    else:
        lines = _log_lengths(registry, run, walk, timeline, protocol)
    plots = list_plots(lines, figures.fleet[RANKED_BY], figures.calibration)
    attach_plots(registry, run, plots)
    return figures


def _log_lengths(
    registry: Registry,
    run: str,
    walk: WalkForward,
    timeline: Timeline,
    protocol: EvaluationProtocol,
) -> list[MethodLine]:
    """Log a run for each length, with nested runs; return the precision of each."""
    lines = []
    for span, scored in _by_length(walk).items():
        frames = [scores_frame(walk, timeline, window, span, scores) for window, scores in scored]
        table = score_table(walk, frames, protocol)
        if table is not None:
            figures, days = strategy_metrics(table), span / DAY
            params = {"train_length_days": days}
            name = f"length {days:g} days"
            with registry.run(name, {"forewarn.kind": "length"}, run) as parent:
                registry.log(parent, params=params)
                _log_methods(registry, parent, figures, params)
            lines.append(precision_line(f"{days:g} days", figures.methods["parallel"]))
    return lines


def _by_length(walk: WalkForward) -> dict[Nanoseconds, list[tuple[WindowScores, Scores]]]:
    """Return windows with scores by training length, shortest first."""
    by_length: dict[Nanoseconds, list[tuple[WindowScores, Scores]]] = {}
    for window in walk.windows:
        for span, scores in window.by_span.items():
            by_length.setdefault(span, []).append((window, scores))
    return dict(sorted(by_length.items()))


def _log_methods(
    registry: Registry, parent: str, figures: StrategyMetrics, params: Mapping[str, object]
) -> None:
    for method, paper in figures.methods.items():
        log_method(registry, parent, method, paper, figures.fleet[method], params)
