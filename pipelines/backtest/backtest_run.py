"""`forewarn backtest`: run a walk-forward backtest and write the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from forewarn.evaluation.bootstrap import INTERVAL_LEVEL
from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.evaluation.prediction.metrics.backtest_metrics import (
    StrategyMetrics,
    strategy_metrics,
)
from forewarn.evaluation.prediction.metrics.daily_list import assign_to_lists
from forewarn.evaluation.prediction.metrics.list_calibration import list_calibration
from forewarn.evaluation.prediction.metrics.net_benefit import list_benefit
from forewarn.evaluation.prediction.metrics.paired_differences import (
    Differences,
    paired_differences,
)
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.evaluation.prediction.walk_forward.comparison_rows import ComparisonRows
from forewarn.evaluation.prediction.walk_forward.fleet_survey import FleetSurvey
from forewarn.evaluation.prediction.walk_forward.retraining_schedule import retraining_times
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, HOUR
from forewarn.models.prediction.model_catalogue import ModelCatalogue
from forewarn.models.prediction.predictor_files import PREDICTOR_FORMAT
from forewarn.models.prediction.trained_recipe import MIN_POSITIVES, RecipeTrainer
from forewarn.pipelines.backtest.backtest_page import render_report
from forewarn.pipelines.backtest.backtest_report import BacktestReport, ExcludedInstances
from forewarn.pipelines.backtest.evaluated_scores import EvaluatedScores
from forewarn.pipelines.backtest.finished_retrainings import FinishedRetrainings, SavedRecipes
from forewarn.pipelines.backtest.progress_folder import ProgressFolder
from forewarn.pipelines.backtest.score_frames import strategy_frame
from forewarn.pipelines.backtest.windowed_records import WindowedRecords, fingerprint
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.executor import SliceMap
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.progress import Stages, TimeRemaining, note, progress_bar
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["report_differences", "run_backtest", "scores_file"]

_PAPER_STRATEGIES = (Strategy.FIXED, Strategy.SLIDING, Strategy.VARIABLE)


def run_backtest(
    job: Job,
    out: Path,
    *,
    start: int | None = None,
    end: int | None = None,
    strategies: Sequence[str] = _PAPER_STRATEGIES,
) -> BacktestReport:
    """Run a backtest and write scores, `report.json` and `report.html` into `out`.

    Finished retrainings are stored there, so that an interrupted backtest resumes and produces
    identical scores. The stored parts are removed at the end.

    Parameters
    ----------
    job : Job
    out : Path
    start, end : int, optional
        Earliest retraining, and exclusive end of the data, in nanoseconds.
    strategies : sequence of str
        Any of `fixed`, `sliding`, `variable`, `steady` and `expanding`, judged in addition to the
        configured strategy.

    Returns
    -------
    BacktestReport
        Content of `report.json`.

    Raises
    ------
    RecordsError, JobError
        If the records are invalid, or no retraining is possible.
    """
    stages, store, settings = Stages(), job.store, job.walk_settings
    strategies = tuple(dict.fromkeys((str(job.configured), *map(str, strategies))))
    made_of: dict[str, Any] = {"records": fingerprint(store)}
    with stages("read records"):
        records = WindowedRecords.from_store(
            store, settings, lambda fleet: _times(settings, fleet, start, end, str(store.folder))
        )
    times = records.retrainings
    made_of["configuration"] = _configuration(settings, strategies, times)
    executor = job.settings.executor.executor
    # Workers start first, so that a wrong address is reported immediately rather than hours later.
    with executor.started() as slices, _progress(out, made_of) as progress:
        done = FinishedRetrainings(progress, strategies)
        walk = _new_walk_forward(records, progress, stages, job.catalogue)
        _run_retrainings(walk, records, done, times)
        records.refuse_changes(made_of["records"])
        with stages("evaluate"):
            report = _report(job.protocol, job.settings.list.costs, records, done, slices)
            report = replace(report, left_out=_excluded_instances(records, times))
        notes = [*records.notes, *job.notes]
        for text in notes:
            note(text)
        report = replace(report, notes=[*notes, *walk.notes], costs=stages.figures())
        _write(out, done, report)
    if job.settings.registry.model_fields_set:  # an experiment is configured
        # Imported here because MLflow takes a second to import.
        from forewarn.pipelines.backtest.backtest_tracking import track_backtest

        track_backtest(job, records, report, out)
    return report


def _configuration(
    settings: WalkForwardSettings, strategies: Sequence[str], times: Sequence[int]
) -> list[Any]:
    """Return everything except the records that determines the result of a retraining."""
    walked = json.loads(json.dumps(asdict(settings), default=list))
    return [walked, sorted(strategies), list(times), version("forewarn"), PREDICTOR_FORMAT]


@contextmanager
def _progress(out: Path, made_of: dict[str, Any]) -> Iterator[ProgressFolder]:
    """Yield the progress folder; remove it at the end or after an input error."""
    new = not out.exists()
    progress = ProgressFolder.open(out, made_of)
    try:
        yield progress
    except InputError:
        progress.remove()
        if new and not any(out.iterdir()):
            out.rmdir()
        raise
    progress.remove()


def _times(
    settings: WalkForwardSettings,
    fleet: FleetSurvey,
    start: int | None,
    end: int | None,
    folder: str,
) -> list[int]:
    first, last = fleet.first, fleet.last
    times = retraining_times(
        first,
        last,
        longest=settings.longest,
        horizon=settings.recipe.horizon,
        every=settings.every,
        start=start,
        end=end,
    )
    if not times:
        need = (settings.longest + settings.recipe.horizon) / DAY
        limits = {"start": start, "end": end}
        options = [f"--{name} {format_iso(at)}" for name, at in limits.items() if at is not None]
        raise JobError(
            f"{' '.join(options) or folder}: no retraining time is left between "
            f"{format_iso(first)} and {format_iso(last)}, the first and the last record, expected "
            + (f"records of more than {need:g} days." if start is None else "one in between.")
        )
    return times


def _new_walk_forward(
    records: WindowedRecords, progress: ProgressFolder, stages: Stages, catalogue: ModelCatalogue
) -> WalkForward:
    """Return a walk-forward backtest without windows."""
    settings = records.settings
    recipes = SavedRecipes(progress, settings, catalogue)
    trainer = RecipeTrainer(settings.recipe, recipes, stages, catalogue=catalogue)
    walk = records.walk(settings, trainer)
    walk.compared = ComparisonRows(settings, records.fleet, records.survey.seen_before)
    return walk


def _run_retrainings(
    walk: WalkForward, records: WindowedRecords, done: FinishedRetrainings, times: list[int]
) -> None:
    n_scored = n_restored = 0
    left = TimeRemaining(len(times), "retrainings")
    with progress_bar(len(times), "backtest", "retraining") as bar:
        for moment in times:
            bar.set_postfix_str(format_iso(moment)[:10])
            scored = done.restore(moment, walk)
            restored = scored is not None
            if scored is None:
                scored = _retrain(walk, records, done, moment)
            else:
                n_restored += 1
                bar.initial = n_restored  # exclude restored retrainings from the time estimate
            if not scored:
                _skip(walk, moment)
            n_scored += scored
            walk.drop_unused_windows(moment)
            bar.update()
            left.step(worked=not restored)
    records.release(walk)
    if not n_scored:
        raise JobError(
            f"{records.store.folder}: none of {len(times)} retrainings is possible. Each needs "
            f"{MIN_POSITIVES} positives before it (instances with a failure within the horizon), "
            "a negative, and records for at least one horizon after it."
        )


def _retrain(
    walk: WalkForward, records: WindowedRecords, done: FinishedRetrainings, moment: int
) -> bool:
    """Retrain, score and store a test window; return False if the retraining is skipped."""
    done.restore_fixed(walk)
    records.load_retraining(walk, moment)
    window = walk.retrain(moment, done.strategies)
    frames = {}
    if window is not None:
        truth = records.fleet.truth
        frames = {name: strategy_frame(walk, truth, window, name) for name in done.strategies}
    with walk.trainer.stage("keep"):
        done.keep(moment, walk, frames)
    return window is not None


def _skip(walk: WalkForward, moment: int) -> None:
    walk.notes.append(
        f"retraining of {format_iso(moment)} skipped: fewer than {MIN_POSITIVES} known positives, "
        "no negatives, or no known label after it (records must continue for one horizon)"
    )
    note(walk.notes[-1])


def _excluded_instances(records: WindowedRecords, times: Sequence[int]) -> ExcludedInstances:
    """Return what would have been tested if the records were one horizon longer."""
    settings = records.settings
    instances = records.survey.instances.between(times[0], times[-1] + settings.every)
    instances = instances.select(instances.end > records.last_tested)
    _, midnights = assign_to_lists(instances.end, step=settings.recipe.step, day=DAY)
    return ExcludedInstances(
        last_record=format_iso(records.fleet.last),
        since=format_iso(int(instances.end.min())) if len(instances) else None,
        instances=len(instances),
        positives=int((instances.label == 1).sum()),
        days=[format_iso(moment)[:10] for moment in np.unique(midnights).tolist()],
    )


def _report(
    protocol: EvaluationProtocol,
    costs: ActionCosts | None,
    records: WindowedRecords,
    done: FinishedRetrainings,
    slices: SliceMap,
) -> BacktestReport:
    """Return the metrics of all strategies and the data they are based on."""
    instances = records.survey.instances
    later = instances.end[instances.end > records.last_tested]
    unseen_from = int(later.min()) if len(later) else None
    known = (instances.label >= 0) & (instances.end <= records.last_tested)
    report = BacktestReport(
        configured=done.strategies[0],
        prevalence=float((instances.label[known] == 1).mean()) if known.any() else None,
        share=protocol.share,
        k=protocol.k,
        interval_level=INTERVAL_LEVEL,
        horizon_hours=protocol.horizon / HOUR,
        records=records.survey.n_records,
        instances=len(instances),
        positives=int((instances.label == 1).sum()),
        gpus=len(records.fleet.serials),
    )
    metrics: dict[str, StrategyMetrics] = {}
    with progress_bar(len(done.strategies), "evaluate", "strategy") as bar:
        for strategy in done.strategies:
            paths = done.frames_of(strategy)
            scores = EvaluatedScores.from_files(paths, protocol, unseen_from, slices)
            metrics[strategy] = strategy_metrics(
                scores.table,
                scores.averages,
                scores.judged,
                scores.without,
                progress=bar.set_postfix_str,
            )
            report = _with_strategy(report, strategy, metrics[strategy], scores.table, costs)
            bar.update()
    return replace(report, differences=report_differences(report, metrics))


def report_differences(
    report: BacktestReport, metrics: Mapping[str, StrategyMetrics]
) -> dict[str, Differences]:
    """Return the paired differences of the metrics that rank methods."""
    values = {
        "precision_at_k": {key: paper.precision_at_k for key, paper in report.methods.items()},
        "list_precision": {key: fleet.list_precision for key, fleet in report.fleet.items()},
        "average_precision": {key: fleet.average_precision for key, fleet in report.fleet.items()},
    }
    return {
        metric: paired_differences(
            by_key,
            {
                f"{method}_{strategy}": draws
                for strategy, figures in metrics.items()
                for method, draws in figures.draws[metric].items()
            },
        )
        for metric, by_key in values.items()
    }


def _with_strategy(
    report: BacktestReport,
    strategy: str,
    figures: StrategyMetrics,
    table: ScoreTable,
    costs: ActionCosts | None,
) -> BacktestReport:
    """Add the metrics of a strategy to the report."""
    monitored = list_calibration(table, costs)
    methods = {f"{name}_{strategy}": row for name, row in figures.methods.items()}
    fleet = {f"{name}_{strategy}": row for name, row in figures.fleet.items()}
    return replace(
        report,
        methods={**report.methods, **methods},
        fleet={**report.fleet, **fleet},
        calibration={**report.calibration, strategy: figures.calibration},
        blend={**report.blend, strategy: figures.blend},
        intersection={**report.intersection, strategy: figures.intersection},
        worth={**report.worth, strategy: list_benefit(table, costs)},
        promise={**report.promise, strategy: None if monitored is None else monitored.metrics()},
    )


def scores_file(strategy: str) -> str:
    """Return the name of the file with the scores of a strategy (docs/formats.md, section 3)."""
    return "scores.parquet" if strategy == Strategy.VARIABLE else f"scores_{strategy}.parquet"


def _write(out: Path, done: FinishedRetrainings, report: BacktestReport) -> None:
    """Write all files under temporary names first, so that either all or none are replaced."""
    page = render_report(report)
    with ExitStack() as files:
        for strategy in done.strategies:
            path = files.enter_context(replacing(out / scores_file(strategy)))
            _join(done.frames_of(strategy), path)
        path = files.enter_context(replacing(out / "report.json"))
        path.write_text(report.to_json(), encoding="utf-8")
        path = files.enter_context(replacing(out / "report.html"))
        path.write_text(page, encoding="utf-8")


def _join(parts: Sequence[Path], path: Path) -> None:
    """Concatenate the tables of all test windows in one file, one at a time in memory."""
    schema = pq.read_schema(arrow_path(parts[0]))
    with pq.ParquetWriter(arrow_path(path), schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(pq.read_table(arrow_path(part)))
