"""MLflow log of a retraining: quality, parameters, data, costs and the report page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from forewarn.evaluation.bootstrap import INTERVAL_LEVEL
from forewarn.evaluation.prediction.metrics.backtest_metrics import StrategyMetrics
from forewarn.evaluation.prediction.metrics.daily_rankings import RANKED_BY
from forewarn.evaluation.prediction.metrics.drift import Drift
from forewarn.features.time_units import HOUR
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.at_risk.fleet_scoring import list_contributions
from forewarn.pipelines.at_risk.reason_phrases import channel_of
from forewarn.pipelines.backtest.backtest_page import render_report
from forewarn.pipelines.backtest.backtest_plots import reasons_figure
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.backtest_run import report_differences
from forewarn.pipelines.backtest.run_inputs import log_inputs
from forewarn.pipelines.backtest.run_metrics import attach_plots, quality_metrics
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.progress import JobCosts
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.registry.model_registry import Registry
from forewarn.pipelines.training.champion_comparison import ComparedModels
from forewarn.pipelines.training.drift_check import ScoringDay

__all__ = ["log_drift", "log_reasons", "log_retraining"]

_N_LISTED, _N_REASONS = 10, 12


def log_retraining(
    registry: Registry,
    run: str,
    job: Job,
    records: WindowedRecords,
    predictor: Predictor,
    finished: StrategyMetrics | None,
    compared: ComparedModels | None,
    costs: JobCosts,
) -> None:
    """Log data, code, parameters, quality, costs, and the report on the finished windows.

    Parameters
    ----------
    registry : Registry
    run : str
    job : Job
    records : WindowedRecords
    predictor : Predictor
    finished : StrategyMetrics or None
        Of the recipe, on the finished windows.
    compared : ComparedModels or None
    costs : JobCosts
    """
    facts = predictor.facts
    log_inputs(
        registry,
        run,
        job,
        records,
        {
            "at": facts.trained_at,
            "train_length_days": facts.train_length_days,
            "model_version": predictor.version,
        },
        context="training",
    )
    metrics: dict[str, float | None] = {}
    if finished is not None:
        metrics |= quality_metrics(finished.fleet[RANKED_BY], finished.calibration)
        _attach_report(registry, run, job, records, finished, costs, facts.trained_at)
    if compared is not None:
        low, high = compared.comparison.interval or (None, None)
        metrics |= compared.metrics
        metrics |= {"gate/difference": compared.comparison.difference}
        metrics |= {"gate/difference_low": low, "gate/difference_high": high}
    metrics |= {
        "prevalence": facts.prevalence,
        "failures_known": facts.failures_known,
        "seconds": costs.seconds,
        "peak_rss_mib": costs.peak_rss_bytes / 2**20,
    }
    metrics |= {f"seconds/{stage.name}": stage.seconds for stage in costs.stages}
    registry.log(run, metrics=metrics)


def _attach_report(
    registry: Registry,
    run: str,
    job: Job,
    records: WindowedRecords,
    finished: StrategyMetrics,
    costs: JobCosts,
    trained_at: str,
) -> None:
    """Attach the page of the finished windows, as a backtest of them would write it."""
    strategy, instances = str(job.configured), records.survey.instances
    report = BacktestReport(
        configured=strategy,
        methods={f"{name}_{strategy}": row for name, row in finished.methods.items()},
        fleet={f"{name}_{strategy}": row for name, row in finished.fleet.items()},
        calibration={strategy: finished.calibration},
        blend={strategy: finished.blend},
        intersection={strategy: finished.intersection},
        share=job.protocol.share,
        k=job.protocol.k,
        interval_level=INTERVAL_LEVEL,
        horizon_hours=job.protocol.horizon / HOUR,
        records=records.survey.n_records,
        instances=len(instances),
        positives=int((instances.label == 1).sum()),
        gpus=len(records.fleet.serials),
        notes=[f"The finished windows before the retraining as of {trained_at}."],
        costs=costs,
    )
    differences = report_differences(report, {strategy: finished})
    report = replace(report, differences=differences)
    with scratch_folder() as folder:
        (folder / "report.html").write_text(render_report(report), encoding="utf-8")
        (folder / "report.json").write_text(report.to_json(), encoding="utf-8")
        registry.attach(run, folder)


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
        attach_plots(registry, run, {"reasons.png": reasons_figure(shares)})


def log_drift(registry: Registry, run: str, drift: Mapping[str, Drift]) -> None:
    """Log the drift of every input and of the scores since the training span."""
    metrics: dict[str, float | None] = {}
    for name, moved in drift.items():
        metrics[f"drift/{name}"] = moved.stability
        metrics[f"missing/{name}"] = moved.missing_now
    registry.log(run, metrics=metrics)
