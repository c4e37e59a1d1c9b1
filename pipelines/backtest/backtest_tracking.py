"""MLflow log of a backtest: quality of the lists, configuration, data, report and plots."""

from __future__ import annotations

from pathlib import Path

from forewarn.evaluation.prediction.metrics.daily_rankings import RANKED_BY
from forewarn.features.errors import InputError
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.backtest_sentences import fleet_summary
from forewarn.pipelines.backtest.report_results import Method, read_results
from forewarn.pipelines.backtest.run_inputs import log_inputs
from forewarn.pipelines.backtest.run_metrics import (
    attach_plots,
    list_plots,
    log_method,
    precision_line,
    quality_metrics,
)
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder
from forewarn.pipelines.storage.registry.mlflow_experiment import Experiment

__all__ = ["track_backtest"]

_PLOTTED = (RANKED_BY, "parallel", "cascade", "rules")


def track_backtest(job: Job, records: WindowedRecords, report: BacktestReport, out: Path) -> None:
    """Log a finished backtest as a run; a registry that fails costs a note, not the results.

    Parameters
    ----------
    job : Job
    records : WindowedRecords
    report : BacktestReport
    out : Path
        Holds the report.
    """
    table = job.settings.registry
    try:
        experiment = Experiment(table, create=True)
        with experiment.in_one_line():
            _track(experiment, job, records, report, out)
    except (InputError, OSError) as error:
        note(f"the backtest is complete, but not logged to MLflow: {error}")
    else:
        note(f"logged to MLflow: experiment {table.experiment} in {experiment.address}")


def _track(
    experiment: Experiment,
    job: Job,
    records: WindowedRecords,
    report: BacktestReport,
    out: Path,
) -> None:
    lead, first, last = report.configured, records.retrainings[0], records.fleet.last
    name = f"backtest {format_iso(first)[:10]} to {format_iso(last)[:10]}"
    with experiment.run(name, {"forewarn.kind": "backtest"}) as run:
        results = read_results(report.fleet, "list_precision")
        experiment.describe(run, " ".join(map(str, fleet_summary(report, results, lead))))
        span = {"first_retraining": format_iso(first), "strategy": lead}
        log_inputs(experiment, run, job, records, span, context="evaluation")
        metrics = _quality(report, lead)
        if (rules := report.fleet.get(f"rules_{lead}")) is not None:
            metrics |= quality_metrics(rules, prefix="rules/")
        metrics |= {"prevalence": report.prevalence, "seconds": report.costs.seconds}
        metrics |= {"peak_rss_mib": report.costs.peak_rss_bytes / 2**20}
        experiment.log(run, metrics=metrics)
        _attach(experiment, run, report, out)
        for strategy in report.calibration:
            _log_strategy(experiment, run, report, strategy)


def _quality(report: BacktestReport, strategy: str) -> dict[str, float | None]:
    lists = report.fleet[f"{RANKED_BY}_{strategy}"]
    return quality_metrics(lists, report.calibration[strategy])


def _attach(experiment: Experiment, run: str, report: BacktestReport, out: Path) -> None:
    """Attach the report and plots of the configured strategy."""
    lead = report.configured
    methods = {name: report.methods.get(f"{name}_{lead}") for name in _PLOTTED}
    lines = [precision_line(name, paper) for name, paper in methods.items() if paper is not None]
    lists = report.fleet[f"{RANKED_BY}_{lead}"]
    attach_plots(experiment, run, list_plots(lines, lists, report.calibration[lead]))
    with scratch_folder() as folder:
        for name in ("report.html", "report.json"):
            (folder / name).write_bytes((out / name).read_bytes())
        experiment.attach(run, folder)


def _log_strategy(experiment: Experiment, run: str, report: BacktestReport, strategy: str) -> None:
    """Log a strategy as a nested run, with nested runs for its methods."""
    params = {"strategy": strategy}
    with experiment.run(f"strategy {strategy}", {"forewarn.kind": "strategy"}, run) as parent:
        experiment.log(parent, params=params, metrics=_quality(report, strategy))
        for key, paper in report.methods.items():
            method = Method.from_key(key)
            if method.strategy == strategy:
                log_method(experiment, parent, method.name, paper, report.fleet[key], params)
