"""Metrics of an MLflow run: the quality of the lists, and the results of each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import CalibrationMetrics
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.pipelines.backtest.backtest_plots import (
    MethodLine,
    daily_list_figure,
    precision_figure,
    reliability_figure,
)
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.registry.mlflow_experiment import Experiment

__all__ = ["attach_plots", "list_plots", "log_method", "precision_line", "quality_metrics"]

_PROTOCOL = ("precision_at_k", "recall_at_k", "accuracy", "average_precision")
_FLEET = ("list_precision", "failures_caught", "average_precision")
_BOUNDS = ("low", "high")


def quality_metrics(
    fleet: FleetMetrics, calibration: CalibrationMetrics | None = None, prefix: str = ""
) -> dict[str, float | None]:
    """Return what retrainings and backtests are compared by, with the bounds of intervals.

    Parameters
    ----------
    fleet : FleetMetrics
    calibration : CalibrationMetrics, optional
    prefix : str
        Of each name, such as ``champion/``.
    """
    metrics: dict[str, float | None] = {
        **_with_bounds("average_precision", fleet.average_precision, fleet),
        **_with_bounds("list_precision", fleet.list_precision, fleet),
        "failures_caught": fleet.failures_caught,
        "failures_caught_share": fleet.failures_caught_share,
        "failures": fleet.failures,
        "lead_time_hours": fleet.lead_time_hours.p50,
    }
    if calibration is not None:
        metrics |= _with_bounds("calibration_slope", calibration.slope, calibration, "slope")
        metrics["calibration_intercept"] = calibration.intercept
    return {f"{prefix}{name}": value for name, value in metrics.items()}


def _with_bounds(
    name: str, value: float | None, source: FleetMetrics | CalibrationMetrics, field: str = ""
) -> dict[str, float | None]:
    bounds = getattr(source, f"{field or name}_interval") or (None, None)
    return {name: value} | {
        f"{name}_{end}": bound for end, bound in zip(_BOUNDS, bounds, strict=True)
    }


def log_method(
    experiment: Experiment,
    parent: str,
    method: str,
    paper: PaperMetrics,
    fleet: FleetMetrics,
    params: Mapping[str, object],
) -> None:
    """Log the results of a method as a nested run, with those of each window and day."""
    with experiment.run(method, {"forewarn.kind": "model"}, parent) as run:
        metrics = {f"paper/{name}": getattr(paper, name) for name in _PROTOCOL}
        metrics |= {f"fleet/{name}": getattr(fleet, name) for name in _FLEET}
        experiment.log(
            run,
            params={**params, "method": method},
            metrics=metrics,
            series=[*_by_window(paper), *_by_day(paper, fleet)],
        )


def precision_line(label: str, paper: PaperMetrics) -> MethodLine:
    """Return the precision of a method in each window."""
    starts = [window.start for window in paper.windows]
    return MethodLine(label, starts, [window.precision_at_k for window in paper.windows])


def list_plots(
    lines: Sequence[MethodLine], fleet: FleetMetrics, calibration: CalibrationMetrics
) -> dict[str, Figure]:
    """Return plots of precision by window, of the daily lists and of the calibration."""
    plots = {
        "precision_over_time.png": precision_figure(lines),
        "daily_list.png": daily_list_figure(fleet.days),
    }
    if calibration.bins:
        plots["reliability.png"] = reliability_figure(calibration.bins)
    return plots


def attach_plots(experiment: Experiment, run: str, figures: Mapping[str, Figure]) -> None:
    """Attach figures by file name, in the folder `plots`."""
    with scratch_folder() as folder:
        for name, figure in figures.items():
            figure.savefig(folder / name, dpi=120)
        if figures:
            experiment.attach(run, folder, "plots")


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
